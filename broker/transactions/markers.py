"""Shell: tells the partitions of ended transactions how they ended (WriteTxnMarkers, 27).

Markers go to the leader of each partition, those for one broker together, one request at a time: what comes while it
is under way goes with the next. It is given up when the broker is fenced or starts anew. A partition that does not take
its marker now is tried again until it does or its topic is gone. When all of a transaction's partitions are done, its
machine writes the end of it. Whether a transaction commits was decided before (`machine.py`); nothing here knows why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import trio

from broker.coordinator.shard import Shard, ShardState
from broker.timing_wheel import TimingWheel
from broker.transactions.machine import EndedTransaction, TransactionMachine
from broker.transactions.transaction import TopicPartition, by_topic
from kraft.metadata.delta import MetadataDelta
from kraft.metadata.image import NO_LEADER, MetadataImage
from protocol.errors import ErrorCode, error_code
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from runtime.background import Background
from runtime.channel import ChannelError
from runtime.world import World

log = logging.getLogger(__name__)

FIRST_RETRY_MS = 20
LAST_RETRY_MS = 1_000

PARTITIONS_PER_REQUEST = 2_000

_DONE = frozenset(
    {
        ErrorCode.NONE,
        # A producer that could not write there has left nothing that a marker could end.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        # The partition has had this marker (its answer was lost) or knows a later epoch. Waiting for another answer
        # would keep the transaction from its end for ever (KAFKA-19999).
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
        # A newer coordinator was here. Then this one is about to hear that it is none any more, which ends its trying.
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""What passes by itself. Anything else is tried again as well, but somebody should know."""


class MarkerChannel(Protocol):
    """What is used of `runtime.channel.Channel`."""

    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        """Raises ChannelError."""

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Ending:
    """One transaction on its way to its end."""

    transaction: EndedTransaction
    shard: Shard[TransactionMachine]
    left: set[TopicPartition]
    """Without their marker yet."""
    attempts: int = 0

    @property
    def given_up(self) -> bool:
        """Somebody else coordinates it now, and writes the markers."""
        return self.shard.state is not ShardState.ACTIVE


_Part = tuple[_Ending, list[TopicPartition]]


@dataclass(slots=True, eq=False)
class _Destination:
    """One broker, and what it is to be told."""

    broker_id: int
    waiting: list[_Part] = field(default_factory=list)
    running: bool = False
    channel: MarkerChannel | None = None
    asking: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around the request that is under way."""

    def hang_up(self) -> None:
        """A request that is under way is given up; the next goes over a new connection, for it may be at another
        address."""
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
        """`channel_to` makes a channel to a broker at its present address, None if it has none."""
        self._world = world
        self._background = background
        self._wheel = wheel
        self._image = image
        self._channel_to = channel_to
        self._timeout_ms = timeout_ms
        self._destinations: dict[int, _Destination] = {}
        self.waiting_for_leaders = 0
        """Parts of transactions that are tried again later."""

    @property
    def waiting(self) -> dict[int, int]:
        """By broker: how many transactions wait for a request that tells it."""
        return {broker_id: len(each.waiting) for broker_id, each in self._destinations.items()}

    def write(self, transaction: EndedTransaction, shard: Shard[TransactionMachine]) -> None:
        """See to it that all partitions of `transaction` get their marker, and then that `shard` completes it."""
        self._world.fault_point("transactions.prepared")
        self._route(_Ending(transaction, shard, set(transaction.partitions)), transaction.partitions)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Whoever may never answer is not waited for; others may lead by now what it led."""
        for broker_id in delta.interrupted_brokers:
            destination = self._destinations.get(broker_id)
            if destination is not None:
                destination.hang_up()
                waiting, destination.waiting = destination.waiting, []
                for ending, partitions in waiting:
                    self._route(ending, partitions)

    # -- one transaction

    def _route(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        """Give each leader its part of `partitions`."""
        if ending.given_up:
            return
        topics = self._image().topics
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic, index in partitions:
            placed = topics.partition(topic, index)
            if placed is None:
                # Deleted. It was there when it was added, and no image here is older than that: a coordinator takes
                # over by a later record of the metadata than any its predecessor acted on.
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
        wait_ms = min(FIRST_RETRY_MS << min(ending.attempts, 10), LAST_RETRY_MS)
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
        """Tell one broker all that waits for it."""
        try:
            while destination.waiting:
                parts = _take(destination)
                if parts:
                    self._answered(parts, await self._ask(destination, parts))
        finally:
            destination.running = False

    async def _ask(self, destination: _Destination, parts: list[_Part]) -> WriteTxnMarkersResponse | None:
        """None if there was no answer: the markers may be written or not."""
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
            producer_id = ending.transaction.producer.producer_id
            again = []
            for topic, index in partitions:
                code = codes.get((producer_id, topic, index))
                if code in _DONE:
                    ending.left.discard((topic, index))
                    continue
                if code is not None and code not in _USUAL:
                    transactional_id = ending.transaction.transactional_id
                    log.warning("%s-%d takes no marker of %r: %s", topic, index, transactional_id, code.name)
                again.append((topic, index))
            if again:
                self._later(ending, again)
            self._complete_if_done(ending)


class ShardMarkers:
    """The `Markers` of one shard's machine."""

    def __init__(self, writer: MarkerWriter, shard: Callable[[], Shard[TransactionMachine] | None]) -> None:
        """`shard` gives None once it is given up."""
        self._writer = writer
        self._shard = shard

    def write(self, ended: EndedTransaction) -> None:
        shard = self._shard()
        if shard is not None:
            self._writer.write(ended, shard)


def _take(destination: _Destination) -> list[_Part]:
    """What goes into the next request. One marker for each producer, because answers are told apart by it."""
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
