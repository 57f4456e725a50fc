"""Core: the uniform assignor, which balances as evenly as subscriptions allow, and then with as few moves as possible.

If all members subscribe to the same topics, each has a quota: it keeps what fits, and the rest fills members below
their quota. Otherwise partitions are assigned topic by topic, the topics with the fewest possible owners first, and
then moved from the most to the least loaded member until no move improves the balance.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from barnabas.broker.groups.assignors.assignor import GroupSpec, Pace, frozen
from barnabas.broker.groups.consumer_member import Partitions
from barnabas.runtime.at_once import Stepwise

MOST_ROUNDS = 16
"""Maximum rounds of balancing. Almost all groups need two; further gains after 16 are not worth the time."""

Target = dict[bytes, set[int]]


def assign_uniformly(group: GroupSpec) -> Stepwise[dict[str, Partitions]]:
    targets = yield from _assign_counted(group) if group.is_homogeneous else _Balancing(group).run()
    return (yield from frozen(targets))


def _still_valid(group: GroupSpec, member_id: str) -> list[tuple[bytes, int]]:
    """Partitions of the member's last target that it may keep, ordered by topic and partition."""
    member = group.members[member_id]
    return [
        (topic_id, partition)
        for topic_id in sorted(member.target)
        if topic_id in member.topics
        for partition in sorted(member.target[topic_id])
        if partition < group.partition_counts[topic_id]
    ]


def _assign_counted(group: GroupSpec) -> Stepwise[dict[str, Target]]:
    targets: dict[str, Target] = {member_id: {} for member_id in group.members}
    first = next(iter(group.members.values()), None)
    if first is None:
        return targets
    topics = sorted(first.topics)
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in topics}
    kept: dict[str, list[tuple[bytes, int]]] = {}
    pace = Pace()
    for member_id in group.members:
        mine = [each for each in _still_valid(group, member_id) if each[1] not in taken[each[0]]]
        for topic_id, number in mine:
            taken[topic_id].add(number)
        kept[member_id] = mine
        if pace.is_full(1 + len(mine)):
            yield
    quota, with_one_more = divmod(sum(group.partition_counts[topic_id] for topic_id in topics), len(group.members))
    # Members above the quota keep one of the extra partitions while there are any, because that moves the least.
    quotas: dict[str, int] = {}
    for member_id in sorted(group.members, key=lambda each: -len(kept[each])):
        quotas[member_id] = quota + (1 if with_one_more > 0 else 0)
        with_one_more -= 1
    for member_id, mine in kept.items():
        for topic_id, number in mine[: quotas[member_id]]:
            targets[member_id].setdefault(topic_id, set()).add(number)
        for topic_id, number in mine[quotas[member_id] :]:
            taken[topic_id].discard(number)
        if pace.is_full(1 + len(mine)):
            yield
    free = (
        (topic_id, number)
        for topic_id in topics
        for number in range(group.partition_counts[topic_id])
        if number not in taken[topic_id]
    )
    for member_id in group.members:
        for _ in range(quotas[member_id] - min(len(kept[member_id]), quotas[member_id])):
            topic_id, number = next(free)
            targets[member_id].setdefault(topic_id, set()).add(number)
            if pace.is_full(1):
                yield
        if pace.is_full(1):
            yield
    assert next(free, None) is None, "quotas must add up to all partitions"
    return targets


class _Balancing:
    """Assignment among members with different subscriptions."""

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._pace = Pace()
        self._targets: dict[str, Target] = {member_id: {} for member_id in group.members}
        self._loads: dict[str, int] = dict.fromkeys(group.members, 0)
        self._owners: dict[bytes, dict[int, str]] = {}
        self._subscribers: dict[bytes, list[str]] = {}
        self._places = {member_id: place for place, member_id in enumerate(group.members)}

    def run(self) -> Stepwise[dict[str, Target]]:
        for member_id, member in self._group.members.items():
            for topic_id in sorted(member.topics):
                self._subscribers.setdefault(topic_id, []).append(member_id)
            if self._pace.is_full(1 + len(member.topics)):
                yield
        topics = self._topics_by_choice()
        yield from self._keep()
        for topic_id in topics:
            yield from self._give_out(topic_id)
        for _ in range(MOST_ROUNDS):
            moved = 0
            for topic_id in topics:
                moved += yield from self._even_out(topic_id)
            if not moved:
                break
        return self._targets

    def _topics_by_choice(self) -> list[bytes]:
        """Topics with the most partitions per subscriber first: they weigh most and have the fewest possible owners."""

        def choice(topic_id: bytes) -> tuple[float, int, bytes]:
            subscribers = len(self._subscribers[topic_id])
            return (-self._group.partition_counts[topic_id] / subscribers, subscribers, topic_id)

        return sorted(self._subscribers, key=choice)

    def _keep(self) -> Stepwise[None]:
        for member_id in self._group.members:
            valid = _still_valid(self._group, member_id)
            for topic_id, number in valid:
                if number not in self._owners.setdefault(topic_id, {}):
                    self._assign(topic_id, number, member_id)
            if self._pace.is_full(1 + len(valid)):
                yield

    def _assign(self, topic_id: bytes, number: int, member_id: str) -> None:
        owners = self._owners.setdefault(topic_id, {})
        before = owners.get(number)
        if before is not None:
            self._targets[before][topic_id].discard(number)
            self._loads[before] -= 1
        owners[number] = member_id
        self._targets[member_id].setdefault(topic_id, set()).add(number)
        self._loads[member_id] += 1

    def _give_out(self, topic_id: bytes) -> Stepwise[None]:
        """Assign each unassigned partition of the topic to its least loaded subscriber."""
        owners = self._owners.setdefault(topic_id, {})
        free = [number for number in range(self._group.partition_counts[topic_id]) if number not in owners]
        if self._pace.is_full(1 + len(owners) // 10):
            yield
        if not free:
            return
        by_load = [(self._loads[each], self._places[each], each) for each in self._subscribers[topic_id]]
        heapify(by_load)
        if self._pace.is_full(len(by_load)):
            yield
        for number in free:
            load, place, member_id = heappop(by_load)
            self._assign(topic_id, number, member_id)
            heappush(by_load, (load + 1, place, member_id))
            if self._pace.is_full(1):
                yield

    def _even_out(self, topic_id: bytes) -> Stepwise[int]:
        """Move partitions of one topic among its subscribers until no move improves the balance. Returns the number of
        moves.
        """
        subscribers = self._subscribers[topic_id]
        if len(subscribers) < 2:
            return 0
        givers = [(-self._loads[each], self._places[each], each) for each in subscribers]
        takers = [(self._loads[each], self._places[each], each) for each in subscribers]
        heapify(givers)
        heapify(takers)
        moved = 0
        if self._pace.is_full(len(subscribers)):
            yield
        while givers:
            if self._pace.is_full(1):
                yield
            giver = givers[0][2]
            if not self._targets[giver].get(topic_id):
                heappop(givers)
                continue
            if -givers[0][0] != self._loads[giver]:
                heappop(givers)
                heappush(givers, (-self._loads[giver], self._places[giver], giver))
                continue
            load, place, taker = takers[0]
            if load != self._loads[taker]:
                heappop(takers)
                heappush(takers, (self._loads[taker], place, taker))
                continue
            if self._loads[giver] - load <= 1:
                return moved
            owned = self._targets[giver][topic_id]
            if self._pace.is_full(len(owned) // 20):
                yield
            self._assign(topic_id, max(owned), taker)
            moved += 1
        return moved
