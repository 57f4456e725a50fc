"""Log directories of brokers: described, and replicas moved between them (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.client.admin.calls import Part, Question
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import CertainBrokers, all_brokers
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_replica_log_dirs as moving
from barnabas.protocol.messages import describe_log_dirs as weighing


class TopicPartitionReplica(NamedTuple):
    """One replica of a partition."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in a directory; `is_future`: it is being moved there from another directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory. Sizes are None if the broker does not report them."""

    error: KafkaError | None
    """KafkaStorageException if it has failed."""
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool


@dataclass(frozen=True, slots=True)
class ReplicaLogDirInfo:
    """Directory of a replica, and the one that it is being moved to. Lags are in records; -1 without one."""

    current_replica_log_dir: str | None
    current_replica_offset_lag: int
    future_replica_log_dir: str | None
    future_replica_offset_lag: int


class LogDirs(Part):
    """Methods for log directories."""

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None
    ) -> Results[int, dict[str, LogDirDescription]]:
        """Log directories of brokers (all live ones, unless some are given), by path, with their replicas."""

        def read(
            response: weighing.DescribeLogDirsResponse, keys: list[int]
        ) -> Iterator[tuple[int, dict[str, LogDirDescription] | KafkaError]]:
            for key in keys:
                yield (
                    key,
                    refusal(response.error_code, None, f"broker {key}")
                    or {it.log_dir: _directory(it) for it in response.results},
                )

        def ask(_: list[int], __: int) -> weighing.DescribeLogDirsRequest:
            return weighing.DescribeLogDirsRequest(topics=None)

        calls = self._calls.together()
        wanted = await all_brokers(calls) if brokers is None else list(brokers)
        return await calls.ask(
            wanted, CertainBrokers[int](calls, lambda node_id: node_id), Question("broker", ask, read)
        )

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica]
    ) -> Results[TopicPartitionReplica, ReplicaLogDirInfo]:
        """Directories of replicas; without any if the broker has no such replica."""
        wanted = [TopicPartitionReplica(*replica) for replica in replicas]
        described = await self.describe_log_dirs(dict.fromkeys(replica.broker_id for replica in wanted))
        return Results(
            {
                replica: described.error(replica.broker_id) or _info(replica, described[replica.broker_id])
                for replica in wanted
            }
        )

    async def alter_replica_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str], *, raise_errors: bool = True
    ) -> Results[TopicPartitionReplica, None]:
        """Start moving replicas to other directories of their brokers, given by path. A replica that does not exist yet
        will be created there, which raises ReplicaNotAvailableException. LogDirNotFoundException.
        """
        wanted = {TopicPartitionReplica(*replica): path for replica, path in moves.items()}

        def ask(some: list[TopicPartitionReplica], _: int) -> moving.AlterReplicaLogDirsRequest:
            by_path: dict[str, list[TopicPartition]] = {}
            for replica in some:
                by_path.setdefault(wanted[replica], []).append(TopicPartition(replica.topic, replica.partition))
            return moving.AlterReplicaLogDirsRequest(
                dirs=[
                    moving.AlterReplicaLogDir(
                        path=path,
                        topics=[
                            moving.AlterReplicaLogDirTopic(name=name, partitions=indexes)
                            for name, indexes in by_topic(partitions).items()
                        ],
                    )
                    for path, partitions in by_path.items()
                ]
            )

        def read(
            response: moving.AlterReplicaLogDirsResponse, some: list[TopicPartitionReplica]
        ) -> Iterator[tuple[TopicPartitionReplica, KafkaError | None]]:
            # All replicas of a request are on one broker.
            broker_id = some[0].broker_id
            for topic in response.results:
                for it in topic.partitions:
                    key = TopicPartitionReplica(topic.topic_name, it.partition_index, broker_id)
                    yield key, refusal(it.error_code, None, str(key))

        question = Question[TopicPartitionReplica, None]("replica", ask, read, final=NOT_THERE_YET)
        there = CertainBrokers[TopicPartitionReplica](self._calls, lambda replica: replica.broker_id)
        return changed(await self._calls.ask(wanted, there, question), raise_errors)


NOT_THERE_YET = frozenset({ErrorCode.REPLICA_NOT_AVAILABLE})


def _info(replica: TopicPartitionReplica, directories: Mapping[str, LogDirDescription]) -> ReplicaLogDirInfo:
    here: dict[bool, tuple[str, int]] = {}
    for path, directory in directories.items():
        found = directory.replicas.get(TopicPartition(replica.topic, replica.partition))
        if found is not None:
            here[found.is_future] = path, found.offset_lag
    nowhere = None, -1
    return ReplicaLogDirInfo(*here.get(False, nowhere), *here.get(True, nowhere))


def _directory(it: weighing.DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        refusal(it.error_code, None, it.log_dir),
        {
            TopicPartition(topic.name, part.partition_index): ReplicaInfo(
                part.partition_size, part.offset_lag, part.is_future_key
            )
            for topic in it.topics
            for part in topic.partitions
        },
        it.total_bytes if it.total_bytes >= 0 else None,
        it.usable_bytes if it.usable_bytes >= 0 else None,
        it.is_cordoned,
    )
