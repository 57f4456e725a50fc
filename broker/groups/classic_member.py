"""Core: one member of a classic group, with its metadata and its waiting requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.broker.coordinator.outcome import Now, Reply
from barnabas.broker.groups.group import Client
from barnabas.protocol.messages.join_group import JoinGroupRequestProtocol


class MemberProtocol(NamedTuple):
    """An assignment protocol that a member supports, with its metadata in the clients' own format."""

    name: str
    metadata: bytes


def member_protocols(protocols: Iterable[JoinGroupRequestProtocol]) -> tuple[MemberProtocol, ...]:
    """Protocols of a JoinGroup, in the member's order of preference."""
    return tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in protocols)


def metadata_of(protocols: tuple[MemberProtocol, ...], name: str) -> bytes:
    """The metadata of the protocol with this name; empty if there is none."""
    return next((protocol.metadata for protocol in protocols if protocol.name == name), b"")


def size_of(protocols: tuple[MemberProtocol, ...]) -> int:
    """Bytes of the metadata of all protocols."""
    return sum(len(protocol.metadata) for protocol in protocols)


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    group_instance_id: str | None
    """If set, a static member, which keeps its place while it is away (KIP-345)."""
    client: Client
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    """After a failover only the group's chosen protocol; the log keeps no others."""
    assignment: bytes = b""

    # Not durable from here on.
    is_new: bool = False
    """The member has not been in a generation yet."""
    awaiting_join: Reply | None = None
    awaiting_sync: Reply | None = None
    session_deadline_ms: int = 0
    """Monotonic. The timer of the session is due at this time or earlier."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def renew_session(self, now: Now) -> None:
        """Record a sign of life."""
        self.session_deadline_ms = now.monotonic_ms + self.session_timeout_ms

    def is_excused(self) -> bool:
        """True if the member waits for the coordinator and need not send heartbeats. A new member may have disconnected
        and joined again under another id, so its wait is limited.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """Its metadata for that protocol; empty if it does not support it."""
        return metadata_of(self.protocols, protocol_name)

    def protocol_names(self) -> list[str]:
        """Distinct names, in the member's order of preference."""
        return list(dict.fromkeys(protocol.name for protocol in self.protocols))

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that it prefers; it must support at least one."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)
