"""One member of a consumer group (KIP-848), as the log tells of it: a value. A core.

A member has an epoch and two sets of partitions: those it may read, and those it was told to give up. It reaches the
epoch of the group's target assignment only when it has given up what is not its own any more; whom a partition belongs
to next has to wait for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from broker.groups.moves import Moves
from protocol.messages.group_log import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member leaves, but comes back: its partitions wait for it (KIP-345)."""
UNKNOWN_EPOCH = -1
"""Of a member whose assignment was deleted, or of no owner of a partition."""

OwnedPartitions = Mapping[bytes, Mapping[int, int]]
"""By topic id: partition to the member epoch in which it was assigned. Never changed, only replaced."""

Partitions = Mapping[bytes, frozenset[int]]
"""By topic id."""


class MemberState(Enum):
    """As numbered in the log."""

    STABLE = 0
    """It has all of its target that it can have."""
    UNREVOKED_PARTITIONS = 1
    """It was told to give up partitions and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """Written by a newer version."""


MEMBER_MOVES: Moves[MemberState] = {
    MemberState.STABLE: (MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS),
    MemberState.UNREVOKED_PARTITIONS: (MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS),
    MemberState.UNRELEASED_PARTITIONS: (MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS),
    MemberState.UNKNOWN: (MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS),
}

_STATES = {state.value: state for state in MemberState}


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """Everything that is durable about a member."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """Accepted once more from a member that did not hear of `epoch`."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    """Set: the member is static."""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_pattern: str = ""
    """Empty: it subscribes to names only."""
    server_assignor: str | None = None
    assigned: OwnedPartitions = field(default_factory=dict)
    revoking: OwnedPartitions = field(default_factory=dict)
    """Told to give these up. Disjoint from `assigned`."""
    classic: ClassicMemberMetadata | None = None
    """Set: it speaks the classic protocol, in a group that is on its way from one to the other."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    @property
    def session_timeout_ms(self) -> int:
        """Of a member with the classic protocol, which names its own."""
        assert self.classic is not None
        return self.classic.session_timeout_ms

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """What a `ConsumerGroupMemberMetadataValue` replaces."""
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
        """What a `ConsumerGroupCurrentMemberAssignmentValue` replaces."""
        return self.changed(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> ConsumerMember:
        """As a tombstone of the assignment leaves it."""
        return self.changed(epoch=UNKNOWN_EPOCH, previous_epoch=-1, assigned={}, revoking={})

    def changed(self, **fields: object) -> ConsumerMember:
        """A copy with some fields replaced."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return ConsumerMember(**{**values, **fields})


_FIELDS = tuple(ConsumerMember.__dataclass_fields__)


def _owned(
    topics: Iterable[ConsumerGroupCurrentMemberAssignmentTopicPartitions], member_epoch: int
) -> dict[bytes, dict[int, int]]:
    """Epochs are told since 4.3; where they are missing the member's own is the best guess."""
    owned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


class Subscription(NamedTuple):
    """How many members subscribe to a topic."""

    by_name: int
    by_pattern: int
    """How many patterns that somebody subscribes to have found it."""


def partitions_of(owned: OwnedPartitions) -> dict[bytes, frozenset[int]]:
    """Without the epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
