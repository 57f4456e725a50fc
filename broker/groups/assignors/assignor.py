"""What an assignor is asked and what it answers. A core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker.groups.consumer_member import Partitions


class MemberSpec(NamedTuple):
    """One member, as an assignor sees it."""

    instance_id: str | None
    topics: frozenset[bytes]
    """Ids of the topics it subscribes to. Each is in `GroupSpec.partition_counts`."""
    target: Partitions
    """What it was to have so far."""


class GroupSpec(NamedTuple):
    """The whole group."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[bytes, int]
    """Of every topic that somebody subscribes to."""

    @property
    def is_homogeneous(self) -> bool:
        """All members subscribe to the same topics."""
        first = next(iter(self.members.values()), None)
        return first is None or all(member.topics == first.topics for member in self.members.values())


Assign = Callable[[GroupSpec], dict[str, Partitions]]
"""A target for every member. Every partition that anybody subscribes to is in one of them, and in one only."""
