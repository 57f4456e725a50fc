"""Core: input and output of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from barnabas.broker.groups.consumer_member import Partitions
from barnabas.runtime.at_once import Stepwise


class MemberSpec(NamedTuple):
    """A group member as an assignor sees it."""

    instance_id: str | None
    topics: frozenset[bytes]
    """Ids of its subscribed topics, all of them keys of `GroupSpec.partition_counts`."""
    target: Partitions
    """Its previous target assignment."""


class GroupSpec(NamedTuple):
    """All members of a group and the sizes of their topics."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[bytes, int]
    """Number of partitions of every subscribed topic."""

    @property
    def is_homogeneous(self) -> bool:
        """True if all members subscribe to the same topics."""
        first = next(iter(self.members.values()), None)
        return first is None or all(member.topics == first.topics for member in self.members.values())


Assign = Callable[[GroupSpec], Stepwise[dict[str, Partitions]]]
"""Computes a target for every member. Each partition of a subscribed topic is in exactly one of them."""

STEP_ITEMS = 500
"""Members and partitions, together, that one step of an assignor handles."""


class Pace:
    """Counts what an assignor has handled, to end its steps in time."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items = 0

    def is_full(self, items: int) -> bool:
        """Count items; True if the step has to end: the caller yields."""
        self._items += items
        if self._items < STEP_ITEMS:
            return False
        self._items = 0
        return True


def frozen(targets: Mapping[str, Mapping[bytes, Collection[int]]]) -> Stepwise[dict[str, Partitions]]:
    """The targets in their final form, without topics of which a member gets nothing."""
    result: dict[str, Partitions] = {}
    pace = Pace()
    for member_id, target in targets.items():
        result[member_id] = {topic_id: frozenset(indexes) for topic_id, indexes in target.items() if indexes}
        if pace.is_full(1 + sum(map(len, target.values()))):
            yield
    return result
