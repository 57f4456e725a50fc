"""DescribeLogDirs (35): how much lies where on this broker (KIP-113)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from runtime.dispatch import Call
from storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from broker.services import BrokerServices


def describe_log_dirs(broker: BrokerServices, call: Call) -> None:
    request: DescribeLogDirsRequest = call.message
    asked = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = [_describe(broker, directory, asked) for directory in broker.store.directories.with_replicas]
    call.answer(DescribeLogDirsResponse(results=results))


def _describe(
    broker: BrokerServices, directory: LogDirectory, asked: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=directory.path)
    if directory.failure is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, index), log in sorted(broker.store.directories.logs.items()):
        if broker.store.directories.directory_of(name, index) is not directory:
            continue
        if asked is not None and (name, index) not in asked:
            continue
        if name not in topics:
            topics[name] = DescribeLogDirsTopic(name=name)
        partition = broker.partitions.find(name, index)
        lag = 0 if partition is None else broker.fetchers.lag(partition) or 0
        topics[name].partitions.append(
            DescribeLogDirsPartition(partition_index=index, partition_size=log.size_bytes, offset_lag=lag)
        )
    result.topics = list(topics.values())
    try:
        result.total_bytes, result.usable_bytes = broker.world.disk.space_bytes(directory.path)
    except OSError:
        # The directory answers for itself the next time it is written to; its size is not known now.
        result.total_bytes = result.usable_bytes = -1
    return result
