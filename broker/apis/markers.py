"""WriteTxnMarkers (27): writes COMMIT and ABORT markers for a transaction coordinator, or for an administrator who
aborts a hanging transaction (KIP-664).

Each partition has its own error and never fails the others. The response is sent when the markers are replicated.
Markers for partitions of `__consumer_offsets` go through the group coordinator, whose pending offsets they settle.
`storage.producers` decides which markers are fenced; a marker without an open transaction is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.broker.apis.partition_lookup import LocalPartitions
from barnabas.broker.coordinator.outcome import ProducerStamp, Reply
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica import ACKS_ALL
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps
from barnabas.runtime.world import Clock
from barnabas.storage.producers import Warrant

if TYPE_CHECKING:
    from barnabas.broker.groups.machine import GroupMachine

Done = Callable[[ErrorCode], None]

MARKER_ITEMS = 8
"""Items of work (see `Meter`) that a marker takes."""

_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True)
class MarkerPorts:
    partitions: LocalPartitions
    group_shard: Callable[[int], Shard[GroupMachine]]
    """The group coordinator's shard of a partition of `__consumer_offsets`. Raises KafkaError."""
    wheel: TimingWheel
    monotonic: Clock
    wall_clock: Clock
    settings: CurrentSettings


def write_txn_markers(ports: MarkerPorts, call: Call) -> Steps:
    yield from write_markers(ports, call.message, call.answer)


def write_markers(
    ports: MarkerPorts, request: WriteTxnMarkersRequest, answer: Callable[[WriteTxnMarkersResponse], None]
) -> Steps:
    """`answer` is called once, now or later."""
    yield from _Markers(ports, request, answer).start()


class _Markers:
    """One request until its response."""

    __slots__ = ("_answer", "_ports", "_request", "_results", "_topics", "_waiting")

    def __init__(
        self, ports: MarkerPorts, request: WriteTxnMarkersRequest, answer: Callable[[WriteTxnMarkersResponse], None]
    ) -> None:
        self._ports = ports
        self._request = request
        self._answer = answer
        self._results: dict[int, WritableTxnMarkerResult] = {}
        """By producer id."""
        self._topics: dict[tuple[int, str], WritableTxnMarkerTopicResult] = {}
        self._waiting = 0
        """Markers whose result is not known, plus one for `start` itself."""

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
        """Add a partition to the response; the result is to be called once, with the error code of its marker."""
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
        partition = self._ports.partitions.find(topic, index)
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
        ports = self._ports
        now_ms = ports.wall_clock.now_ms()
        buffer = bytearray(build_end_txn_batch(end, marker.producer_id, marker.producer_epoch, now_ms))
        warrant = Warrant(transaction_version=marker.transaction_version)
        result = partition.append(buffer, [(0, read_header(buffer, 0))], ACKS_ALL, warrant)

        def replicated(error: ErrorCode | None) -> None:
            timer.cancel()
            done(error or ErrorCode.NONE)

        def expired() -> None:
            if ack is not None:
                ack.cancel()
            done(ErrorCode.REQUEST_TIMED_OUT)

        deadline_ms = ports.monotonic.now_ms() + ports.settings().request_timeout_ms
        timer = ports.wheel.add(deadline_ms, expired)
        ack = partition.when_replicated(result.last_offset + 1, replicated)

    def _end_in_group(self, marker: WritableTxnMarker, index: int, done: Done) -> None:
        def refuse(error: ErrorCode) -> None:
            # The sender knows partitions, not groups: it retries, as with any partition that has no leader.
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _NOT_READY else error)

        try:
            shard = self._ports.group_shard(index)
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
