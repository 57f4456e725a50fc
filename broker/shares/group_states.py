"""Shell: the states of a share group's partitions, changed at their share coordinators for the group coordinator."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from functools import partial
from itertools import islice

import trio

from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.groups.share_topics import States, TopicStates
from barnabas.broker.shares.state import UNINITIALIZED_OFFSET, SharePartitionKey, ShareStateStore
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.background import Background

log = logging.getLogger(__name__)

AT_ONCE = 500
"""Share partitions that are changed at the same time."""


class GroupShareStates:
    """Implements `broker.groups.group.ShareStates` for the groups of one shard."""

    def __init__(
        self,
        background: Background,
        store: Callable[[], ShareStateStore],
        shard: Callable[[], Shard[GroupMachine] | None],
    ) -> None:
        """`shard` returns None once it is given up: the next coordinator initializes the states again."""
        self._background = background
        self._store = store
        self._shard = shard

    def initialize(self, group_id: str, state_epoch: int, states: Mapping[bytes, TopicStates]) -> None:
        self._background.spawn(self._initialize, group_id, state_epoch, dict(states))

    async def _initialize(self, group_id: str, state_epoch: int, states: States) -> None:
        def one(key: SharePartitionKey) -> Awaitable[None]:
            return self._store().initialize(key, state_epoch, UNINITIALIZED_OFFSET)

        errors = await for_each(keys_of(group_id, {topic_id: it.partitions for topic_id, it in states.items()}), one)
        for key, code in errors.items():
            log.warning("the state of %s cannot be initialized: %s", key.coordinator_key, code.name)
        shard = self._shard()
        if shard is not None:
            done, failed = divided(group_id, states, errors)
            shard.run(partial(shard.machine.shares.initialization_ended, group_id, done, failed), None)


def divided(group_id: str, states: States, errors: Container[tuple[str, bytes, int]]) -> tuple[States, States]:
    """The states that were changed, and those that are in `errors`."""
    failed = {
        topic_id: TopicStates(it.name, frozenset(i for i in it.partitions if (group_id, topic_id, i) in errors))
        for topic_id, it in states.items()
    }
    done = {topic_id: TopicStates(it.name, it.partitions - failed[topic_id][1]) for topic_id, it in states.items()}
    return _some(done), _some(failed)


def keys_of(group_id: str, partitions: Mapping[bytes, Iterable[int]]) -> list[SharePartitionKey]:
    return [
        SharePartitionKey(group_id, topic_id, index)
        for topic_id, indexes in partitions.items()
        for index in sorted(indexes)
    ]


async def for_each(
    keys: Iterable[SharePartitionKey], change: Callable[[SharePartitionKey], Awaitable[None]]
) -> dict[SharePartitionKey, ErrorCode]:
    """Carry out `change` for all keys, `AT_ONCE` at a time. Returns the errors; a key without one is changed."""
    errors: dict[SharePartitionKey, ErrorCode] = {}
    waiting = iter(keys)

    async def work(key: SharePartitionKey | None) -> None:
        while key is not None:
            try:
                await change(key)
            except KafkaError as error:
                errors[key] = error.code
            key = next(waiting, None)

    async with trio.open_nursery() as nursery:
        for key in islice(waiting, AT_ONCE):
            nursery.start_soon(work, key)
    return errors


def _some(states: States) -> dict[bytes, TopicStates]:
    return {topic_id: it for topic_id, it in states.items() if it.partitions}
