"""Core: bytes that groups keep of what clients sent: protocols, subscriptions, assignments, topologies.

`GroupMemory` is the sum over all groups of a broker. At its limit clients can add nothing to a group. The log is
loaded whatever it takes: the coordinator that wrote it was within its limit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from barnabas.protocol.errors import ErrorCode, KafkaError

NAME_BYTES: Final = 60
"""Bytes of a name in memory, without its characters, and of the set that it is in."""

MEMBER_BYTES: Final = 2_000
"""Bytes of a member, without what it sends."""


class GroupMemory:
    """The sum over the groups of a broker, in bytes, and its limit."""

    __slots__ = ("held_bytes", "most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0

    def check_room(self, more_bytes: int) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED if a client asks for that much more than there is room for."""
        if more_bytes > 0 and self.held_bytes + more_bytes > self.most_bytes:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the groups of this broker hold {self.held_bytes} bytes and may hold {self.most_bytes}",
            )


class HeldBytes:
    """Bytes of one group. They count while the group is in a directory."""

    __slots__ = ("_memory", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._memory: GroupMemory | None = None

    def change(self, by: int) -> None:
        self.size_bytes += by
        if self._memory is not None:
            self._memory.held_bytes += by

    def count_in(self, memory: GroupMemory | None) -> None:
        """Count in this sum from now on; None for in no sum."""
        if self._memory is not None:
            self._memory.held_bytes -= self.size_bytes
        if memory is not None:
            memory.held_bytes += self.size_bytes
        self._memory = memory


def size_of_names(names: Collection[str]) -> int:
    return NAME_BYTES * len(names) + len("".join(names))
