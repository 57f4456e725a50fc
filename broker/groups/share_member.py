"""Core: one member of a share group (KIP-932) as an immutable value, as recorded in the log."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from barnabas.broker.groups.consumer_member import JOIN_EPOCH, UNKNOWN_EPOCH, Partitions
from barnabas.protocol.messages.group_log import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
)


@dataclass(frozen=True, slots=True)
class ShareMember:
    """All durable state of a member."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """Also accepted, from a member that missed the answer with `epoch`."""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned={topic.topic_id: frozenset(topic.partitions) for topic in value.assigned_partitions},
        )

    def without_assignment(self) -> ShareMember:
        """The member after a tombstone of its current assignment."""
        return replace(self, epoch=UNKNOWN_EPOCH, previous_epoch=-1, assigned={})
