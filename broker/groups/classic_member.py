"""One member of a classic group: what it said of itself, and which of its requests wait. A core."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from broker.coordinator.outcome import Now, Reply
from broker.groups.group import Client
from protocol.messages.join_group import JoinGroupRequestProtocol


class MemberProtocol(NamedTuple):
    """A way of assigning that a member can take part in, and what it says for it. The bytes are the clients' own."""

    name: str
    metadata: bytes


def member_protocols(protocols: Iterable[JoinGroupRequestProtocol]) -> tuple[MemberProtocol, ...]:
    """As a JoinGroup has them: the member's first choice first."""
    return tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in protocols)


@dataclass(slots=True, eq=False)
class ClassicMember:
    """Who is in a group."""

    member_id: str
    group_instance_id: str | None
    """Set: a static member, whose place is kept while it is away (KIP-345)."""
    client: Client
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    """After a failover only the group's chosen one: the log keeps no others."""
    assignment: bytes = b""

    # What follows is not durable.
    is_new: bool = False
    """It has never been in a generation."""
    awaiting_join: Reply | None = None
    awaiting_sync: Reply | None = None
    session_deadline_ms: int = 0
    """Monotonic. A timer is due at this time or before."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def heard(self, now: Now) -> None:
        """It is alive."""
        self.session_deadline_ms = now.monotonic_ms + self.session_timeout_ms

    def is_excused(self) -> bool:
        """It waits for us, so it need not send heartbeats. One that is new may have gone meanwhile and come again
        under another id, so there must be an end to its waiting.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """What it said for that protocol; empty if it does not know it."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def protocol_names(self) -> list[str]:
        """Each once, in the member's order."""
        return list(dict.fromkeys(protocol.name for protocol in self.protocols))

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate it likes most; it knows at least one."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)
