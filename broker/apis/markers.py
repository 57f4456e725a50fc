"""WriteTxnMarkers (27): the coordinator of a transaction tells its partitions how it ended; administrators end
transactions so that nobody else will (KIP-664).

Each partition has its own error and never fails the others. The answer leaves when the markers are replicated. In
partitions of `__consumer_offsets` they go through the group coordinator, whose offsets they settle. What may not be
written any more, `storage.producers` says; a marker without a transaction is written all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordinator.outcome import ProducerStamp, Reply
from broker.internal_topics import GROUP_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batch import read_header
from protocol.records.control import EndTxn, build_end_txn_batch
from runtime.dispatch import Call
from runtime.meter import Meter
from runtime.server import Steps
from storage.producers import Warrant

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.services import BrokerServices

Done = Callable[[ErrorCode], None]

ALL_IN_SYNC = -1

MARKER_ITEMS = 8
"""Items of work (see `Meter`) that a marker takes."""

_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


def write_txn_markers(broker: BrokerServices, call: Call) -> Steps:
    yield from write_markers(broker, call.message, call.answer)


def write_markers(
    broker: BrokerServices, request: WriteTxnMarkersRequest, answer: Callable[[WriteTxnMarkersResponse], None]
) -> Steps:
    """`answer` is called once, now or later."""
    yield from _Markers(broker, request, answer).start()


class _Markers:
    """One request until its answer."""

    __slots__ = ("_answer", "_broker", "_request", "_results", "_topics", "_waiting")

    def __init__(
        self, broker: BrokerServices, request: WriteTxnMarkersRequest, answer: Callable[[WriteTxnMarkersResponse], None]
    ) -> None:
        self._broker = broker
        self._request = request
        self._answer = answer
        self._results: dict[int, WritableTxnMarkerResult] = {}
        """By producer id."""
        self._topics: dict[tuple[int, str], WritableTxnMarkerTopicResult] = {}
        self._waiting = 0
        """Markers whose end is not known, and one for `start` itself."""

    def start(self) -> Steps:
        self._waiting = 1
        meter = Meter()
        for marker in self._request.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    self._waiting += 1
                    self._write(marker, topic.name, index, self._place(marker.producer_id, topic.name, index))
                    if meter.step_ends(MARKER_ITEMS):
                        yield None
                if meter.step_ends():
                    yield None
            if meter.step_ends():
                yield None
        self._one_done()

    def _place(self, producer_id: int, topic: str, index: int) -> Done:
        """Room in the response for one partition; to be called once with what became of its marker."""
        result = self._results.get(producer_id)
        if result is None:
            result = self._results[producer_id] = WritableTxnMarkerResult(producer_id=producer_id)
        answers = self._topics.get((producer_id, topic))
        if answers is None:
            answers = self._topics[producer_id, topic] = WritableTxnMarkerTopicResult(name=topic)
            result.topics.append(answers)
        answer = WritableTxnMarkerPartitionResult(partition_index=index)
        answers.partitions.append(answer)

        def done(error: ErrorCode) -> None:
            answer.error_code = error
            self._one_done()

        return done

    def _write(self, marker: WritableTxnMarker, topic: str, index: int, done: Done) -> None:
        partition = self._broker.partitions.find(topic, index)
        if partition is None or partition.is_offline:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic == GROUP_TOPIC:
            self._end_in_group(marker, index, done)
        else:
            try:
                self._append(marker, partition, done)
            except KafkaError as error:
                done(error.code)

    def _append(self, marker: WritableTxnMarker, partition: Partition, done: Done) -> None:
        end = EndTxn(marker.transaction_result, marker.coordinator_epoch)
        now_ms = self._broker.world.wall_clock.now_ms()
        buffer = bytearray(build_end_txn_batch(end, marker.producer_id, marker.producer_epoch, now_ms))
        warrant = Warrant(transaction_version=marker.transaction_version)
        result = partition.append(buffer, [(0, read_header(buffer, 0))], ALL_IN_SYNC, warrant)

        def replicated(error: ErrorCode | None) -> None:
            timer.cancel()
            done(error or ErrorCode.NONE)

        def expired() -> None:
            if ack is not None:
                ack.cancel()
            done(ErrorCode.REQUEST_TIMED_OUT)

        deadline_ms = self._broker.world.monotonic.now_ms() + self._broker.settings.request_timeout_ms
        timer = self._broker.wheel.add(deadline_ms, expired)
        ack = partition.when_replicated(result.last_offset + 1, replicated)

    def _end_in_group(self, marker: WritableTxnMarker, index: int, done: Done) -> None:
        def refuse(error: ErrorCode) -> None:
            # The sender knows partitions and no groups: it is to try again, as with any that has no leader.
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _NOT_READY else error)

        try:
            shard = self._broker.groups.shard_at(index)
        except KafkaError as error:
            refuse(error.code)
            return
        shard.end_transaction(
            ProducerStamp(marker.producer_id, marker.producer_epoch),
            EndTxn(marker.transaction_result, marker.coordinator_epoch),
            Reply(answer=done, refuse=refuse),
            ErrorCode.NONE,
            transaction_version=marker.transaction_version,
        )

    def _one_done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._answer(WriteTxnMarkersResponse(markers=list(self._results.values())))
