"""Core: one member of a consumer group (KIP-848) as an immutable value, as recorded in the log.

A member has an epoch and two sets of partitions: assigned ones, which it may read, and ones that it must revoke. It
reaches the epoch of the group's target assignment only after it has revoked everything outside its target; the next
owner of a partition has to wait for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from barnabas.broker.groups.state_transitions import Moves
from barnabas.protocol.messages.group_log import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member leaves temporarily: its partitions are reserved for it (KIP-345)."""
UNKNOWN_EPOCH = -1
"""Epoch of a member whose assignment was deleted, and owner epoch of a free partition."""

OwnedPartitions = Mapping[bytes, Mapping[int, int]]
"""By topic id: partition to the member epoch in which it was assigned. Immutable by convention."""

Partitions = Mapping[bytes, frozenset[int]]
"""By topic id."""


class MemberState(Enum):
    """Numbers as in the log."""

    STABLE = 0
    """It owns all of its target that is available to it."""
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions and has not confirmed that yet."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not released yet."""
    UNKNOWN = 127
    """A state of a newer version."""


MEMBER_MOVES: Moves[MemberState] = {
    MemberState.STABLE: (MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS),
    MemberState.UNREVOKED_PARTITIONS: (MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS),
    MemberState.UNRELEASED_PARTITIONS: (MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS),
    MemberState.UNKNOWN: (MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS),
}

_STATES = {state.value: state for state in MemberState}


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """All durable state of a member."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """Also accepted, from a member that missed the answer with `epoch`."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    """If set, the member is static."""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_pattern: str = ""
    """Empty if it subscribes by name only."""
    server_assignor: str | None = None
    assigned: OwnedPartitions = field(default_factory=dict)
    revoking: OwnedPartitions = field(default_factory=dict)
    """Partitions to revoke. Disjoint from `assigned`."""
    classic: ClassicMemberMetadata | None = None
    """If set, the member uses the classic protocol, in a group under migration."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    @property
    def session_timeout_ms(self) -> int:
        """Session timeout that a member with the classic protocol chose itself."""
        assert self.classic is not None
        return self.classic.session_timeout_ms

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Copy with the fields of a `ConsumerGroupMemberMetadataValue`."""
        return self.changed(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_pattern=value.subscribed_topic_regex or "",
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """Copy with the fields of a `ConsumerGroupCurrentMemberAssignmentValue`."""
        return self.changed(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> ConsumerMember:
        """Copy after a tombstone of its current assignment."""
        return self.changed(epoch=UNKNOWN_EPOCH, previous_epoch=-1, assigned={}, revoking={})

    def changed(self, **fields: object) -> ConsumerMember:
        """Copy with some fields replaced."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return ConsumerMember(**{**values, **fields})


_FIELDS = tuple(ConsumerMember.__dataclass_fields__)


def _owned(
    topics: Iterable[ConsumerGroupCurrentMemberAssignmentTopicPartitions], member_epoch: int
) -> dict[bytes, dict[int, int]]:
    """Assignment epochs are recorded since 4.3; without them the member's own epoch is the best estimate."""
    owned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def partitions_of(owned: OwnedPartitions) -> dict[bytes, frozenset[int]]:
    """The partitions without their epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
