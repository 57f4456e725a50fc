"""ListOffsets (2) and OffsetForLeaderEpoch (23): offsets by timestamp, of a log's ends, and by leader epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.remote_fetch import RemoteReadPorts
from barnabas.broker.apis.remote_offsets import RemoteLookup, search_remotely
from barnabas.broker.apis.rights import May, may_on_topics
from barnabas.broker.record_times import encode_times
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.protocol.offset_times import TIMES_AT_ONCE, TIMES_TAG
from barnabas.protocol.records.batch import NO_TIMESTAMP
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import STEP_ITEMS, Meter
from barnabas.runtime.server import Steps
from barnabas.storage.log import PartitionLog
from barnabas.storage.segment_list import TimestampedOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""First version of ListOffsets that allows each negative timestamp."""

FIRST_VERSION_WITH_EPOCH = 4
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5

CONSUMER = -1
DEBUGGER = -2
"""Replica id of a request that is answered by any replica, leader or not."""
READ_COMMITTED = 1

Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch), -1 where there is none."""

NOT_FOUND: Found = (-1, -1, -1)
_NEWEST = 1 << 63


@dataclass(frozen=True, slots=True)
class ListOffsetsPorts:
    lookup: PartitionLookup
    remote: RemoteReadPorts | None = None
    """None: there is no tiered storage."""


def list_offsets(ports: ListOffsetsPorts, call: Call) -> Steps:
    lookup = ports.lookup
    request: ListOffsetsRequest = call.message
    response = ListOffsetsResponse()
    meter = Meter(call)
    times_asked = 0
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            (twice if key in seen else seen).add(key)
            if meter.step_ends():
                yield None
        if meter.step_ends():
            yield None
    may_describe = may_on_topics(call, AclOperation.DESCRIBE)
    refused: list[ListOffsetsTopicResponse] = []
    """Topics that the client may not describe come behind the others."""
    remote_lookups: list[RemoteLookup] = []
    for topic in request.topics:
        answers = ListOffsetsTopicResponse(name=topic.name)
        is_allowed = may_describe(topic.name)
        (response.topics if is_allowed else refused).append(answers)
        meter.answer_grows(1, len(topic.name))
        for asked in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            answers.partitions.append(answer)
            meter.answer_grows()
            try:
                if not is_allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if (topic.name, asked.partition_index) in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                find = lookup.find_replica if request.replica_id == DEBUGGER else lookup.find_leader
                partition = find(topic.name, asked.partition_index, asked.current_leader_epoch)
                if call.version == 0:
                    end_offset = _end_for(partition, request)
                    answer.old_style_offsets = old_style_offsets(partition.log, asked, end_offset)
                elif ports.remote is not None and asked.timestamp >= 0 and _has_remote_part(partition.log):
                    remote_lookups.append(_remote_lookup(partition, request, asked, answer))
                else:
                    _fill(answer, _look_up(partition, request, asked, call), call.version)
                if asked.unknown_tagged_fields and TIMES_TAG in asked.unknown_tagged_fields:
                    offsets = asked.unknown_tagged_fields[TIMES_TAG]
                    times_asked += len(offsets) // 8
                    if asked.timestamp == LATEST and times_asked <= TIMES_AT_ONCE:
                        times = yield from encode_times(partition.log, offsets)
                        answer.unknown_tagged_fields = {TIMES_TAG: times}
            except KafkaError as error:
                answer.error_code = _known_to(call.version, error.code)
            if meter.step_ends(STEP_ITEMS if asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP else 4):
                yield None
        if meter.step_ends():
            yield None
    response.topics += refused
    if ports.remote is None or not remote_lookups:
        call.answer(response)
        return
    settle, finish = partial(_settle, call.version), call.guarded(partial(call.answer, response))
    search_remotely(ports.remote, remote_lookups, max(request.timeout_ms, 0), settle, finish)


def _fill(answer: ListOffsetsPartitionResponse, found: Found, version: int) -> None:
    answer.timestamp, answer.offset, leader_epoch = found
    if version >= FIRST_VERSION_WITH_EPOCH:
        answer.leader_epoch = leader_epoch


def _has_remote_part(log: PartitionLog) -> bool:
    return log.log_start_offset < log.local_log_start_offset


def _remote_lookup(
    partition: Partition,
    request: ListOffsetsRequest,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> RemoteLookup:
    is_sure = request.replica_id != CONSUMER or partition.replica.high_watermark_is_current
    return RemoteLookup(partition, asked.timestamp, answer, _end_for(partition, request), is_sure)


def _settle(version: int, lookup: RemoteLookup, found: TimestampedOffset | None, error: ErrorCode) -> None:
    if error is ErrorCode.NONE and (found is None or found.offset >= lookup.end_offset) and not lookup.is_sure:
        error = ErrorCode.OFFSET_NOT_AVAILABLE
    if error is not ErrorCode.NONE:
        lookup.answer.error_code = _known_to(version, error)
    elif found is not None and found.offset < lookup.end_offset:
        _fill(lookup.answer, found, version)


def _known_to(version: int, code: ErrorCode) -> ErrorCode:
    """Maps OFFSET_NOT_AVAILABLE to LEADER_NOT_AVAILABLE, which clients of early versions retry (KIP-207)."""
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


def _end_for(partition: Partition, request: ListOffsetsRequest) -> int:
    """The offset up to which the sender may read."""
    log = partition.log
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark


def old_style_offsets(log: PartitionLog, asked: ListOffsetsPartition, end_offset: int) -> list[int]:
    """The answer of version 0: offsets at which segments begin that were last written before the time, and the end of
    the log; the latest first.
    """
    ends = [(max(each.base_offset, log.log_start_offset), each.largest_timestamp()) for each in log.segments]
    if _has_remote_part(log):
        ends.insert(0, (log.log_start_offset, NO_TIMESTAMP))
    if log.active_segment.size_bytes:
        ends.append((end_offset, _NEWEST))
    place = len(ends) - 1
    if asked.timestamp == EARLIEST:
        place = 0
    elif asked.timestamp != LATEST:
        while place >= 0 and ends[place][1] > asked.timestamp:
            place -= 1
    offsets = [min(offset, end_offset) for offset, _ in reversed(ends[: place + 1])]
    return list(dict.fromkeys(offsets))[: max(asked.max_num_offsets, 0)]


def _look_up(
    partition: Partition, request: ListOffsetsRequest, asked: ListOffsetsPartition, call: Call
) -> Found:
    log, timestamp = partition.log, asked.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or call.version < FIRST_VERSION.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    from_consumer = request.replica_id == CONSUMER
    end_offset = _end_for(partition, request)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset if timestamp == EARLIEST else log.local_log_start_offset
        return (-1, start, log.epochs.epoch_for_offset(start))
    if timestamp == LATEST_TIERED:
        copied = log.highest_copied_offset if log.config.is_tiered else -1
        return (-1, copied, log.epochs.epoch_for_offset(copied))
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return _earliest_pending_upload(log)
    # A new leader's high watermark may still be below what the old leader served; offsets below it are certain
    # (KIP-207).
    is_sure = not from_consumer or partition.replica.high_watermark_is_current
    if timestamp == LATEST and from_consumer and partition.is_forgotten:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if timestamp == LATEST and is_sure:
        return (-1, end_offset, partition.leader_epoch)
    found = None
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_for_max_timestamp()
    elif timestamp >= 0:
        found = log.offset_for_timestamp(timestamp)
    if found is not None and found.offset < end_offset:
        return found
    if not is_sure:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return NOT_FOUND


def _earliest_pending_upload(log: PartitionLog) -> Found:
    if not log.config.is_tiered:
        return NOT_FOUND
    offset = max(log.highest_copied_offset + 1, log.log_start_offset)
    if log.highest_copied_offset < 0 and _has_remote_part(log):
        # This leader has not learned yet how far its predecessors have copied.
        return NOT_FOUND
    return (-1, offset, log.epochs.epoch_for_offset(offset))


def offset_for_leader_epoch(lookup: PartitionLookup, call: Call) -> Steps:
    request: OffsetForLeaderEpochRequest = call.message
    response = OffsetForLeaderEpochResponse()
    meter = Meter(call)
    may_ask = _may_ask_for_epochs(call)
    refused: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        results = OffsetForLeaderTopicResult(topic=topic.topic)
        is_allowed = may_ask(topic.topic)
        (response.topics if is_allowed else refused).append(results)
        for asked in topic.partitions:
            result = EpochEndOffset(partition=asked.partition)
            results.partitions.append(result)
            try:
                if not is_allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = lookup.find_leader(topic.topic, asked.partition, asked.current_leader_epoch)
                result.leader_epoch, result.end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
            except KafkaError as error:
                result.error_code = error.code
            meter.answer_grows()
            if meter.step_ends():
                yield None
        if meter.step_ends():
            yield None
    response.topics += refused
    call.answer(response)


def _may_ask_for_epochs(call: Call) -> May:
    """Brokers ask for every topic, consumers for those that they may describe (KIP-320)."""
    if call.may_on_cluster(AclOperation.CLUSTER_ACTION, audited=False):
        return lambda _: True
    return may_on_topics(call, AclOperation.DESCRIBE)
