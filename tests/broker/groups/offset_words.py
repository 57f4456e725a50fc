"""Short helpers for stories about offsets."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now
from barnabas.broker.groups.group import Commit, GroupType
from barnabas.broker.groups.group_memory import HeldBytes
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import GroupMetadataKey
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.broker.groups.machine_bench import Bench


@dataclass
class FakeGroup:
    """A group with configurable answers."""

    group_id: str = "g"
    kind: GroupType = GroupType.CLASSIC
    protocol_type: str = "consumer"
    state: str = "Stable"
    since_ms: int | None = None
    topics: list[str] = field(default_factory=list)
    error: ErrorCode | None = None
    """Error that every check raises."""
    commits: list[Commit] = field(default_factory=list)
    held: HeldBytes = field(default_factory=HeldBytes)

    @property
    def type(self) -> GroupType:
        return self.kind

    def state_name(self) -> str:
        return self.state

    def is_empty(self) -> bool:
        return self.state == "Empty"

    def empty_since_ms(self) -> int | None:
        return self.since_ms

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topics

    def check_commit(self, commit: Commit, now: Now) -> None:
        self.commits.append(commit)
        self._check()

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._check()

    def check_delete(self) -> None:
        self._check()

    def _check(self) -> None:
        if self.error is not None:
            raise KafkaError(self.error)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]


def commit(  # noqa: PLR0913 - what a test may want to say of one commit
    bench: Bench,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    group: str = "g",
    member: str = "",
    generation: int = -1,
    version: int = 9,
    metadata: str | None = "",
    leader_epoch: int = -1,
    retention_ms: int = -1,
) -> int:
    """Returns the partition's error."""
    image = bench.image.topics.by_name.get(topic)
    asked = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_metadata=metadata,
        committed_leader_epoch=leader_epoch,
    )
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(name=topic, topic_id=bytes(16) if image is None else image.id, partitions=[asked])
        ],
    )
    response = bench.ask(bench.machine.offsets.commit, request, version)
    assert isinstance(response, OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def txn_commit(  # noqa: PLR0913 - what a test may want to say of one commit
    bench: Bench,
    topic: str,
    offset: int,
    producer_id: int,
    *,
    partition: int = 0,
    group: str = "g",
    generation: int = -1,
    metadata: str | None = "",
) -> int:
    """Returns the partition's error."""
    asked = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=group,
        producer_id=producer_id,
        generation_id=generation,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[asked])],
    )
    response = bench.ask(bench.machine.offsets.commit_in_transaction, request, 5)
    assert isinstance(response, TxnOffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def fetch_group(
    bench: Bench,
    topics: dict[str, list[int]] | None,
    *,
    group: str = "g",
    stable: bool = False,
    topic_id: bytes = bytes(16),
    member_epoch: int = -1,
) -> OffsetFetchResponseGroup:
    asked = None
    if topics is not None:
        asked = [
            OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    request = OffsetFetchRequestGroup(group_id=group, topics=asked, member_epoch=member_epoch)
    response = bench.ask(bench.machine.offsets.fetch, request, stable)
    assert isinstance(response, OffsetFetchResponseGroup)
    return response


def fetch(bench: Bench, topic: str, partition: int = 0, group: str = "g", stable: bool = False) -> int | ErrorCode:
    """The committed offset, or the partition's error."""
    response = fetch_group(bench, {topic: [partition]}, group=group, stable=stable)
    (answer,) = response.topics[0].partitions
    return ErrorCode(answer.error_code) if answer.error_code else answer.committed_offset


def everything(bench: Bench, group: str = "g") -> dict[tuple[str, int], int]:
    """All committed offsets of a group."""
    response = fetch_group(bench, None, group=group)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in response.topics
        for partition in topic.partitions
    }


def delete_offsets(bench: Bench, topic: str, *partitions: int, group: str = "g") -> list[int]:
    """Errors of the partitions."""
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=it) for it in partitions]
            )
        ],
    )
    response = bench.ask(bench.machine.offsets.delete, request)
    assert isinstance(response, OffsetDeleteResponse)
    return [partition.error_code for partition in response.topics[0].partitions]
