"""Core: the `range` assignor: contiguous ranges of each topic, by rack where racks are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.client.groups.assignor import (
    Assignment,
    Assignor,
    GroupTopics,
    Subscriber,
    racks_matter,
    ranked,
    subscribed_topics,
)
from barnabas.client.metadata import TopicPartition


class RangeAssignor(Assignor):
    """Divides each topic by itself into ranges: the first members get one partition more if it does not divide evenly.
    Topics of equal size with the same subscribers are divided alike, so that equal keys of both reach one member."""

    name = "range"

    def assign(self, members: Sequence[Subscriber], topics: GroupTopics) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        order = ranked(members)
        ranges = [
            _Range(topic, [member for member in order if topic in member.topics], topics)
            for topic in subscribed_topics(members)
            if topics.count(topic)
        ]
        racks = any(each.racks_matter for each in ranges)
        if racks:
            _bring_together(ranges, assignment)
        for each in ranges:
            each.fill(assignment, lambda member, index: True)
        return {name: sorted(partitions) for name, partitions in assignment.items()} if racks else assignment


class _Range:
    """One topic while it is divided."""

    def __init__(self, topic: str, members: Sequence[Subscriber], topics: GroupTopics) -> None:
        self.topic = topic
        self.members = members
        self.count = topics.count(topic)
        self._each, self._more = divmod(self.count, len(members))
        self._free = dict.fromkeys(range(self.count))
        self._given = {member.member_id: 0 for member in members}
        self._racks = topics.racks
        partitions = [TopicPartition(topic, index) for index in self._free]
        self.member_racks = {member.rack for member in members if member.rack}
        self.racks_matter = racks_matter(self.member_racks, partitions, topics.racks)

    def room(self, member: Subscriber) -> int:
        return max(0, self._each + (self._more > 0) - self._given[member.member_id])

    def near(self, member: Subscriber, index: int) -> bool:
        """Whether a replica is in the member's rack; always if the member has no rack."""
        return not member.rack or member.rack in self._racks.get(TopicPartition(self.topic, index), frozenset())

    def give(self, member: Subscriber, indexes: Sequence[int], assignment: Assignment) -> None:
        if not indexes:
            return
        self._given[member.member_id] += len(indexes)
        self._more -= self._given[member.member_id] > self._each
        for index in indexes:
            del self._free[index]
        assignment[member.member_id] += [TopicPartition(self.topic, index) for index in indexes]

    def fill(self, assignment: Assignment, may: Callable[[Subscriber, int], bool]) -> None:
        for member in self.members:
            fitting = [index for index in self._free if may(member, index)]
            self.give(member, fitting[: self.room(member)], assignment)


def _bring_together(ranges: Sequence[_Range], assignment: Assignment) -> None:
    """Assign partitions to members in their racks. Topics that are divided alike stay so, which counts more than
    racks."""
    alike: dict[tuple[tuple[str, ...], int], list[_Range]] = {}
    for each in ranges:
        if each.member_racks:
            alike.setdefault((tuple(member.member_id for member in each.members), each.count), []).append(each)
    for (_, count), together in alike.items():
        first = together[0]
        if len(together) == 1:
            if first.racks_matter:
                first.fill(assignment, first.near)
            continue
        for index in range(count):
            for member in first.members:
                if all(each.near(member, index) and each.room(member) for each in together):
                    for each in together:
                        each.give(member, [index], assignment)
                    break
