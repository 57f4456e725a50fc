"""Who reads which partition of a classic group: decided by the member that leads it. A core.

`range` gives every topic in contiguous stretches (KIP-62 clients' default), `roundrobin` deals partitions out one by
one, `cooperative-sticky` keeps what members have as far as the load stays even, and takes a partition from its owner
before it gives it to another (KIP-429).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.client.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    """In which it got what it owns."""

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members first, by a name that outlives them; so restarts move nothing (KIP-345)."""
        return (self.group_instance_id is None, self.group_instance_id or self.member_id)


Assignment = dict[str, list[TopicPartition]]
"""Member id to partitions; every member is in it."""
Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], Assignment]


def _ranked(members: Sequence[Subscriber]) -> list[Subscriber]:
    return sorted(members, key=lambda member: member.rank)


def _topics(members: Sequence[Subscriber]) -> list[str]:
    return sorted({topic for member in members for topic in member.topics})


def assign_range(members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    """Each topic by itself: the first members get one more where it does not divide."""
    assignment: Assignment = {member.member_id: [] for member in members}
    for topic in _topics(members):
        subscribed = [member for member in _ranked(members) if topic in member.topics]
        each, more = divmod(counts.get(topic, 0), len(subscribed))
        first = 0
        for place, member in enumerate(subscribed):
            size = each + (place < more)
            assignment[member.member_id] += [TopicPartition(topic, first + index) for index in range(size)]
            first += size
    return assignment


def assign_round_robin(members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    """All partitions in a row, dealt to the members in a circle."""
    assignment: Assignment = {member.member_id: [] for member in members}
    ranked = _ranked(members)
    place = 0
    for topic in _topics(members):
        for index in range(counts.get(topic, 0)):
            while topic not in ranked[place % len(ranked)].topics:
                place += 1
            assignment[ranked[place % len(ranked)].member_id].append(TopicPartition(topic, index))
            place += 1
    return assignment


def assign_sticky(members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    """As even as it can be, with as much as possible where it was."""
    owners = _owners(members, counts)
    assignment: Assignment = {member.member_id: [] for member in members}
    free: list[TopicPartition] = []
    for topic in _topics(members):
        for index in range(counts.get(topic, 0)):
            partition = TopicPartition(topic, index)
            owner = owners.get(partition)
            if owner is None:
                free.append(partition)
            else:
                assignment[owner].append(partition)
    ranked = _ranked(members)
    for partition in free:
        takers = [member for member in ranked if partition.topic in member.topics]
        poorest = min(takers, key=lambda member: len(assignment[member.member_id]))
        assignment[poorest.member_id].append(partition)
    while _move_one(ranked, assignment):
        pass
    return {member_id: sorted(partitions) for member_id, partitions in assignment.items()}


def assign_cooperative_sticky(members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    """As `assign_sticky`; but what has another owner still is given to nobody: its owner sees that it lost it, gives it
    up and joins again, and the next round gives it away.
    """
    owners = _owners(members, counts)
    return {
        member_id: [partition for partition in partitions if owners.get(partition) in (None, member_id)]
        for member_id, partitions in assign_sticky(members, counts).items()
    }


def _owners(members: Sequence[Subscriber], counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Who has what; of two that claim a partition the one of the later generation, of equals nobody."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for partition in member.owned:
            if partition.topic not in member.topics or partition.partition >= counts.get(partition.topic, 0):
                continue
            known = claims.get(partition)
            if known is None or member.generation > known[0]:
                claims[partition] = (member.generation, member.member_id)
            elif member.generation == known[0]:
                claims[partition] = (known[0], None)
    return {partition: owner for partition, (_, owner) in claims.items() if owner is not None}


def _move_one(ranked: Sequence[Subscriber], assignment: Assignment) -> bool:
    """Move a partition from a richer member to one that has at least two less; False if there is none."""
    by_wealth = sorted(ranked, key=lambda member: len(assignment[member.member_id]))
    for rich in reversed(by_wealth):
        for poor in by_wealth:
            if len(assignment[rich.member_id]) - len(assignment[poor.member_id]) < 2:
                break
            for partition in reversed(assignment[rich.member_id]):
                if partition.topic in poor.topics:
                    assignment[rich.member_id].remove(partition)
                    assignment[poor.member_id].append(partition)
                    return True
    return False


ASSIGNORS: dict[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "cooperative-sticky": assign_cooperative_sticky,
}
COOPERATIVE = frozenset({"cooperative-sticky"})
"""Those under which members keep what they have while the group rebalances."""
