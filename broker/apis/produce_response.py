"""`ProduceAnswers`: the response to one Produce request while it is being made, with an error for each partition."""

from __future__ import annotations

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.records.record_check import MOST_RECORD_ERRORS
from barnabas.runtime.dispatch import Call
from barnabas.storage.log_results import AppendResult

NO_RESPONSE = 0
"""acks of a request that gets no response."""
LEADER_HINTS_FROM_VERSION = 10
_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class ProduceAnswers:
    """One `PartitionProduceResponse` for each partition of the request, in its order."""

    __slots__ = ("_call", "_errors_left", "_has_errors", "_metadata", "_response")

    def __init__(self, call: Call, metadata: MetadataCache) -> None:
        self._call = call
        self._metadata = metadata
        self._response = ProduceResponse()
        self._has_errors = False
        self._errors_left = MOST_RECORD_ERRORS
        """Number of records that the response may still name."""

    def add_topic(self, name: str, topic_id: bytes) -> TopicProduceResponse:
        answers = TopicProduceResponse(name=name, topic_id=topic_id)
        self._response.responses.append(answers)
        return answers

    def appended(self, answer: PartitionProduceResponse, result: AppendResult, log_start_offset: int) -> None:
        answer.base_offset = result.first_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = log_start_offset

    def fail(
        self,
        answer: PartitionProduceResponse,
        error: ErrorCode,
        message: str | None = None,
        leader: tuple[int, int] | None = None,
    ) -> None:
        """`leader`: (id, epoch) of the known leader, for clients that can use it (KIP-951)."""
        self._has_errors = True
        answer.error_code = error
        answer.error_message = message
        answer.base_offset = -1
        answer.log_append_time_ms = -1
        answer.log_start_offset = -1
        if leader is not None and error in _LEADER_MOVED and self._call.version >= LEADER_HINTS_FROM_VERSION:
            leader_id, leader_epoch = leader
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            node = self._metadata.node(leader_id, self._call.request.listener_name)
            if node is not None and all(known.node_id != leader_id for known in self._response.node_endpoints):
                self._response.node_endpoints.append(
                    NodeEndpoint(node_id=leader_id, host=node.host, port=node.port, rack=node.rack)
                )

    def name_records(self, answer: PartitionProduceResponse, errors: list[tuple[int, str]]) -> None:
        """Name the records that caused a refusal; the client may send the rest of the batch again (KIP-467)."""
        named = errors[: self._errors_left]
        self._errors_left -= len(named)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=message) for place, message in named
        ]

    def send(self, acks: int) -> None:
        if acks != NO_RESPONSE:
            self._call.answer(self._response, has_errors=self._has_errors)
            return
        if not self._has_errors:
            self._call.answer_nothing()
            return
        refused = (
            answer.error_code
            for topic in self._response.responses
            for answer in topic.partition_responses
            if answer.error_code != ErrorCode.NONE
        )
        # No response could report the error; a closed connection makes the producer refresh its metadata.
        self._call.abort(f"produce with acks=0 failed with error {ErrorCode(next(refused)).name}")
