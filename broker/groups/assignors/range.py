"""Core: the range assignor, which cuts every topic into one contiguous range of partitions per subscriber.

Members have the same order for every topic. So partitions with the same number meet in one member if their topics have
the same subscribers and the same number of partitions (co-partitioning, for joins).
"""

from __future__ import annotations

from barnabas.broker.groups.assignors.assignor import GroupSpec, Pace
from barnabas.broker.groups.consumer_member import Partitions
from barnabas.runtime.at_once import Stepwise


def assign_ranges(group: GroupSpec) -> Stepwise[dict[str, Partitions]]:
    targets: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in group.members}
    subscribers: dict[bytes, list[str]] = {}
    pace = Pace()
    for member_id in _ordered(group):
        topics = group.members[member_id].topics
        for topic_id in sorted(topics):
            subscribers.setdefault(topic_id, []).append(member_id)
        if pace.is_full(1 + len(topics)):
            yield
    for topic_id, member_ids in subscribers.items():
        quota, with_one_more = divmod(group.partition_counts[topic_id], len(member_ids))
        start = 0
        for place, member_id in enumerate(member_ids):
            end = start + quota + (1 if place < with_one_more else 0)
            if end > start:
                targets[member_id][topic_id] = frozenset(range(start, end))
            if pace.is_full(1 + end - start):
                yield
            start = end
    return dict(targets)


def _ordered(group: GroupSpec) -> list[str]:
    """Static members first, ordered by their instance id, which survives restarts; then dynamic members."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = group.members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(group.members, key=place)
