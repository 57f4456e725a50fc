"""Core: the description of a group, read one member at a time, because a group may have very many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

Group = TypeVar("Group", bound=Any)
Member = TypeVar("Member")


class Description(NamedTuple, Generic[Group, Member]):
    """A consistent view of one group: later changes of the group do not affect it."""

    group: Group
    """The described group, still without members."""
    members: Iterator[Member]
    """Its members, to be appended to `group.members`."""

    def complete(self) -> Group:
        """The group with all its members, which may take long."""
        self.group.members.extend(self.members)
        return self.group
