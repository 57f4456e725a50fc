"""Core: the knowledge of a hostile client about the cluster: names, ids, epochs and offsets for arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.cluster.hostile.aims import OWN_PREFIX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema import Struct

MOST_REMEMBERED = 64
"""Maximum number of each kind."""


class Pool:
    """Values of one kind, without repetition; the oldest goes when there are too many."""

    def __init__(self, *values: Any) -> None:
        self._values: dict[Any, None] = dict.fromkeys(values)

    def add(self, value: Any) -> None:
        self._values[value] = None
        if len(self._values) > MOST_REMEMBERED:
            del self._values[next(iter(self._values))]

    @property
    def values(self) -> list[Any]:
        return list(self._values)


class Names:
    """Names of one kind: the hostile client's own, and everybody's."""

    def __init__(self, letter: str) -> None:
        self.own = Pool(*(f"{OWN_PREFIX}{letter}{number}" for number in range(4)))
        self.all = Pool(*self.own.values)

    def add(self, name: str) -> None:
        self.all.add(name)
        if name.startswith(OWN_PREFIX):
            self.own.add(name)


class Knowledge:
    """Grows with every answer."""

    def __init__(self) -> None:
        self.topics = Names("t")
        self.groups = Names("g")
        self.transactional_ids = Names("x")
        self.own_topic_ids = Pool()
        self.topic_ids = Pool()
        self.own_members = Pool()
        self.own_producers = Pool()
        """(id, epoch)"""
        self.epochs = Pool(0, 1)
        self.offsets = Pool(0, 1)
        self.sessions = Pool(0)
        self.client_instances = Pool()
        self.served: dict[str, tuple[ApiKey, ...]] = {}
        """Served versions by listener, as its nodes report them."""

    def learn_versions(self, listener: str, answer: Any) -> None:
        keys = {each.api_key for each in answer.api_keys}
        self.served[listener] = tuple(key for key in ApiKey if key in keys)

    def learn(self, api: ApiKey, answer: Struct) -> None:
        """Keeps what may be an argument later. Members and producers are known from answers to own requests only."""
        if api in {ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_HEARTBEAT}:
            self.own_members.add(getattr(answer, "member_id", None) or "")
        if api is ApiKey.INIT_PRODUCER_ID and not getattr(answer, "error_code", 1):
            self.own_producers.add((getattr(answer, "producer_id", -1), getattr(answer, "producer_epoch", -1)))
        for each in structs_of(answer):
            self._hear(api, each)

    def _hear(self, api: ApiKey, struct: Struct) -> None:
        for spec in struct.FIELDS:
            value = getattr(struct, spec.name)
            if value is None or isinstance(value, list | Struct):
                continue
            match spec.name:
                case "group_id":
                    self.groups.add(value)
                case "transactional_id":
                    self.transactional_ids.add(value)
                case "topic_id":
                    self.topic_ids.add(value)
                    # A refusal repeats the name and the id of the request, and these may be of two topics.
                    is_refusal = getattr(struct, "error_code", 0) != 0
                    if str(getattr(struct, "name", "")).startswith(OWN_PREFIX) and not is_refusal:
                        self.own_topic_ids.add(value)
                case "name" if api is ApiKey.METADATA:
                    self.topics.add(value)
                case "leader_epoch" | "generation_id" | "member_epoch" | "offset_epoch":
                    self.epochs.add(value)
                case "high_watermark" | "base_offset" | "offset" | "committed_offset" | "end_offset":
                    self.offsets.add(value)
                case "session_id":
                    self.sessions.add(value)
                case "client_instance_id":
                    self.client_instances.add(value)


def structs_of(struct: Struct) -> Iterator[Struct]:
    """It and all within it."""
    yield struct
    for spec in struct.FIELDS:
        value = getattr(struct, spec.name)
        if isinstance(value, Struct):
            yield from structs_of(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from structs_of(each)
