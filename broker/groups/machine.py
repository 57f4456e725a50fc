"""Core: all groups of one partition of `__consumer_offsets`, of every kind, and their offsets, as one `Machine`.

Routes records to the part that they belong to, and implements what needs several parts: listing, descriptions and
deletion. Requests of members and commits go to the parts directly. What serves other kinds than classic groups is made
with its first record or request (`runtime/late.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.broker.coordinator.outcome import Now, Outcome, ProducerStamp, Reply
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_groups import ClassicGroups
from barnabas.broker.groups.description import Description
from barnabas.broker.groups.group import Group, GroupContext, GroupType
from barnabas.broker.groups.group_keys import ConsumerGroupKey, ShareGroupKey, StreamsGroupKey
from barnabas.broker.groups.group_timers import GroupTimers
from barnabas.broker.groups.offsets import Offsets
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    share_group_describe,
    streams_group_describe,
)
from barnabas.protocol.messages.group_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind
from barnabas.runtime.late import Late

if TYPE_CHECKING:
    from barnabas.broker.groups.consumer_groups import ConsumerGroups
    from barnabas.broker.groups.migration import GroupMigration
    from barnabas.broker.groups.share_groups import ShareGroups
    from barnabas.broker.groups.streams.streams_groups import StreamsGroups

FIRST_VERSION_WITH_GROUP_NOT_FOUND = 6
"""DescribeGroups version."""

ClassicDescription = Description[describe_groups.DescribedGroup, describe_groups.DescribedGroupMember]
ShareDescription = Description[share_group_describe.DescribedGroup, share_group_describe.Member]
ConsumerDescription = Description[consumer_group_describe.DescribedGroup, consumer_group_describe.Member]
StreamsDescription = Description[
    streams_group_describe.DescribedGroup, streams_group_describe.Member | streams_group_describe.Subtopology
]


class GroupMachine:
    """Implements `broker.coordinator.outcome.Machine`."""

    def __init__(self, context: GroupContext) -> None:
        timers = context.timers
        context = replace(context, timers=GroupTimers(timers, context.groups))
        self._context = context
        self.groups = context.groups
        self.offsets = Offsets(context)
        self.classic = ClassicGroups(context)
        self._migration: Late[GroupMigration] = Late(
            "barnabas.broker.groups.migration:with_consumers", context, self.classic, timers
        )
        self._shares: Late[ShareGroups] = Late("barnabas.broker.groups.share_groups:ShareGroups", context)
        self._streams: Late[StreamsGroups] = Late(
            "barnabas.broker.groups.streams.streams_groups:StreamsGroups", context
        )

    @property
    def migration(self) -> GroupMigration:
        return self._migration.get()

    @property
    def consumer(self) -> ConsumerGroups:
        return self._migration.get().consumer

    @property
    def shares(self) -> ShareGroups:
        return self._shares.get()

    @property
    def streams(self) -> StreamsGroups:
        return self._streams.get()

    def _kinds_here(self) -> list[ConsumerGroups | ShareGroups | StreamsGroups]:
        """The kinds other than classic of which there may be groups."""
        migration, shares, streams = self._migration.here, self._shares.here, self._streams.here
        here = (None if migration is None else migration.consumer, shares, streams)
        return [part for part in here if part is not None]

    # -- the machine

    def replay(self, key: Message, value: Message | None, producer: ProducerStamp | None, offset: int) -> None:
        """Records of unknown kinds are ignored."""
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value, producer)
        elif isinstance(key, LegacyOffsetCommitKey):
            assert value is None or isinstance(value, LegacyOffsetCommitValue)
            self.offsets.replay(*_modernized(key, value), producer)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self.classic.replay(key, value)
        elif isinstance(key, ConsumerGroupKey):
            self.consumer.replay(key, value)
        elif isinstance(key, ShareGroupKey):
            self.shares.replay(key, value)
        elif isinstance(key, StreamsGroupKey):
            self.streams.replay(key, value)

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        self.offsets.replay_marker(producer, committed)

    def loaded(self, now: Now) -> Outcome:
        self.offsets.loaded(now)
        return _combined([part.loaded(now) for part in (self.classic, *self._kinds_here())])

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        self.offsets.metadata_changed(delta, now)
        return _combined([part.metadata_changed(delta, now) for part in self._kinds_here()])

    def give_up(self) -> list[Reply]:
        self.groups.give_up()
        replies, migration = self.classic.give_up(), self._migration.here
        return replies if migration is None else replies + migration.consumer.give_up() + migration.give_up()

    # -- administration

    def listed(self, request: list_groups.ListGroupsRequest) -> Iterator[list_groups.ListedGroup | None]:
        """ListGroups for this partition: one item per group, None for a group that does not match."""
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.strip().lower() for kind in request.types_filter}
        for group in self.offsets.all_groups():
            state = group.state_name()
            if (states and state.lower() not in states) or (types and group.type.value not in types):
                yield None
            else:
                yield list_groups.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=state,
                    group_type=group.type.value,
                )

    def describe_consumer(self, group_id: str) -> ConsumerDescription:
        """ConsumerGroupDescribe entry."""
        group = self.offsets.group(group_id)
        if group is not None and group.type is GroupType.CONSUMER:
            return self.consumer.describe(group_id)
        described = consumer_group_describe.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=_not_found_message(group, group_id, "consumer"),
        )
        return Description(described, iter(()))

    def describe_share(self, group_id: str) -> ShareDescription:
        """ShareGroupDescribe entry."""
        group = self.offsets.group(group_id)
        if group is not None and group.type is GroupType.SHARE:
            return self.shares.group(group_id).describe(self._context.image().topics)
        described = share_group_describe.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=_not_found_message(group, group_id, "share"),
        )
        return Description(described, iter(()))

    def describe_streams(self, group_id: str) -> StreamsDescription:
        """StreamsGroupDescribe entry."""
        group = self.offsets.group(group_id)
        if group is not None and group.type is GroupType.STREAMS:
            return self.streams.describe(group_id)
        described = streams_group_describe.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=_not_found_message(group, group_id, "streams"),
        )
        return Description(described, iter(()))

    def describe_classic(self, group_id: str, version: int) -> ClassicDescription:
        """DescribeGroups entry. A missing group is Dead; since version 6 that is also an error (KIP-1043)."""
        group = self.offsets.group(group_id)
        if isinstance(group, ClassicGroup):
            return self.classic.describe(group)
        if group is None or group.type is not GroupType.CLASSIC:
            described = describe_groups.DescribedGroup(group_id=group_id, group_state="Dead")
            if version >= FIRST_VERSION_WITH_GROUP_NOT_FOUND:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                described.error_message = _not_found_message(group, group_id, "classic")
        else:
            described = describe_groups.DescribedGroup(group_id=group_id, group_state=group.state_name())
        return Description(described, iter(()))

    def delete(self, group_id: str, reply: Reply, now: Now) -> Outcome:
        """DeleteGroups of one group; answers with a `DeletableGroupResult`, or with None if its offsets exceed one
        batch: then some of them are deleted, and the caller must call again. Raises KafkaError: GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP.
        """
        group = self.offsets.group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_delete()
        records, is_all = self.offsets.tombstones(group_id)
        if not is_all:
            return Outcome(records, [(reply, None)])
        records += group.tombstones()
        outcome = Outcome(records, [(reply, delete_groups.DeletableGroupResult(group_id=group_id))])
        summary = f"group {group_id} is deleted, with its offsets"
        outcome.notes.note(DecisionKind.LIFECYCLE, f"group {group_id}", summary, cause="requested by DeleteGroups")
        return outcome


def _not_found_message(group: Group | None, group_id: str, kind: str) -> str:
    """Error message for a group that does not exist or is not of `kind`."""
    return f"Group {group_id} not found." if group is None else f"Group {group_id} is not a {kind} group."


def _modernized(
    key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None
) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    """Convert an offset commit of releases before 0.9 to today's format."""
    modern_key = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    if value is None:
        return modern_key, None
    return modern_key, OffsetCommitValue(
        offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
    )


def _combined(outcomes: list[Outcome]) -> Outcome:
    """Combine the outcomes of several parts into one batch, which is written or fails as a whole."""
    deciding = [it for it in outcomes if it.records or it.answers or it.notes or it.committed is not None]
    if len(deciding) <= 1:
        return deciding[0] if deciding else Outcome()
    assert all(it.replay and it.producer is None and it.failed is None for it in deciding)
    whole = Outcome()
    for part in deciding:
        whole.records += part.records
        whole.answers += part.answers
        whole.notes += part.notes

    def committed() -> None:
        for part in deciding:
            if part.committed is not None:
                part.committed()

    whole.committed = committed
    return whole
