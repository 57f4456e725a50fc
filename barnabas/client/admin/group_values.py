"""Descriptions of groups: consumers (classic and KIP-848), share groups, streams groups, and other users of the classic
protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from barnabas.client.admin.acl_values import AclOperation, operations_of
from barnabas.client.metadata import Node, TopicPartition
from barnabas.protocol.embedded_consumer import read_assignment
from barnabas.protocol.messages import consumer_group_describe as modern
from barnabas.protocol.messages import describe_groups as classic
from barnabas.protocol.messages import share_group_describe as sharing
from barnabas.protocol.open_enums import OpenStrEnum

CONSUMER_PROTOCOL = "consumer"
"""Protocol type of consumers in classic groups."""


class GroupState(OpenStrEnum):
    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(StrEnum):
    UNKNOWN = "unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        known = {each.value: each for each in cls}
        return known.get(str(value).lower(), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list. `protocol` is "consumer" for consumers of either protocol; "" for a group with offsets
    only."""

    group_id: str
    protocol: str
    state: GroupState
    """UNKNOWN if an old cluster does not report it."""
    type: GroupType
    broker_id: int
    """The broker that listed it: its coordinator."""

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether it has only offsets, committed without membership."""
        return self.type is GroupType.CLASSIC and not self.protocol


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member. Epochs and targets are those of KIP-848, otherwise None."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    is_classic: bool = True
    """Whether it uses the classic protocol, in a group of whatever type."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group of consumers of either protocol. Epochs are those of KIP-848, None in a classic group."""

    group_id: str
    type: GroupType
    state: GroupState
    protocol: str
    """ "consumer"; "" for offsets without members."""
    partition_assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node | None
    group_epoch: int | None
    target_assignment_epoch: int | None
    authorized_operations: tuple[AclOperation, ...] | None

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether it has only offsets, committed without membership."""
        return self.type is GroupType.CLASSIC and not self.protocol


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """A member of a share group."""

    member_id: str
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group (KIP-932)."""

    group_id: str
    state: GroupState
    partition_assignor: str
    members: tuple[ShareMemberDescription, ...]
    coordinator: Node | None
    group_epoch: int
    target_assignment_epoch: int
    authorized_operations: tuple[AclOperation, ...] | None


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member of a classic group of any protocol; metadata and assignment are the protocol's own bytes."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicGroupDescription:
    """A classic group of any protocol: consumers, Connect, …"""

    group_id: str
    state: GroupState
    protocol: str
    protocol_data: str
    """Protocol that the members agreed on: for consumers the assignor."""
    members: tuple[ClassicMember, ...]
    coordinator: Node | None
    authorized_operations: tuple[AclOperation, ...] | None


def classic_group(it: classic.DescribedGroup, coordinator: Node | None) -> ClassicGroupDescription:
    return ClassicGroupDescription(
        it.group_id,
        GroupState(it.group_state),
        it.protocol_type,
        it.protocol_data,
        tuple(
            ClassicMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.member_metadata,
                member.member_assignment,
            )
            for member in it.members
        ),
        coordinator,
        operations_of(it.authorized_operations),
    )


def consumers_of_classic(it: ClassicGroupDescription) -> ConsumerGroupDescription:
    """MalformedMessage if a member's assignment is not one of consumers."""
    return ConsumerGroupDescription(
        group_id=it.group_id,
        type=GroupType.CLASSIC,
        state=it.state,
        protocol=it.protocol,
        partition_assignor=it.protocol_data,
        members=tuple(
            MemberDescription(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.host,
                _embedded(member.assignment),
            )
            for member in it.members
        ),
        coordinator=it.coordinator,
        group_epoch=None,
        target_assignment_epoch=None,
        authorized_operations=it.authorized_operations,
    )


def modern_group(it: modern.DescribedGroup, coordinator: Node | None) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        group_id=it.group_id,
        type=GroupType.CONSUMER,
        state=GroupState(it.group_state),
        protocol=CONSUMER_PROTOCOL,
        partition_assignor=it.assignor_name,
        members=tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _assigned(member.assignment.topic_partitions),
                _assigned(member.target_assignment.topic_partitions),
                member.member_epoch,
                member.rack_id,
                tuple(member.subscribed_topic_names),
                member.subscribed_topic_regex or None,
                is_classic=member.member_type == 0,
            )
            for member in it.members
        ),
        coordinator=coordinator,
        group_epoch=it.group_epoch,
        target_assignment_epoch=it.assignment_epoch,
        authorized_operations=operations_of(it.authorized_operations),
    )


def share_group(it: sharing.DescribedGroup, coordinator: Node | None) -> ShareGroupDescription:
    return ShareGroupDescription(
        group_id=it.group_id,
        state=GroupState(it.group_state),
        partition_assignor=it.assignor_name,
        members=tuple(
            ShareMemberDescription(
                member.member_id,
                member.client_id,
                member.client_host,
                _assigned(member.assignment.topic_partitions),
                member.member_epoch,
                member.rack_id,
                tuple(member.subscribed_topic_names),
            )
            for member in it.members
        ),
        coordinator=coordinator,
        group_epoch=it.group_epoch,
        target_assignment_epoch=it.assignment_epoch,
        authorized_operations=operations_of(it.authorized_operations),
    )


def _assigned(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(it.topic_name, index) for it in topics for index in it.partitions))


def _embedded(data: bytes) -> tuple[TopicPartition, ...]:
    if not data:
        return ()
    topics = read_assignment(data).assigned_partitions
    return tuple(sorted(TopicPartition(it.topic, index) for it in topics for index in it.partitions))
