"""Core: the interface of assignors, with which the leader of a classic group assigns partitions.

A custom assignor is a subclass of `Assignor`; Kafka's four are in `assignors.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.metadata import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member, as the leader of the group knows it."""

    member_id: str
    group_instance_id: str | None
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    """The generation in which it got the partitions that it owns."""
    rack: str = ""
    user_data: bytes | None = None
    """The member's own `Assignor.user_data` for this assignor."""

    @property
    def rank(self) -> tuple[bool, str]:
        """Sort key: static members first, by their instance id, which outlives a restart; so restarts move nothing
        (KIP-345)."""
        return (self.group_instance_id is None, self.group_instance_id or self.member_id)


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """The topics that the members of a group subscribe to."""

    counts: Mapping[str, int]
    """Topic to number of partitions; missing topics have none."""
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """Racks of the replicas; empty if no broker has one."""

    def count(self, topic: str) -> int:
        return self.counts.get(topic, 0)


Assignment = dict[str, list[TopicPartition]]
"""Member id to partitions; contains every member."""


class Assignor:
    """Base class: set `name`, override `assign`, and the other methods if needed. One object serves one consumer."""

    name = ""
    """Protocol name; all members of a group need one in common."""
    cooperative = False
    """Whether members keep their partitions during a rebalance and give up only those that move (KIP-429). Then
    `assign` must not give a partition to a member while another one owns it."""

    def assign(self, members: Sequence[Subscriber], topics: GroupTopics) -> Assignment:
        """Called in the member that leads the group. Each partition may be assigned once."""
        raise NotImplementedError

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Extra data about this member for the leader's assignor."""
        return None

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Called in every member after it got its assignment."""


def subscribed_topics(members: Sequence[Subscriber]) -> list[str]:
    return sorted({topic for member in members for topic in member.topics})


def ranked(members: Sequence[Subscriber]) -> list[Subscriber]:
    return sorted(members, key=lambda member: member.rank)


def racks_matter(
    member_racks: Collection[str], partitions: Sequence[TopicPartition], racks: Mapping[TopicPartition, frozenset[str]]
) -> bool:
    """Whether racks make a difference: not if every partition is in every rack, or in no member's."""
    of_partitions = [racks.get(partition, frozenset()) for partition in partitions]
    everywhere: frozenset[str] = frozenset().union(*of_partitions)
    return not everywhere.isdisjoint(member_racks) and any(each != everywhere for each in of_partitions)
