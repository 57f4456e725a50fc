"""Core: requests to commit, fetch and delete offsets.

Offsets belong to a group id, and everything that depends on the kind of the group goes through
`broker.groups.group.Group`. Callers have resolved topics, which requests name by name or id. Transactions follow KIP-98
and KIP-447, stable reads KIP-447, topic ids KIP-848. `offset_cleanup.py` removes expired offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, ProducerStamp, Reply
from barnabas.broker.groups.committed_offsets import CommittedOffset, CommittedOffsets, commit_record, tombstone
from barnabas.broker.groups.group import Commit, Group, GroupContext, GroupType
from barnabas.broker.groups.offset_cleanup import OffsetCleanUp
from barnabas.broker.groups.simple_group import SimpleGroup
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import (
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.primitives import ZERO_UUID

FIRST_VERSION_WITH_GROUP_NOT_FOUND = 9
"""OffsetCommit version. Older clients only understand ILLEGAL_GENERATION."""

RECORDS_IN_ONE_STEP = 256
"""Maximum number of records that a request writes as one batch."""

MAX_INT64 = (1 << 63) - 1


@dataclass(slots=True)
class _Committing:
    """A commit in progress."""

    group: Group
    commit: Commit
    now_ms: int
    """Wall time."""
    expires_ms: int
    records: list[CoordinatorRecord] = field(default_factory=list)
    check_partition: Callable[[Commit, str, bytes, int], None] | None = field(init=False)
    """Check of a single partition (topic, topic id, index), for groups that accept commits with an older epoch. Called
    after `Group.check_commit`; raises the same errors.
    """

    def __post_init__(self) -> None:
        self.check_partition = getattr(self.group, "check_commit_of", None)


class Offsets:
    """The offsets of the groups of one partition of `__consumer_offsets`."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.committed = CommittedOffsets()
        self._clean_up = OffsetCleanUp(context, self)

    def group(self, group_id: str) -> Group | None:
        """The group, which may have nothing but offsets."""
        group = self._context.groups.get(group_id)
        if group is None and group_id in self.committed:
            return SimpleGroup(group_id)
        return group

    def all_groups(self) -> Iterator[Group]:
        """Every group of this partition; groups that have only offsets come last."""
        yield from self._context.groups
        for group_id in self.committed.groups():
            if self._context.groups.get(group_id) is None:
                yield SimpleGroup(group_id)

    # -- commit

    def commit(self, request: OffsetCommitRequest, version: int, reply: Reply, now: Now) -> Outcome:
        """OffsetCommit. Errors of the whole request are raised as KafkaError: GROUP_ID_NOT_FOUND, ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH, REBALANCE_IN_PROGRESS, UNSUPPORTED_VERSION.
        """
        generation = request.generation_id_or_member_epoch
        commit = Commit(request.member_id, request.group_instance_id, generation, False, version)
        error = ErrorCode.GROUP_ID_NOT_FOUND
        if version < FIRST_VERSION_WITH_GROUP_NOT_FOUND:
            error = ErrorCode.ILLEGAL_GENERATION
        group = self.group(request.group_id) or _simple_group(request.group_id, generation, error)
        group.check_commit(commit, now)
        expires_ms = -1
        if request.retention_time_ms != -1:
            expires_ms = min(now.wall_ms + request.retention_time_ms, MAX_INT64)
        committing = _Committing(group, commit, now.wall_ms, expires_ms)
        response = OffsetCommitResponse()
        for topic in request.topics:
            answers = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answers)
            for asked in topic.partitions:
                error = self._commit_partition(committing, topic.name, topic.topic_id, asked)
                answers.partitions.append(
                    OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
                )
        self._context.events.commits += len(committing.records)
        return Outcome(committing.records, [(reply, response)])

    def commit_in_transaction(self, request: TxnOffsetCommitRequest, version: int, reply: Reply, now: Now) -> Outcome:
        """TxnOffsetCommit: takes effect when the producer's transaction commits. Raises KafkaError like `commit`, but
        ILLEGAL_GENERATION for every error of the generation, and INVALID_PRODUCER_ID_MAPPING.
        """
        if request.producer_id < 0 or request.producer_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        generation = request.generation_id
        commit = Commit(request.member_id, request.group_instance_id, generation, True, version)
        group = self.group(request.group_id)
        if group is None:
            group = _simple_group(request.group_id, generation, ErrorCode.ILLEGAL_GENERATION)
        committing = _Committing(group, commit, now.wall_ms, -1)
        response = TxnOffsetCommitResponse()
        try:
            group.check_commit(commit, now)
            for topic in request.topics:
                answers = TxnOffsetCommitResponseTopic(name=topic.name)
                response.topics.append(answers)
                image = self._context.image().topics.by_name.get(topic.name)
                topic_id = ZERO_UUID if image is None else image.id
                for asked in topic.partitions:
                    error = self._commit_partition(committing, topic.name, topic_id, asked)
                    answers.partitions.append(
                        TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
                    )
        except KafkaError as refused:
            if refused.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, refused.message) from refused
            raise
        stamp = ProducerStamp(request.producer_id, request.producer_epoch)
        self._context.events.commits += len(committing.records)
        return Outcome(committing.records, [(reply, response)], stamp)

    def _commit_partition(
        self,
        committing: _Committing,
        topic: str,
        topic_id: bytes,
        asked: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    ) -> ErrorCode:
        """Error code of the partition. Raises errors of the whole request."""
        if self._is_too_large(asked.committed_metadata):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        group, index = committing.group, asked.partition_index
        if committing.check_partition is not None:
            committing.check_partition(committing.commit, topic, topic_id, index)
        committed = CommittedOffset(
            asked.committed_offset,
            asked.committed_leader_epoch,
            asked.committed_metadata or "",
            committing.now_ms,
            committing.expires_ms,
            topic_id,
        )
        committing.records.append(commit_record(group.group_id, topic, index, committed))
        return ErrorCode.NONE

    def _is_too_large(self, metadata: str | None) -> bool:
        """Measured in UTF-16 code units, as in Java."""
        if not metadata:
            return False
        limit = self._context.settings().offset_metadata_max_bytes
        return len(metadata) > limit or len(metadata.encode("utf-16-be", "surrogatepass")) > 2 * limit

    # -- fetch

    def fetch(self, request: OffsetFetchRequestGroup, require_stable: bool, reply: Reply, now: Now) -> Outcome:
        """OffsetFetch of one group; answers with an `OffsetFetchResponseGroup`, which is empty for a missing group.
        Raises KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
        """
        response = OffsetFetchResponseGroup(group_id=request.group_id)
        is_there = self._check_fetch(request)
        topics = request.topics
        if topics is None:
            topics = self.all_topics(request.group_id) if is_there else []
        for topic in topics:
            answers = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answers)
            for index in topic.partition_indexes:
                answer = OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1)
                answers.partitions.append(answer)
                if require_stable and self.committed.is_pending(request.group_id, topic.name, index):
                    answer.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                elif is_there:
                    self._fill_in(request.group_id, topic, answer)
        return Outcome(answers=[(reply, response)])

    def _check_fetch(self, request: OffsetFetchRequestGroup) -> bool:
        group = self.group(request.group_id)
        if group is None:
            return False
        try:
            group.check_fetch(request.member_id, request.member_epoch)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return False
            raise
        return True

    def all_topics(self, group_id: str) -> list[OffsetFetchRequestTopics]:
        """Partitions with committed offsets."""
        partitions = self.committed.partitions_of(group_id)
        return [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in partitions.items()]

    def _fill_in(self, group_id: str, topic: OffsetFetchRequestTopics, answer: OffsetFetchResponsePartitions) -> None:
        committed = self.committed.get(group_id, topic.name, answer.partition_index)
        # Offsets of a deleted topic with the same name do not count.
        if committed is not None and not _differ(committed.topic_id, topic.topic_id):
            answer.committed_offset = committed.offset
            answer.committed_leader_epoch = committed.leader_epoch
            answer.metadata = committed.metadata

    # -- delete

    def delete(self, request: OffsetDeleteRequest, reply: Reply, now: Now) -> Outcome:
        """OffsetDelete (KIP-496). Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self.group(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty() and group.protocol_type != "consumer" and group.type is not GroupType.STREAMS:
            # The members' subscriptions are unknown here.
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        outcome, response = Outcome(), OffsetDeleteResponse()
        for topic in request.topics:
            answers = OffsetDeleteResponseTopic(name=topic.name)
            response.topics.append(answers)
            is_subscribed = group.is_subscribed_to(topic.name)
            for index in dict.fromkeys(asked.partition_index for asked in topic.partitions):
                answer = OffsetDeleteResponsePartition(partition_index=index)
                answers.partitions.append(answer)
                if is_subscribed:
                    answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif self._is_there(request.group_id, topic.name, index):
                    outcome.records.append(tombstone(request.group_id, topic.name, index))
        self._context.events.deleted += len(outcome.records)
        outcome.answers.append((reply, response))
        return outcome

    def _is_there(self, group_id: str, topic: str, index: int) -> bool:
        committed = self.committed.get(group_id, topic, index)
        return committed is not None or self.committed.is_pending(group_id, topic, index)

    def tombstones(self, group_id: str) -> tuple[list[CoordinatorRecord], bool]:
        """Tombstones for offsets of the group, including pending ones, and whether these are all of them."""
        offsets = list(islice(self.committed.of_group_and_pending(group_id), RECORDS_IN_ONE_STEP + 1))
        is_all = len(offsets) <= RECORDS_IN_ONE_STEP
        partitions = dict.fromkeys((topic, partition) for topic, partition, _ in offsets[:RECORDS_IN_ONE_STEP])
        return [tombstone(group_id, topic, partition) for topic, partition in partitions], is_all

    # -- replay

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer: ProducerStamp | None) -> None:
        """Apply a record of the log."""
        self.committed.replay(key, value, None if producer is None else producer.producer_id)

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        """The producer's transaction was committed or aborted."""
        self.committed.replay_marker(producer.producer_id, committed)

    def loaded(self, now: Now) -> None:
        """The whole log has been replayed: start the clean-ups."""
        self._clean_up.loaded(now)

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> None:
        """The offsets of deleted topics are removed by a timer."""
        self._clean_up.metadata_changed(delta, now)


def _simple_group(group_id: str, generation: int, error: ErrorCode) -> Group:
    """A commit of a client that is not a member creates a group that has only offsets."""
    if generation >= 0:
        raise KafkaError(error)
    return SimpleGroup(group_id)


def _differ(topic_id: bytes, other: bytes) -> bool:
    """True if both ids are known and different."""
    return ZERO_UUID not in (topic_id, other) and topic_id != other
