"""DeleteRecords (21): advances the log start offset, and answers once every live replica has done so (KIP-107)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.fetch_session import PartitionKey
from barnabas.broker.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.purgatory import DelayedOperation, Purgatory
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps
from barnabas.runtime.world import Clock


@dataclass(frozen=True, slots=True)
class DeleteRecordsPorts:
    lookup: PartitionLookup
    deletions: Purgatory[PartitionKey]
    """DeleteRecords requests that wait for followers."""
    monotonic: Clock


def delete_records(ports: DeleteRecordsPorts, call: Call) -> Steps:
    request: DeleteRecordsRequest = call.message
    response = DeleteRecordsResponse()
    deletion = _Deletion(call, response)
    meter = Meter(call)
    may_delete = may_on_topics(call, AclOperation.DELETE)
    # A partition named twice is answered once, for the last offset named.
    for name, offsets in wanted_offsets(request).items():
        results = DeleteRecordsTopicResult(name=name)
        response.topics.append(results)
        is_allowed = may_delete(name)
        for index, offset in offsets.items():
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
            results.partitions.append(result)
            try:
                if not is_allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if name in INTERNAL_TOPICS:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "internal topics keep their records")
                partition = ports.lookup.find_leader(name, index)
                result.low_watermark = partition.delete_records(offset)
            except KafkaError as error:
                result.error_code = error.code
            else:
                deletion.waits_for(partition, result)
            meter.answer_grows()
            if meter.step_ends(DELETION_ITEMS):
                yield None
        if meter.step_ends():
            yield None
    deadline_ms = ports.monotonic.now_ms() + max(0, request.timeout_ms)
    keys = deletion.keys()
    if not keys:
        deletion.force_complete()
    else:
        ports.deletions.try_complete_else_watch(deletion, keys, deadline_ms)


DELETION_ITEMS = 8
"""Items of work (see `Meter`) that the records of one partition take."""


def wanted_offsets(request: DeleteRecordsRequest) -> dict[str, dict[int, int]]:
    """Offset by topic and partition."""
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update({it.partition_index: it.offset for it in topic.partitions})
    return wanted


class _Deletion(DelayedOperation):
    """Waits until the low watermark of each partition has reached its log start offset."""

    __slots__ = ("_call", "_response", "_touched", "_waiting")

    def __init__(self, call: Call, response: DeleteRecordsResponse) -> None:
        super().__init__()
        self._call = call
        self._response = response
        self._waiting: dict[Hashable, tuple[Partition, DeleteRecordsPartitionResult, int]] = {}
        self._touched: dict[Hashable, None] | None = None
        """Keys that changed since the last `try_complete`; None before the first one."""

    def waits_for(self, partition: Partition, result: DeleteRecordsPartitionResult) -> None:
        key = (partition.topic_id, partition.index)
        self._waiting[key] = (partition, result, partition.log.log_start_offset)

    def keys(self) -> list[PartitionKey]:
        return [(partition.topic_id, partition.index) for partition, _, _ in self._waiting.values()]

    def touched(self, key: Hashable) -> None:
        if self._touched is not None:
            self._touched[key] = None

    def try_complete(self) -> bool:
        touched, self._touched = self._touched, {}
        for key in self.keys() if touched is None else touched:
            if key not in self._waiting:
                continue
            partition, result, wanted_offset = self._waiting[key]
            error = partition.replica.leader_error()
            if error is not None:
                result.error_code = error
                result.low_watermark = -1
                del self._waiting[key]
                continue
            result.low_watermark = partition.low_watermark
            if result.low_watermark >= wanted_offset:
                del self._waiting[key]
        return not self._waiting and self.force_complete()

    def failed(self, error: Exception) -> None:
        self._call.failed(error)

    def on_complete(self) -> None:
        for _, result, _ in self._waiting.values():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            result.low_watermark = -1
        self._call.answer(self._response)
