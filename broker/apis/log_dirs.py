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
from runtime.meter import Meter
from runtime.server import Steps
from storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from broker.services import BrokerServices


def describe_log_dirs(broker: BrokerServices, call: Call) -> Steps:
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
    for directory in broker.store.directories.with_replicas:
        result = DescribeLogDirsResult(log_dir=directory.path)
        results.append(result)
        yield from _describe(broker, directory, asked, result, meter)
    call.answer(DescribeLogDirsResponse(results=results))


def _describe(
    broker: BrokerServices,
    directory: LogDirectory,
    asked: set[tuple[str, int]] | None,
    result: DescribeLogDirsResult,
    meter: Meter,
) -> Steps:
    if directory.failure is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, index), log in sorted(broker.store.directories.logs.items()):
        if meter.step_ends():
            yield None
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
        meter.answer_grows()
    result.topics = list(topics.values())
    try:
        result.total_bytes, result.usable_bytes = broker.world.disk.space_bytes(directory.path)
    except OSError:
        # The directory answers for itself the next time it is written to; its size is not known now.
        result.total_bytes = result.usable_bytes = -1
