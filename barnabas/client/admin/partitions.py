"""Partitions: offsets, deletion of records, elections, reassignments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from barnabas.client.admin.calls import Anywhere, Part, Question
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import Leaders, partitions_in
from barnabas.client.admin.topics import AS_AN_ANSWER
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.offsets import OffsetAndTimestamp
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_partition_reassignments as moving
from barnabas.protocol.messages import delete_records as deleting
from barnabas.protocol.messages import elect_leaders as electing
from barnabas.protocol.messages import list_offsets as looking
from barnabas.protocol.messages import list_partition_reassignments as listing

CONSUMER_ID = -1

IsolationLevel = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: Mapping[IsolationLevel, int] = {"read_uncommitted": 0, "read_committed": 1}


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """An offset to look up; see the class methods."""

    timestamp: int
    """Value in the protocol: milliseconds, or a negative number with a special meaning."""

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """Begin of the log."""
        return cls(-2)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """End of the log; for read_committed, the begin of the first open transaction."""
        return cls(-1)

    @classmethod
    def for_timestamp(cls, timestamp_ms: int) -> OffsetSpec:
        """First record that is not older."""
        return cls(timestamp_ms)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """Record with the highest timestamp (KIP-734)."""
        return cls(-3)

    @classmethod
    def earliest_local(cls) -> OffsetSpec:
        """First record on the broker's own disk, not only in tiered storage (KIP-405)."""
        return cls(-4)

    @classmethod
    def latest_tiered(cls) -> OffsetSpec:
        """Last record in tiered storage (KIP-1005)."""
        return cls(-5)

    @classmethod
    def earliest_pending_upload(cls) -> OffsetSpec:
        """First record that is not in tiered storage yet (KIP-1023)."""
        return cls(-6)


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """`low_watermark`: the first offset that still exists."""

    low_watermark: int


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment in progress: all present replicas, those being added and those being removed."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class Partitions(Part):
    """Methods for partitions."""

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Results[TopicPartition, OffsetAndTimestamp]:
        """The offset of each partition for an `OffsetSpec`, or for a timestamp given as a number; -1 if no record is
        that late. With read_committed the latest offset is that of the first open transaction. Leaders are called.
        UnknownTopicOrPartitionException after seconds, since a broker may lag behind.
        """
        times = {
            TopicPartition(*partition): spec.timestamp if isinstance(spec, OffsetSpec) else spec
            for partition, spec in wanted.items()
        }

        def ask(some: list[TopicPartition], timeout_ms: int) -> looking.ListOffsetsRequest:
            topics = [
                looking.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        looking.ListOffsetsPartition(
                            partition_index=index, timestamp=times[TopicPartition(name, index)]
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(some).items()
            ]
            return looking.ListOffsetsRequest(
                replica_id=CONSUMER_ID,
                isolation_level=ISOLATION_LEVELS[isolation_level],
                topics=topics,
                timeout_ms=timeout_ms,
            )

        def read(
            response: looking.ListOffsetsResponse, _: object
        ) -> Iterator[tuple[TopicPartition, OffsetAndTimestamp | KafkaError]]:
            for topic in response.topics:
                for it in topic.partitions:
                    key = TopicPartition(topic.name, it.partition_index)
                    epoch = it.leader_epoch if it.leader_epoch >= 0 else None
                    yield key, _refusal(it.error_code, None, key) or OffsetAndTimestamp(it.offset, it.timestamp, epoch)

        return await self._calls.ask(times, Leaders(self._calls), Question("partition", ask, read))

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, raise_errors: bool = True
    ) -> Results[TopicPartition, DeletedRecords]:
        """Delete the records before an offset; -1 means before the high watermark. Returns the new begin of each
        partition. OffsetOutOfRangeException for an offset behind the end, PolicyViolationException for a topic that is
        only compacted.
        """
        offsets = {TopicPartition(*partition): offset for partition, offset in before.items()}

        def ask(some: list[TopicPartition], timeout_ms: int) -> deleting.DeleteRecordsRequest:
            topics = [
                deleting.DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        deleting.DeleteRecordsPartition(
                            partition_index=index, offset=offsets[TopicPartition(name, index)]
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(some).items()
            ]
            return deleting.DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)

        def read(
            response: deleting.DeleteRecordsResponse, _: object
        ) -> Iterator[tuple[TopicPartition, DeletedRecords | KafkaError]]:
            for topic in response.topics:
                for it in topic.partitions:
                    key = TopicPartition(topic.name, it.partition_index)
                    yield key, _refusal(it.error_code, None, key) or DeletedRecords(it.low_watermark)

        results = await self._calls.ask(offsets, Leaders(self._calls), Question("partition", ask, read))
        return changed(results, raise_errors)

    async def elect_leaders(
        self,
        election_type: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | TopicPartition | None = None,
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, bool]:
        """Elect the preferred replicas, or (UNCLEAN) any live replica of partitions without a leader, which may lose
        records. None means all partitions that need it. True: a leader was elected; False: it was the leader already.
        PreferredLeaderNotAvailableException, EligibleLeadersNotAvailableException, at once.
        """
        wanted = None if partitions is None else partitions_in(partitions)

        def ask(timeout_ms: int) -> electing.ElectLeadersRequest:
            topics = [
                electing.TopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(wanted or ()).items()
            ]
            return electing.ElectLeadersRequest(
                election_type=election_type,
                topic_partitions=None if wanted is None else topics,
                timeout_ms=timeout_ms,
            )

        def read(response: electing.ElectLeadersResponse) -> dict[TopicPartition, bool | KafkaError] | KafkaError:
            error = refusal(response.error_code, None, "the election")
            if error is not None:
                return error
            return {key: elected for result in response.replica_election_results for key, elected in _elected(result)}

        outcomes: dict[TopicPartition, bool | KafkaError] = {}
        if wanted is None or wanted:
            outcomes = await self._calls.one("the election", ask, read)
        left_out = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's response lacks partitions")
        keys = outcomes if wanted is None else wanted
        return changed(Results({key: outcomes.get(key, left_out) for key in keys}), raise_errors)

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Start moving replicas to these brokers, the preferred leader first; None cancels a reassignment.
        InvalidReplicaAssignmentException, NoReassignmentInProgressException, UnknownTopicOrPartitionException.
        """
        wanted = {TopicPartition(*partition): replicas for partition, replicas in reassignments.items()}

        def ask(some: list[TopicPartition], timeout_ms: int) -> moving.AlterPartitionReassignmentsRequest:
            return moving.AlterPartitionReassignmentsRequest(
                timeout_ms=timeout_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=[
                    moving.ReassignableTopic(
                        name=name, partitions=[_move(index, wanted[TopicPartition(name, index)]) for index in indexes]
                    )
                    for name, indexes in by_topic(some).items()
                ],
            )

        def read(
            response: moving.AlterPartitionReassignmentsResponse, keys: list[TopicPartition]
        ) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
            if error := refusal(response.error_code, response.error_message, "the reassignment"):
                yield from ((key, error) for key in keys)
            for topic in response.responses:
                for it in topic.partitions:
                    key = TopicPartition(topic.name, it.partition_index)
                    yield key, _refusal(it.error_code, it.error_message, key)

        question = Question[TopicPartition, None]("partition", ask, read, final=AS_AN_ANSWER)
        return changed(await self._calls.ask(wanted, Anywhere(), question), raise_errors)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | TopicPartition | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Reassignments in progress, of these partitions or of all."""
        topics = None
        if partitions is not None:
            topics = [
                listing.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(partitions_in(partitions)).items()
            ]

        def read(
            response: listing.ListPartitionReassignmentsResponse,
        ) -> dict[TopicPartition, PartitionReassignment] | KafkaError:
            return refusal(response.error_code, response.error_message, "reassignments") or {
                TopicPartition(topic.name, it.partition_index): PartitionReassignment(
                    tuple(it.replicas), tuple(it.adding_replicas), tuple(it.removing_replicas)
                )
                for topic in response.topics
                for it in topic.partitions
            }

        def ask(timeout_ms: int) -> listing.ListPartitionReassignmentsRequest:
            return listing.ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)

        return await self._calls.one("reassignments", ask, read, AS_AN_ANSWER)


def _refusal(code: int, message: str | None, partition: TopicPartition) -> KafkaError | None:
    return refusal(code, message, f"partition {partition}")


def _elected(result: electing.ReplicaElectionResult) -> Iterator[tuple[TopicPartition, bool | KafkaError]]:
    for it in result.partition_result:
        key = TopicPartition(result.topic, it.partition_id)
        if it.error_code == ErrorCode.ELECTION_NOT_NEEDED:
            yield key, False
        else:
            yield key, _refusal(it.error_code, it.error_message, key) or True


def _move(index: int, replicas: Sequence[int] | None) -> moving.ReassignablePartition:
    return moving.ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
