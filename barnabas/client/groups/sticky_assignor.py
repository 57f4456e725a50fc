"""Core: the `sticky` and `cooperative-sticky` assignors: balanced, and moving as few partitions as possible.

Members of a `sticky` group give up everything before they join, so each records its last assignment in its
subscription; those of a `cooperative-sticky` group still own their partitions. There a partition is not assigned while
another member owns it: the owner gives it up and joins again, and the next round assigns it (KIP-429).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.client.groups.assignor import (
    Assignment,
    Assignor,
    GroupTopics,
    Subscriber,
    racks_matter,
    ranked,
    subscribed_topics,
)
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.schema import INT32, STRING, Message, Struct, array, decode, encode, field

NO_GENERATION = -1
DISPUTED = None
"""Owner of a partition that two members of one generation claim."""


class PreviousTopic(Struct):
    topic: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class PreviousAssignment(Message, versions="0-1"):
    """User data of a member of a `sticky` group. Version 1 has the generation."""

    topics: list[PreviousTopic] = field(array(PreviousTopic), "0+", factory=list)
    generation: int = field(INT32, "1+", default=NO_GENERATION, ignorable=True)


class NotedGeneration(Message, versions="0"):
    """User data of a member of a `cooperative-sticky` group, for leaders that ignore the subscription's own field."""

    generation: int = field(INT32, "0+", default=NO_GENERATION)


class StickyAssignor(Assignor):
    """For groups that stop reading while they rebalance."""

    name = "sticky"

    def __init__(self) -> None:
        self._previous: PreviousAssignment | None = None

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return None if self._previous is None else encode(self._previous, 1)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        topics = [PreviousTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()]
        self._previous = PreviousAssignment(topics=topics, generation=generation)

    def assign(self, members: Sequence[Subscriber], topics: GroupTopics) -> Assignment:
        claims = {member.member_id: _read_previous(member.user_data) for member in members}
        return _assign(members, topics, _owners(members, topics, claims))


class CooperativeStickyAssignor(Assignor):
    """For groups whose members go on reading what does not move."""

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return encode(NotedGeneration(generation=self._generation), 0)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        self._generation = generation

    def assign(self, members: Sequence[Subscriber], topics: GroupTopics) -> Assignment:
        claims = {member.member_id: (member.owned, _generation(member)) for member in members}
        owners = _owners(members, topics, claims)
        return {
            member_id: [partition for partition in partitions if owners.get(partition, member_id) == member_id]
            for member_id, partitions in _assign(members, topics, owners).items()
        }


Claims = Mapping[str, tuple[Sequence[TopicPartition], int]]
"""Member id to the partitions that it claims, and the generation in which it got them."""
Owners = Mapping[TopicPartition, str | None]


def _generation(member: Subscriber) -> int:
    if member.generation != NO_GENERATION or member.user_data is None:
        return member.generation
    try:
        return decode(NotedGeneration, member.user_data, 0).generation
    except MalformedMessage:
        return NO_GENERATION


def _read_previous(data: bytes | None) -> tuple[Sequence[TopicPartition], int]:
    """Nothing if it cannot be read: another client's assignor of that name may have another format."""
    for version in (1, 0) if data else ():
        try:
            previous = decode(PreviousAssignment, data or b"", version)
        except MalformedMessage:
            continue
        had = [TopicPartition(each.topic, index) for each in previous.topics for index in each.partitions]
        return had, previous.generation
    return (), NO_GENERATION


def _owners(members: Sequence[Subscriber], topics: GroupTopics, claims: Claims) -> Owners:
    """Owners by partition; of two members that claim it, the one of the later generation."""
    owners: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        partitions, generation = claims[member.member_id]
        wanted = dict.fromkeys(member.topics)
        for partition in partitions:
            if partition.topic not in wanted or not 0 <= partition.partition < topics.count(partition.topic):
                continue
            known = owners.get(partition)
            if known is None or generation > known[0]:
                owners[partition] = (generation, member.member_id)
            elif generation == known[0] and known[1] != member.member_id:
                owners[partition] = (generation, DISPUTED)
    return {partition: owner for partition, (_, owner) in owners.items()}


def _assign(members: Sequence[Subscriber], topics: GroupTopics, owners: Owners) -> Assignment:
    names = subscribed_topics(members)
    partitions = [TopicPartition(topic, index) for topic in names for index in range(topics.count(topic))]
    if all(len(set(member.topics)) == len(names) for member in members):
        return _Even(members, topics, partitions).assign(owners)
    return _assign_unlike(members, partitions, owners)


class _Even:
    """All members subscribe to the same topics: each gets `least` partitions, and `more` of them one on top."""

    def __init__(self, members: Sequence[Subscriber], topics: GroupTopics, partitions: list[TopicPartition]) -> None:
        self._members = {member.member_id: member for member in sorted(members, key=lambda member: member.member_id)}
        self._partitions = partitions
        self._least, self._more = divmod(len(partitions), len(members))
        member_racks = {member.rack for member in members if member.rack}
        self._racks = topics.racks if racks_matter(member_racks, partitions, topics.racks) else {}
        self._assignment: Assignment = {member_id: [] for member_id in self._members}
        self._poor: list[str] = []
        """Members with fewer than `least`."""
        self._content: list[str] = []
        """Members with `least`, which may get one more."""

    def assign(self, owners: Owners) -> Assignment:
        self._keep(owners)
        given = dict.fromkeys(partition for partitions in self._assignment.values() for partition in partitions)
        free = [partition for partition in self._partitions if partition not in given]
        if self._racks:
            readers = {partition: sum(self._near(name, partition) for name in self._members) for partition in free}
            free = self._deal_near(sorted(free, key=lambda partition: readers[partition]))
        self._deal(free)
        return {member_id: sorted(partitions) for member_id, partitions in self._assignment.items()}

    def _near(self, member_id: str, partition: TopicPartition) -> bool:
        rack = self._members[member_id].rack
        return bool(rack) and rack in self._racks.get(partition, frozenset())

    def _keep(self, owners: Owners) -> None:
        """Keep the members' partitions, as far as the load stays balanced."""
        had: Assignment = {member_id: [] for member_id in self._members}
        for partition, owner in owners.items():
            if owner is not DISPUTED and not self._far(owner, partition):
                had[owner].append(partition)
        for member_id, partitions in had.items():
            partitions.sort(key=lambda partition: (partition.partition, partition.topic))
            if len(partitions) < self._least:
                self._assignment[member_id] = partitions
                self._poor.append(member_id)
            elif len(partitions) > self._least and self._more:
                self._more -= 1
                self._assignment[member_id] = partitions[: self._least + 1]
            else:
                self._assignment[member_id] = partitions[: self._least]
                self._content.append(member_id)

    def _far(self, member_id: str, partition: TopicPartition) -> bool:
        rack = self._members[member_id].rack
        return bool(self._racks) and bool(rack) and not self._near(member_id, partition)

    def _deal_near(self, free: list[TopicPartition]) -> list[TopicPartition]:
        """Assign to members in a replica's rack; returns partitions for which none has room."""
        left, place = [], 0
        for partition in free:
            turn = self._poor[place:] + self._poor[:place]
            content = self._content if self._more else []
            member_id = next((name for name in turn + content if self._near(name, partition)), None)
            if member_id is None:
                left.append(partition)
            elif member_id in self._poor:
                place = self._give_poor(self._poor.index(member_id), partition)
            else:
                self._give_content(member_id, partition)
        return left

    def _deal(self, free: list[TopicPartition]) -> None:
        place = 0
        for partition in free:
            if self._poor:
                place = self._give_poor(place % len(self._poor), partition)
            else:
                self._give_content(self._content[0], partition)

    def _give_poor(self, place: int, partition: TopicPartition) -> int:
        """Returns the index of the next member in turn."""
        member_id = self._poor[place]
        self._assignment[member_id].append(partition)
        if len(self._assignment[member_id]) < self._least:
            place += 1
        else:
            del self._poor[place]
            self._content.append(member_id)
        return place % len(self._poor) if self._poor else 0

    def _give_content(self, member_id: str, partition: TopicPartition) -> None:
        self._assignment[member_id].append(partition)
        self._content.remove(member_id)
        self._more -= 1


def _assign_unlike(members: Sequence[Subscriber], partitions: list[TopicPartition], owners: Owners) -> Assignment:
    """Members subscribe to different topics: free partitions go to the least loaded, then single ones move."""
    assignment: Assignment = {member.member_id: [] for member in members}
    takers: dict[str, list[Subscriber]] = {}
    for member in ranked(members):
        for topic in dict.fromkeys(member.topics):
            takers.setdefault(topic, []).append(member)
    free: list[TopicPartition] = []
    for partition in partitions:
        owner = owners.get(partition)
        if owner is DISPUTED:
            free.append(partition)
        else:
            assignment[owner].append(partition)
    # Partitions with few possible members go first.
    for partition in sorted(free, key=lambda partition: len(takers[partition.topic])):
        poorest = min(takers[partition.topic], key=lambda member: len(assignment[member.member_id]))
        assignment[poorest.member_id].append(partition)
    while _move_one(ranked(members), assignment):
        pass
    return {member_id: sorted(given) for member_id, given in assignment.items()}


def _move_one(members: Sequence[Subscriber], assignment: Assignment) -> bool:
    """Move a partition from a member to one that has at least two fewer; False if there is none."""
    by_wealth = sorted(members, key=lambda member: len(assignment[member.member_id]))
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
