"""AlterReplicaLogDirs (34): moves replicas of this broker to other log directories (KIP-113)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from barnabas.broker.apis.partition_lookup import LocalPartitions
from barnabas.broker.log_store import LogStore
from barnabas.broker.replication.log_dir_moves import LogDirMoves
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps
from barnabas.runtime.world import Clock
from barnabas.storage.future_logs import LogKey
from barnabas.storage.log_dir_work import NewLog
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.names import FUTURE_DIRECTORY_SUFFIX, LONGEST_NAME, directory_name

MARK_LENGTH = len(".") + 32
"""The uuid in the name of a future log."""
MOST_PREFERRED = 10_000
"""Directories remembered for replicas that this broker does not have yet."""


@dataclass(frozen=True, slots=True)
class AlterLogDirsPorts:
    store: LogStore
    partitions: LocalPartitions
    moves: LogDirMoves
    cordoned: Callable[[], list[bytes]]
    """Ids of cordoned directories (KIP-1066)."""
    wall_clock: Clock


def alter_replica_log_dirs(ports: AlterLogDirsPorts, call: Call) -> Steps:
    request: AlterReplicaLogDirsRequest = call.message
    meter = Meter(call)
    wanted: dict[LogKey, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted[topic.name, index] = directory.path
                if meter.step_ends():
                    yield None
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    is_allowed = call.may_on_cluster(AclOperation.ALTER)
    for (name, index), path in wanted.items():
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if is_allowed:
            code = yield from _alter(ports, (name, index), path)
        result = results.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
        meter.answer_grows()
        if meter.step_ends():
            yield None
    call.answer(AlterReplicaLogDirsResponse(results=list(results.values())))


def _alter(ports: AlterLogDirsPorts, key: LogKey, path: str) -> Generator[Any, Any, ErrorCode]:
    directory = ports.store.directory_at(path)
    if len(directory_name(*key).encode()) + MARK_LENGTH + len(FUTURE_DIRECTORY_SUFFIX) > LONGEST_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if directory.failure is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if directory.directory_id in ports.cordoned():
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    partition = ports.partitions.find(*key)
    if partition is None:
        return _prefer(ports, key, directory)
    if partition.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    target = ports.moves.target_of(key)
    if target is not None and target is not directory:
        ports.moves.cancel(key)
    if target is directory or ports.store.directories.directory_of(*key) is directory:
        return ErrorCode.NONE
    return (yield from _begin(ports, partition, directory))


def _prefer(ports: AlterLogDirsPorts, key: LogKey, directory: LogDirectory) -> ErrorCode:
    """This broker does not have the replica: if it gets it, then in this directory."""
    error = ports.partitions.missing_error(*key)
    if error is ErrorCode.KAFKA_STORAGE_ERROR or directory.directory_id is None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    preferred = ports.store.preferred
    preferred.pop(key, None)
    preferred[key] = directory.directory_id
    if len(preferred) > MOST_PREFERRED:
        del preferred[next(iter(preferred))]
    return ErrorCode.REPLICA_NOT_AVAILABLE if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else error


def _begin(ports: AlterLogDirsPorts, partition: Partition, directory: LogDirectory) -> Generator[Any, Any, ErrorCode]:
    """Create the future log, in the worker."""
    directories, key = ports.store.directories, (partition.topic, partition.index)
    if any(each.failure is not None for each in directories.with_replicas):
        # The failed directory may hold another future log of this partition.
        return ErrorCode.KAFKA_STORAGE_ERROR
    new = NewLog(partition.topic, partition.index, partition.topic_id, partition.log.config)
    work = directories.future_work(new, directory, ports.wall_clock.now_ms())
    result = yield work
    made = directories.adopt_future(work, result)
    if made is None:
        # Another request may have been faster.
        return ErrorCode.NONE if ports.moves.target_of(key) is directory else ErrorCode.KAFKA_STORAGE_ERROR
    if ports.partitions.find(*key) is not partition or ports.store.is_closing:
        directories.drop_future(key, ports.wall_clock.now_ms())
        return ErrorCode.REPLICA_NOT_AVAILABLE
    ports.moves.look()
    return ErrorCode.NONE
