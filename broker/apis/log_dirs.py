"""DescribeLogDirs (35): the size of each replica in each log directory, and of each replica that moves (KIP-113)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.broker.apis.partition_lookup import LocalPartitions
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps
from barnabas.runtime.world import Disk
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_directory import LogDirectory

UNKNOWN_LAG = -1


@dataclass(frozen=True, slots=True)
class LogDirPorts:
    directories: LogDirectories
    partitions: LocalPartitions
    lag: Callable[[Partition], int | None]
    """Records by which a partition is behind its leader; None if it is not followed."""
    disk: Disk
    cordoned: Callable[[], list[bytes]]
    """Ids of cordoned directories (KIP-1066)."""


def describe_log_dirs(ports: LogDirPorts, call: Call) -> Steps:
    request: DescribeLogDirsRequest = call.message
    if not call.may_on_cluster(AclOperation.DESCRIBE):
        call.answer(DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    meter = Meter(call)
    asked = None
    if request.topics is not None:
        asked = set()
        for topic in request.topics:
            for index in topic.partitions:
                asked.add((topic.topic, index))
                if meter.step_ends():
                    yield None
            if meter.step_ends():
                yield None
    results = []
    for directory in ports.directories.with_replicas:
        result = DescribeLogDirsResult(log_dir=directory.path)
        results.append(result)
        yield from _describe(ports, directory, asked, result, meter)
    call.answer(DescribeLogDirsResponse(results=results))


def _describe(
    ports: LogDirPorts,
    directory: LogDirectory,
    asked: set[tuple[str, int]] | None,
    result: DescribeLogDirsResult,
    meter: Meter,
) -> Steps:
    if directory.failure is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return
    result.is_cordoned = directory.directory_id in ports.cordoned()
    topics: dict[str, DescribeLogDirsTopic] = {}
    directories = ports.directories
    for logs, is_future in ((directories.logs, False), (directories.futures.logs, True)):
        for (name, index), log in list(logs.items()):
            if meter.step_ends():
                yield None
            key = (name, index)
            place = directories.futures.places.get(key) if is_future else directories.directory_of(*key)
            if place is not directory or (asked is not None and (name, index) not in asked):
                continue
            topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=log.size_bytes,
                    offset_lag=_lag(ports, log, is_future=is_future),
                    is_future_key=is_future,
                )
            )
            meter.answer_grows()
    result.topics = list(topics.values())
    try:
        result.total_bytes, result.usable_bytes = ports.disk.space_bytes(directory.path)
    except OSError:
        # A failed disk shows at the next write; here only the size is unknown.
        result.total_bytes = result.usable_bytes = -1


def _lag(ports: LogDirPorts, log: PartitionLog, *, is_future: bool) -> int:
    """Records by which a log is behind: a future one behind the log that it will replace, another behind its leader."""
    partition = ports.partitions.find(log.topic, log.partition)
    if is_future:
        return UNKNOWN_LAG if partition is None else partition.log.log_end_offset - log.log_end_offset
    return 0 if partition is None else ports.lag(partition) or 0
