"""Core: reconciliation of a member's current assignment with its target, one heartbeat at a time (KIP-848).

A member first revokes partitions, then advances to the epoch of the target assignment and takes whatever is free. It
never waits for all other members, only for the owners of its own partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from barnabas.broker.groups.consumer_member import (
    UNKNOWN_EPOCH,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    Partitions,
)
from barnabas.protocol.errors import ErrorCode, KafkaError

_NONE: Mapping[int, int] = {}
_NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Input of one member's next step."""

    assignment_epoch: int
    """Epoch of the target assignment."""
    target: Partitions
    subscribed_topics: Collection[bytes]
    """Ids of the topics that the member subscribes to now. The target may be older."""
    subscription_changed: bool
    """By this request."""
    reported: Partitions | None
    """Partitions that the member reports as owned; None if it reports no change."""
    owner_epoch: Callable[[bytes, int], int]
    """Epoch of the current owner of a partition, or -1."""

    def next_step(self, member: ConsumerMember) -> ConsumerMember:
        """The member after this step. Raises KafkaError FENCED_MEMBER_EPOCH."""
        if member.state is MemberState.STABLE:
            if member.epoch != self.assignment_epoch:
                return self._towards_target(member, member.epoch)
            return self._without_unsubscribed(member) if self.subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if self._still_owns(member.revoking):
                return self._without_unsubscribed(member) if self.subscription_changed else member
            return self._towards_target(member, member.epoch)
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            return self._towards_target(member, member.epoch)
        if self.reported is None or self.reported:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is unknown; it must rejoin"
            )
        return self._towards_target(member, self.assignment_epoch)

    def _still_owns(self, revoking: OwnedPartitions) -> bool:
        if self.reported is None:
            return True
        return any(
            partition in revoking.get(topic_id, _NONE)
            for topic_id, partitions in self.reported.items()
            for partition in partitions
        )

    def _without_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Before the next target assignment, a member already loses partitions of topics that it has unsubscribed from.
        """
        wanted = self.subscribed_topics
        lost = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in wanted}
        if not lost:
            return member
        kept = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in lost}
        revoking = dict(member.revoking)
        for topic_id, owned in lost.items():
            revoking[topic_id] = {**revoking.get(topic_id, _NONE), **owned}
        if self._still_owns(revoking):
            return member.changed(
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_epoch=member.epoch,
                assigned=kept,
                revoking=revoking,
            )
        return member.changed(previous_epoch=member.epoch, assigned=kept)

    def _towards_target(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        kept: dict[bytes, dict[int, int]] = {}
        revoking: dict[bytes, dict[int, int]] = {}
        free: dict[bytes, list[int]] = {}
        waiting = False
        for topic_id in dict.fromkeys((*self.target, *member.assigned)):
            target = self.target.get(topic_id, _NOTHING) if topic_id in self.subscribed_topics else _NOTHING
            owned = member.assigned.get(topic_id, _NONE)
            own_still = member.revoking.get(topic_id, _NONE)
            for partition, assigned_in in owned.items():
                (kept if partition in target else revoking).setdefault(topic_id, {})[partition] = assigned_in
            for partition in sorted(target):
                if partition in owned:
                    continue
                # Partitions that the member itself has just revoked are free: no other member can have taken them.
                if self.owner_epoch(topic_id, partition) == UNKNOWN_EPOCH or partition in own_still:
                    free.setdefault(topic_id, []).append(partition)
                else:
                    waiting = True
        if revoking and self._still_owns(revoking):
            return member.changed(
                state=MemberState.UNREVOKED_PARTITIONS,
                epoch=epoch,
                previous_epoch=member.epoch,
                assigned=kept,
                revoking=revoking,
            )
        for topic_id, partitions in free.items():
            kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self.assignment_epoch))
        return member.changed(
            state=MemberState.UNRELEASED_PARTITIONS if waiting else MemberState.STABLE,
            epoch=self.assignment_epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking={},
        )
