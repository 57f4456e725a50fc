"""The promises of groups, checked as their members gain and lose partitions, commit, and begin where others stopped.

- A partition has one owner. Who takes it on while another still has it shows that the coordinator counted that one
  out; it may not do so within the session of a member that it has answered.
- A committed offset stays: who takes a partition on begins where its last owner has committed. Members only commit what
  is further on, so it never goes back; nothing that an earlier owner still says changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.cluster.simulation.findings import Findings
from barnabas.cluster.simulation.invariants.partitions import PartitionKey

SESSION_PART = 0.95
"""How much of a session is certain: clocks do not run alike."""


class GroupPartition(NamedTuple):
    group: str
    key: PartitionKey

    def __str__(self) -> str:
        return f"{self.key} in {self.group}"


@dataclass(slots=True)
class _Owner:
    """One who has a partition."""

    unheard_ms: Callable[[], int]
    """Since when the coordinator may not have heard of it."""
    session_timeout_ms: int


@dataclass(slots=True)
class _Offsets:
    acked: int = -1
    client: str = ""
    """Who took the partition on last."""
    unknown: dict[int, None] = field(default_factory=dict)
    """Commits that it asked for: any of them may come into force, and a late one after one that was acknowledged."""


class GroupPromises:
    """Of all groups of one universe."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._owners: dict[GroupPartition, dict[str, _Owner]] = {}
        self._offsets: dict[GroupPartition, _Offsets] = {}

    # ---- who has what

    def takes_on(self, place: GroupPartition, client: str, unheard_ms: Callable[[], int], session_ms: int) -> None:
        owners = self._owners.setdefault(place, {})
        for other, owner in owners.items():
            unheard = owner.unheard_ms()
            if other != client and unheard < owner.session_timeout_ms * SESSION_PART:
                self._findings.report(f"{place}: {client} takes it on, {other} has it, and was heard {unheard} ms ago")
        owners[client] = _Owner(unheard_ms, session_ms)

    def gives_up(self, place: GroupPartition, client: str) -> None:
        self._owners.get(place, {}).pop(client, None)

    def is_gone(self, client: str) -> None:
        """It was killed, or left."""
        for owners in self._owners.values():
            owners.pop(client, None)

    def owners(self, place: GroupPartition) -> list[str]:
        return list(self._owners.get(place, ()))

    # ---- how far it has come

    def begins_at(self, place: GroupPartition, client: str, offset: int) -> None:
        """A member takes it on, and was told that the group has come so far; -1: nowhere."""
        known = self._offsets.setdefault(place, _Offsets())
        self._findings.check(
            offset >= known.acked or offset in known.unknown,
            lambda: f"{place}: {known.acked} was committed, and {client} is told {offset}",
        )
        # Whoever had it before cannot commit any more: what is under way came in time, or never will.
        known.client, known.unknown = client, {}

    def commits(self, place: GroupPartition, client: str, offset: int) -> None:
        """A member asks to commit."""
        known = self._offsets.setdefault(place, _Offsets())
        if known.client == client:
            known.unknown[offset] = None

    def committed(self, place: GroupPartition, offset: int) -> None:
        """And was told that it is."""
        known = self._offsets[place]
        known.acked = max(known.acked, offset)

    def acked_offset(self, place: GroupPartition) -> int:
        return self._offsets.get(place, _Offsets()).acked
