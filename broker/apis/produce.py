"""Produce (0): batches go to the end of the log as they came; the answer waits for the replicas.

Each partition has its own error and never fails the others. With acks=all the answer leaves when the high watermark
has passed the last batch, or when the client's timeout has.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.admission import admit
from broker.apis.lookup import known_leader
from broker.purgatory import WaitingAck
from broker.replication.partition import Partition
from broker.timing_wheel import TimerEntry
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices

log = logging.getLogger(__name__)

ALL_IN_SYNC = -1
NO_ANSWER = 0
TOPIC_IDS_FROM_VERSION = 13
LEADER_HINTS_FROM_VERSION = 10
_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def produce(broker: BrokerServices, call: Call) -> None:
    _Produce(broker, call).start()


class _Produce:
    """One request until its answer."""

    __slots__ = ("_acks", "_broker", "_call", "_pending", "_response", "_timer", "_waiting", "_wall_ms")

    def __init__(self, broker: BrokerServices, call: Call) -> None:
        request: ProduceRequest = call.message
        self._broker = broker
        self._call = call
        self._acks = request.acks
        self._response = ProduceResponse()
        self._waiting = 0
        """Partitions whose acknowledgement is outstanding, and one for `start` itself."""
        self._pending: list[tuple[WaitingAck[ErrorCode], PartitionProduceResponse]] = []
        self._timer: TimerEntry | None = None
        self._wall_ms = broker.world.wall_clock.now_ms()

    def start(self) -> None:
        request: ProduceRequest = self._call.message
        with_ids = self._call.version >= TOPIC_IDS_FROM_VERSION
        self._waiting = 1
        for topic in request.topic_data:
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self._response.responses.append(answers)
            key = topic.topic_id if with_ids else topic.name
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index, base_offset=-1)
                answers.partition_responses.append(answer)
                self._append(key, data, answer)
        if self._waiting > 1:
            deadline_ms = self._broker.world.monotonic.now_ms() + max(0, request.timeout_ms)
            self._timer = self._broker.wheel.add(deadline_ms, self._expired)
        self._one_done()

    def _append(self, key: bytes | str, data: PartitionProduceData, answer: PartitionProduceResponse) -> None:
        broker = self._broker
        partition = broker.partitions.find(key, data.index)
        if partition is None:
            missing = broker.partitions.missing_error(key, data.index)
            self._failed(answer, missing, None, known_leader(broker, key, data.index))
            return
        try:
            if self._acks not in (ALL_IN_SYNC, 1, NO_ANSWER):
                raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks}")
            error = partition.replica.append_error(self._acks)
            if error is not None:
                raise KafkaError(error)
            buffer, batches = admit(
                data.records,
                partition.log.config,
                partition.produce_limits,
                self._call.version,
                self._wall_ms,
            )
            if batches[0][1].is_transactional:
                self._refuse_transactional()
            result = partition.append(buffer, batches, self._acks)
        except KafkaError as refusal:
            self._failed(answer, refusal.code, refusal.message, partition.known_leader())
            return
        answer.base_offset = result.first_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = partition.log.log_start_offset
        if self._acks == ALL_IN_SYNC:
            self._wait_for_replicas(partition, result.last_offset + 1, answer)

    def _refuse_transactional(self) -> None:
        """Nobody could end a transaction that has no coordinator, and readers would wait at its start for ever."""
        if self._call.message.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the request names no transactional id")
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition is in no ongoing transaction")

    def _wait_for_replicas(
        self, partition: Partition, required_offset: int, answer: PartitionProduceResponse
    ) -> None:
        self._waiting += 1

        def acknowledged(error: ErrorCode | None) -> None:
            if error is not None:
                self._failed(answer, error, None, partition.known_leader())
            self._one_done()

        ack = partition.when_replicated(required_offset, acknowledged)
        if ack is not None:
            self._pending.append((ack, answer))

    def _failed(
        self,
        answer: PartitionProduceResponse,
        error: ErrorCode,
        message: str | None = None,
        leader: tuple[int, int] | None = None,
    ) -> None:
        """`leader`: (id, epoch) of who leads as far as is known."""
        answer.error_code = error
        answer.error_message = message
        answer.base_offset = -1
        answer.log_append_time_ms = -1
        answer.log_start_offset = -1
        if leader is not None and error in _LEADER_MOVED and self._call.version >= LEADER_HINTS_FROM_VERSION:
            leader_id, leader_epoch = leader
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            node = self._broker.metadata.node(leader_id, self._call.request.listener_name)
            if node is not None and all(known.node_id != leader_id for known in self._response.node_endpoints):
                self._response.node_endpoints.append(
                    NodeEndpoint(node_id=leader_id, host=node.host, port=node.port, rack=node.rack)
                )

    def _one_done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            if self._timer is not None:
                self._timer.cancel()
            self._answer()

    def _expired(self) -> None:
        """The replicas took too long: what is not acknowledged by now is answered as timed out."""
        for ack, answer in self._pending:
            if ack.callback is not None:
                ack.cancel()
                self._failed(answer, ErrorCode.REQUEST_TIMED_OUT)
        self._answer()

    def _answer(self) -> None:
        if self._acks != NO_ANSWER:
            self._call.answer(self._response)
            return
        refused = [
            answer.error_code
            for topic in self._response.responses
            for answer in topic.partition_responses
            if answer.error_code != ErrorCode.NONE
        ]
        if refused:
            # There is no answer that could say so; a closed connection makes the producer look for the leader.
            self._call.abort(f"produce with acks=0 failed with error {ErrorCode(refused[0]).name}")
        else:
            self._call.answer_nothing()
