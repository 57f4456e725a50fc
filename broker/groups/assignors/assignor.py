"""Core: input and output of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.broker.groups.consumer_member import Partitions


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


Assign = Callable[[GroupSpec], dict[str, Partitions]]
"""Computes a target for every member. Each partition of a subscribed topic is in exactly one of them."""
