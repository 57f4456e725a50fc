"""Shell: the `ShareStateStore` of a broker: finds the share coordinator of each share partition and asks it.

The coordinator follows from the metadata, as the leader of the partition of `__share_group_state`. Requests of one kind
and one group that are ready at the same time go to a broker as one; one request to a broker is under way at a time, and
what arrives meanwhile goes with the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.broker.internal_topics import SHARE_TOPIC
from barnabas.broker.shares.state import (
    SharePartitionKey,
    ShareState,
    ShareStateChange,
    ShareStateSummary,
    StateBatch,
)
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import NO_LEADER, MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from barnabas.runtime.background import Background
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import World

log = logging.getLogger(__name__)

FIRST_RETRY_MS, LAST_RETRY_MS = 20, 1_000
MOST_IN_A_REQUEST = 500
"""Share partitions."""

_PASSING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


class ShareStateChannel(Protocol):
    """The part of `runtime.channel.Channel` that is used here."""

    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        """Raises ChannelError."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ShareStateClientPorts:
    world: World
    background: Background
    image: Callable[[], MetadataImage]
    channel_to: Callable[[int], ShareStateChannel | None]
    """Opens a channel to a broker's current address; None if it has none."""
    create_internal: Callable[[str], None]
    """Begins to create an internal topic."""
    timeout_ms: Callable[[], int]
    """The most that a call takes, with its retries."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the five requests."""

    name: str
    request: type[Any]
    topic: type[Any]


_INITIALIZE = _Kind(
    "initialize",
    initialize_share_group_state.InitializeShareGroupStateRequest,
    initialize_share_group_state.InitializeStateData,
)
_READ = _Kind("read", read_share_group_state.ReadShareGroupStateRequest, read_share_group_state.ReadStateData)
_WRITE = _Kind("write", write_share_group_state.WriteShareGroupStateRequest, write_share_group_state.WriteStateData)
_DELETE = _Kind(
    "delete", delete_share_group_state.DeleteShareGroupStateRequest, delete_share_group_state.DeleteStateData
)
_SUMMARY = _Kind(
    "summarize",
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
)


@dataclass(slots=True, eq=False)
class _Question:
    """One share partition in a request."""

    kind: _Kind
    key: SharePartitionKey
    data: Any
    """Its `PartitionData`."""
    answered: trio.Event = field(default_factory=trio.Event)
    result: Any = None
    """Its `PartitionResult`; None without an answer."""

    def answer(self, result: Any) -> None:
        self.result = result
        self.answered.set()


@dataclass(slots=True, eq=False)
class _Destination:
    """One broker, and the questions queued for it."""

    broker_id: int
    waiting: list[_Question] = field(default_factory=list)
    running: bool = False
    channel: ShareStateChannel | None = None
    asking: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Cancels the request in flight."""

    def hang_up(self) -> None:
        self.asking.cancel()
        if self.channel is not None:
            self.channel.close()
            self.channel = None


class ShareStateClient:
    """Implements `broker.shares.state.ShareStateStore`."""

    def __init__(self, ports: ShareStateClientPorts) -> None:
        self._ports = ports
        self._destinations: dict[int, _Destination] = {}

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        data = read_share_group_state.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        result = await self._ask(_READ, key, data)
        batches = tuple(
            StateBatch(it.first_offset, it.last_offset, it.delivery_state, it.delivery_count)
            for it in result.state_batches
        )
        return ShareState(result.state_epoch, result.start_offset, batches)

    async def write(self, key: SharePartitionKey, change: ShareStateChange) -> None:
        data = write_share_group_state.PartitionData(
            partition=key.partition,
            state_epoch=change.state_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=[
                write_share_group_state.StateBatch(
                    first_offset=it.first_offset,
                    last_offset=it.last_offset,
                    delivery_state=it.state,
                    delivery_count=it.delivery_count,
                )
                for it in change.batches
            ],
        )
        await self._ask(_WRITE, key, data)

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        data = initialize_share_group_state.PartitionData(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        await self._ask(_INITIALIZE, key, data)

    async def delete(self, key: SharePartitionKey) -> None:
        await self._ask(_DELETE, key, delete_share_group_state.PartitionData(partition=key.partition))

    async def summary(self, key: SharePartitionKey, leader_epoch: int) -> ShareStateSummary:
        data = read_share_group_state_summary.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        result = await self._ask(_SUMMARY, key, data)
        return ShareStateSummary(
            result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count
        )

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Stop waiting for brokers that may never answer."""
        for broker_id in delta.interrupted_brokers:
            destination = self._destinations.get(broker_id)
            if destination is not None:
                destination.hang_up()

    # -- one question

    async def _ask(self, kind: _Kind, key: SharePartitionKey, data: Any) -> Any:
        """The `PartitionResult`. Raises KafkaError."""
        world, backoff = self._ports.world, Backoff(FIRST_RETRY_MS, LAST_RETRY_MS)
        deadline_ms = world.monotonic.now_ms() + self._ports.timeout_ms()
        while True:
            result = None
            leader = self._leader(key)
            if leader != NO_LEADER:
                result = await self._ask_at(leader, _Question(kind, key, data))
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if result is None else error_code(result.error_code)
            if result is not None and code not in _PASSING:
                if code is not ErrorCode.NONE:
                    raise KafkaError(code, result.error_message)
                return result
            wait_ms = backoff.next_ms()
            if world.monotonic.now_ms() + wait_ms > deadline_ms:
                message = f"cannot {kind.name} the state of {key.coordinator_key}: {code.name}"
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
            await trio.sleep(wait_ms / 1000)

    def _leader(self, key: SharePartitionKey) -> int:
        """The broker that coordinates `key`; NO_LEADER while there is none."""
        topic = self._ports.image().topics.by_name.get(SHARE_TOPIC)
        if topic is None:
            self._ports.create_internal(SHARE_TOPIC)
            return NO_LEADER
        placed = topic.partitions.get(partition_for(key.coordinator_key, len(topic.partitions)))
        return NO_LEADER if placed is None else placed.leader

    async def _ask_at(self, broker_id: int, question: _Question) -> Any:
        destination = self._destinations.setdefault(broker_id, _Destination(broker_id))
        destination.waiting.append(question)
        if not destination.running:
            destination.running = True
            self._ports.background.spawn(self._serve, destination)
        await question.answered.wait()
        return question.result

    # -- one broker

    async def _serve(self, destination: _Destination) -> None:
        """Send everything queued for one broker."""
        taken: list[_Question] = []
        try:
            while destination.waiting:
                taken = _take(destination)
                results = await self._send(destination, taken)
                for question in taken:
                    question.answer(results.get((question.key.topic_id, question.key.partition)))
                taken = []
        finally:
            destination.running = False
            left, destination.waiting = [*taken, *destination.waiting], []
            for question in left:
                question.answer(None)

    async def _send(self, destination: _Destination, questions: list[_Question]) -> dict[tuple[bytes, int], Any]:
        """Results by topic id and partition; none without an answer: the request may have taken effect or not."""
        if destination.channel is None:
            destination.channel = self._ports.channel_to(destination.broker_id)
        if destination.channel is None:
            return {}
        response = None
        try:
            with trio.CancelScope() as destination.asking:
                response = await destination.channel.call(_request(questions), timeout_ms=self._ports.timeout_ms())
        except ChannelError as error:
            log.info("%d share partitions at broker %d: %s", len(questions), destination.broker_id, error)
            destination.hang_up()
        if response is None:
            return {}
        return {
            (topic.topic_id, result.partition): result for topic in response.results for result in topic.partitions
        }


def _take(destination: _Destination) -> list[_Question]:
    """Take the questions of the next request: of one kind and one group, each share partition once."""
    first = destination.waiting[0]
    taken: dict[SharePartitionKey, _Question] = {}
    kept: list[_Question] = []
    for question in destination.waiting:
        fits = question.kind is first.kind and question.key.group_id == first.key.group_id
        if fits and question.key not in taken and len(taken) < MOST_IN_A_REQUEST:
            taken[question.key] = question
        else:
            kept.append(question)
    destination.waiting = kept
    return list(taken.values())


def _request(questions: list[_Question]) -> Any:
    kind = questions[0].kind
    topics: dict[bytes, list[Any]] = {}
    for question in questions:
        topics.setdefault(question.key.topic_id, []).append(question.data)
    parts = [kind.topic(topic_id=topic_id, partitions=datas) for topic_id, datas in topics.items()]
    return kind.request(group_id=questions[0].key.group_id, topics=parts)
