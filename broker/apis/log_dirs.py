"""DescribeLogDirs (35): the size of each replica in each log directory (KIP-113)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.broker.apis.partition_lookup import LocalPartitions
from barnabas.broker.replication.partition import Partition
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
from barnabas.storage.log_directory import LogDirectory


@dataclass(frozen=True, slots=True)
class LogDirPorts:
    directories: LogDirectories
    partitions: LocalPartitions
    lag: Callable[[Partition], int | None]
    """Records by which a partition is behind its leader; None if it is not followed."""
    disk: Disk


def describe_log_dirs(ports: LogDirPorts, call: Call) -> Steps:
    request: DescribeLogDirsRequest = call.message
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
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, index), log in sorted(ports.directories.logs.items()):
        if meter.step_ends():
            yield None
        if ports.directories.directory_of(name, index) is not directory:
            continue
        if asked is not None and (name, index) not in asked:
            continue
        if name not in topics:
            topics[name] = DescribeLogDirsTopic(name=name)
        partition = ports.partitions.find(name, index)
        lag = 0 if partition is None else ports.lag(partition) or 0
        topics[name].partitions.append(
            DescribeLogDirsPartition(partition_index=index, partition_size=log.size_bytes, offset_lag=lag)
        )
        meter.answer_grows()
    result.topics = list(topics.values())
    try:
        result.total_bytes, result.usable_bytes = ports.disk.space_bytes(directory.path)
    except OSError:
        # A failed disk shows at the next write; here only the size is unknown.
        result.total_bytes = result.usable_bytes = -1
