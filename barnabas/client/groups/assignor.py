"""Who reads which partition of a classic group: what is asked of the member that leads it. A core.

An assignor of one's own is a subclass of `Assignor`; Kafka's four are in `assignors.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.metadata import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    """In which it got what it owns."""
    rack: str = ""
    user_data: bytes | None = None
    """What its own assignor of this name noted (`Assignor.user_data`)."""

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members first, by a name that outlives them; so restarts move nothing (KIP-345)."""
        return (self.group_instance_id is None, self.group_instance_id or self.member_id)


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """The topics that the members of a group have subscribed to."""

    counts: Mapping[str, int]
    """Topic to how many partitions it has; topics that are not there have none."""
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """Of the replicas; empty where nobody told any."""

    def count(self, topic: str) -> int:
        return self.counts.get(topic, 0)


Assignment = dict[str, list[TopicPartition]]
"""Member id to partitions; every member is in it."""


class Assignor:
    """Overwrite `name` and `assign`, and what else you need. One object serves one consumer."""

    name = ""
    """As the group votes for it: members need one in common."""
    cooperative = False
    """Members keep what they have while the group rebalances, and give up only what moves (KIP-429). Then `assign`
    must give nobody what another member still owns."""

    def assign(self, members: Sequence[Subscriber], topics: GroupTopics) -> Assignment:
        """Called in the member that leads the group. Nothing may be in two lists."""
        raise NotImplementedError

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """What the leader's assignor shall know of this member, besides its topics and what it owns."""
        return None

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Called in every member when it hears what it was given."""


def subscribed_topics(members: Sequence[Subscriber]) -> list[str]:
    return sorted({topic for member in members for topic in member.topics})


def ranked(members: Sequence[Subscriber]) -> list[Subscriber]:
    return sorted(members, key=lambda member: member.rank)


def racks_matter(
    member_racks: Collection[str], partitions: Sequence[TopicPartition], racks: Mapping[TopicPartition, frozenset[str]]
) -> bool:
    """Whether a member's rack makes a difference: not if every partition is in every rack, or in none of theirs."""
    of_partitions = [racks.get(partition, frozenset()) for partition in partitions]
    everywhere: frozenset[str] = frozenset().union(*of_partitions)
    return not everywhere.isdisjoint(member_racks) and any(each != everywhere for each in of_partitions)
