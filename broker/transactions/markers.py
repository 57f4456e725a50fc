"""Shell: sends the results of transactions to their partitions (WriteTxnMarkers, 27).

Markers go to the leader of each partition, batched by broker, with one request in flight; markers that arrive meanwhile
go with the next request. A request is cancelled when the broker is fenced or restarted. A partition that refuses its
marker is retried until it accepts it or its topic is deleted. When all partitions of a transaction are done, its
machine writes the Complete* record. The result was decided before (`machine.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import trio

from barnabas.broker.coordinator.shard import Shard, ShardState
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.broker.transactions.machine import EndedTransaction, TransactionMachine
from barnabas.broker.transactions.transaction import TopicPartition, by_topic
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import NO_LEADER, MetadataImage
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.runtime.background import Background
from barnabas.runtime.backoff import doubled_ms
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import World

log = logging.getLogger(__name__)

FIRST_RETRY_MS = 20
LAST_RETRY_MS = 1_000

PARTITIONS_PER_REQUEST = 2_000

_DONE = frozenset(
    {
        ErrorCode.NONE,
        # A producer without write permission has written nothing that a marker could end.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        # The partition has this marker already (the answer was lost) or knows a later epoch. Waiting for another answer
        # would keep the transaction from completing for ever (KAFKA-19999).
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)

_USUAL = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # A newer coordinator has written. This one is about to learn that it was replaced, which stops its retries.
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Errors that pass without intervention. Any other error is retried as well, but logged."""


class MarkerChannel(Protocol):
    """The part of `runtime.channel.Channel` that is used here."""

    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        """Raises ChannelError."""

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Ending:
    """A transaction whose markers are being written."""

    transaction: EndedTransaction
    shard: Shard[TransactionMachine]
    left: set[TopicPartition]
    """Partitions still without a marker."""
    attempts: int = 0

    @property
    def given_up(self) -> bool:
        """True if another broker coordinates the transaction now and writes the markers."""
        return self.shard.state is not ShardState.ACTIVE


_Part = tuple[_Ending, list[TopicPartition]]


@dataclass(slots=True, eq=False)
class _Destination:
    """One broker, and the markers queued for it."""

    broker_id: int
    waiting: list[_Part] = field(default_factory=list)
    running: bool = False
    channel: MarkerChannel | None = None
    asking: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Cancels the request in flight."""

    def hang_up(self) -> None:
        """Cancel the request in flight. The next one uses a new connection, since the broker's address may have
        changed.
        """
        self.asking.cancel()
        if self.channel is not None:
            self.channel.close()
            self.channel = None


class MarkerWriter:
    """Writes the markers of all transactions that this broker coordinates."""

    def __init__(
        self,
        world: World,
        background: Background,
        wheel: TimingWheel,
        image: Callable[[], MetadataImage],
        channel_to: Callable[[int], MarkerChannel | None],
        timeout_ms: Callable[[], int],
    ) -> None:
        """`channel_to` opens a channel to a broker's current address; None if it has none."""
        self._world = world
        self._background = background
        self._wheel = wheel
        self._image = image
        self._channel_to = channel_to
        self._timeout_ms = timeout_ms
        self._destinations: dict[int, _Destination] = {}
        self.waiting_for_leaders = 0
        """Number of transaction parts to be retried later."""

    @property
    def waiting(self) -> dict[int, int]:
        """Number of transactions queued for each broker."""
        return {broker_id: len(each.waiting) for broker_id, each in self._destinations.items()}

    def write(self, transaction: EndedTransaction, shard: Shard[TransactionMachine]) -> None:
        """Write the marker into all partitions of `transaction`, then let `shard` complete it."""
        self._world.fault_point("transactions.prepared")
        self._route(_Ending(transaction, shard, set(transaction.partitions)), transaction.partitions)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Stop waiting for brokers that may never answer, and look up new leaders."""
        for broker_id in delta.interrupted_brokers:
            destination = self._destinations.get(broker_id)
            if destination is not None:
                destination.hang_up()
                waiting, destination.waiting = destination.waiting, []
                for ending, partitions in waiting:
                    self._route(ending, partitions)

    # -- routing

    def _route(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        """Queue `partitions` at their leaders."""
        if ending.given_up:
            return
        topics = self._image().topics
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic, index in partitions:
            placed = topics.partition(topic, index)
            if placed is None:
                # Deleted. The partition existed when it was added, and no image here is older than that: a coordinator
                # takes over by a later metadata record than any that its predecessor acted on.
                ending.left.discard((topic, index))
            else:
                by_leader.setdefault(placed.leader, []).append((topic, index))
        for leader, part in by_leader.items():
            if leader == NO_LEADER:
                self._later(ending, part)
            else:
                self._hand_over(leader, ending, part)
        self._complete_if_done(ending)

    def _later(self, ending: _Ending, partitions: list[TopicPartition]) -> None:
        wait_ms = doubled_ms(FIRST_RETRY_MS, LAST_RETRY_MS, ending.attempts)
        ending.attempts += 1
        self.waiting_for_leaders += 1
        self._wheel.add(self._world.monotonic.now_ms() + wait_ms, partial(self._again, ending, partitions))

    def _again(self, ending: _Ending, partitions: list[TopicPartition]) -> None:
        self.waiting_for_leaders -= 1
        self._route(ending, partitions)

    def _complete_if_done(self, ending: _Ending) -> None:
        if ending.left or ending.given_up:
            return
        self._world.fault_point("transactions.markers.written")
        ending.shard.run(partial(ending.shard.machine.complete, ending.transaction), None)

    # -- one broker

    def _hand_over(self, broker_id: int, ending: _Ending, partitions: list[TopicPartition]) -> None:
        destination = self._destinations.setdefault(broker_id, _Destination(broker_id))
        destination.waiting.append((ending, partitions))
        if not destination.running:
            destination.running = True
            self._background.spawn(self._serve, destination)

    async def _serve(self, destination: _Destination) -> None:
        """Send everything queued for one broker."""
        try:
            while destination.waiting:
                parts = _take(destination)
                if parts:
                    self._answered(parts, await self._ask(destination, parts))
        finally:
            destination.running = False

    async def _ask(self, destination: _Destination, parts: list[_Part]) -> WriteTxnMarkersResponse | None:
        """None without an answer; the markers may have been written or not."""
        if destination.channel is None:
            destination.channel = self._channel_to(destination.broker_id)
        if destination.channel is None:
            return None
        request = WriteTxnMarkersRequest(markers=[_marker(*part) for part in parts])
        response: WriteTxnMarkersResponse | None = None
        try:
            with trio.CancelScope() as destination.asking:
                response = await destination.channel.call(request, timeout_ms=self._timeout_ms())
        except ChannelError as error:
            log.info("%d transaction markers for broker %d: %s", len(parts), destination.broker_id, error)
            destination.hang_up()
        return response

    def _answered(self, parts: list[_Part], response: WriteTxnMarkersResponse | None) -> None:
        codes = {} if response is None else _codes(response)
        for ending, partitions in parts:
            transaction, again = ending.transaction, []
            for topic, index in partitions:
                code = codes.get((transaction.producer.producer_id, topic, index))
                if code in _DONE:
                    ending.left.discard((topic, index))
                    continue
                if code is not None and code not in _USUAL:
                    log.warning(
                        "%s-%d refuses the marker of %r: %s", topic, index, transaction.transactional_id, code.name
                    )
                again.append((topic, index))
            if again:
                self._later(ending, again)
            self._complete_if_done(ending)


class ShardMarkers:
    """The `Markers` of one shard's machine."""

    def __init__(self, writer: MarkerWriter, shard: Callable[[], Shard[TransactionMachine] | None]) -> None:
        """`shard` returns None once it is given up."""
        self._writer = writer
        self._shard = shard

    def write(self, ended: EndedTransaction) -> None:
        shard = self._shard()
        if shard is not None:
            self._writer.write(ended, shard)


def _take(destination: _Destination) -> list[_Part]:
    """Take markers for the next request, at most one per producer, because answers are matched by producer id."""
    taken: dict[int, _Part] = {}
    kept: list[_Part] = []
    size = 0
    for ending, partitions in destination.waiting:
        producer_id = ending.transaction.producer.producer_id
        if ending.given_up:
            continue
        if producer_id in taken or (taken and size + len(partitions) > PARTITIONS_PER_REQUEST):
            kept.append((ending, partitions))
        else:
            taken[producer_id] = (ending, partitions)
            size += len(partitions)
    destination.waiting = kept
    return list(taken.values())


def _marker(ending: _Ending, partitions: list[TopicPartition]) -> WritableTxnMarker:
    transaction = ending.transaction
    return WritableTxnMarker(
        producer_id=transaction.producer.producer_id,
        producer_epoch=transaction.producer.producer_epoch,
        transaction_result=transaction.committed,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(partitions).items()
        ],
        coordinator_epoch=ending.shard.epoch,
        transaction_version=transaction.transaction_version,
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): error_code(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
