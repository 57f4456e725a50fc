"""The promises of groups, checked as their members gain and lose partitions, commit, and begin where others stopped.

- A partition has one owner. A member that takes it on while another still has it shows that the coordinator expelled
  the other one. It may not do so within the session of a member that it has answered. The coordinator is the one that
  the committed metadata named last. A coordinator that was deposed and does not know it still answers requests without
  records, in Kafka as well: its answers do not extend a session, and partitions that it assigns have no owner.
- A member of a group that changes its protocol gets an error that its group is gone only after its session.
- In one generation (or member epoch) no member takes on a partition that another one has taken on.
- A committed offset stays: a member that takes a partition on begins where its last owner has committed. Members only
  commit what is further on, so it never goes back; no late request of an earlier owner changes it.
- Members learn of committed offsets in two ways: by the answer to their commit, and when they take a partition on. No
  coordinator returns an offset that could still be lost (Kafka's answers an OffsetFetch for stable offsets when all
  that it has written so far is replicated), so the second counts as much. A member that ends early never gets the
  first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.kraft.metadata.image import NO_LEADER
from simulation.findings import Findings
from simulation.invariants.places import PartitionKey

SESSION_PART = 0.95
"""Part of a session that is certain, since clocks run at different rates."""
NEVER_SECONDS = 1e6


class GroupPartition(NamedTuple):
    group: str
    key: PartitionKey

    def __str__(self) -> str:
        return f"{self.key} in {self.group}"


class Coordinator(NamedTuple):
    """A node that answers for one partition of the groups' topic."""

    partition: int
    node_id: int


@dataclass(slots=True)
class _Owner:
    """One who has a partition."""

    unheard_ms: Callable[[], int]
    """Milliseconds for which the coordinator may not have received anything from it."""
    session_timeout_ms: int
    is_misled: bool
    """It has it from a coordinator that was deposed, and no other has counted it in since."""


@dataclass(slots=True)
class _Offsets:
    known: int = -1
    """The highest offset that a member knows to be committed."""
    client: str = ""
    """The member that took the partition on last."""
    unknown: dict[int, None] = field(default_factory=dict)
    """Commits that it asked for: any of them may come into force, and a late one after one that was acknowledged."""


class GroupPromises:
    """The promises of all groups of one universe."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._owners: dict[GroupPartition, dict[str, _Owner]] = {}
        self._offsets: dict[GroupPartition, _Offsets] = {}
        self._taken_on: dict[tuple[GroupPartition, int], str] = {}
        """By whom, in which generation."""
        self._leaders: dict[int, int] = {}
        self._heard_at: dict[str, float] = {}
        """Time at which each client sent its last request that the coordinator accepted."""
        self._misled: set[str] = set()
        """Clients whose last answer came from a deposed coordinator."""

    # ---- sessions

    def leads(self, partition: int, node_id: int) -> None:
        """The committed metadata name a leader of a partition of the groups' topic, or none: until they name another
        there is nobody else who could count members out."""
        if node_id != NO_LEADER:
            self._leaders[partition] = node_id

    def heard(self, client: str, by: Coordinator, unheard_ms: int) -> bool:
        """A member got a good answer to its request of `unheard_ms` ago; False if the answer is from a deposed
        coordinator.
        """
        if self._leaders.get(by.partition) != by.node_id:
            self._misled.add(client)
            return False
        self._misled.discard(client)
        self._heard_at[client] = self._findings.now() - unheard_ms / 1000
        for owners in self._owners.values():
            if client in owners:
                owners[client].is_misled = False
        return True

    def unheard_ms(self, client: str) -> int:
        """Milliseconds for which the coordinator may not have received anything from it."""
        return round((self._findings.now() - self._heard_at.get(client, -NEVER_SECONDS)) * 1000)

    def may_miss_its_group(self, client: str, session_ms: int) -> bool:
        """Whether a member with the consumer protocol may get the error that its group has another one. It may when all
        members that spoke it were expelled and classic members are left; Kafka's client gives up on that error as well.
        A member that never was in the group, or sent something within its session, may not.
        """
        was_in = client in self._heard_at or client in self._misled
        return was_in and self.unheard_ms(client) >= session_ms * SESSION_PART

    # ---- who has what

    def takes_on(self, place: GroupPartition, client: str, unheard_ms: Callable[[], int], session_ms: int) -> None:
        owners = self._owners.setdefault(place, {})
        is_misled = client in self._misled
        for other, owner in owners.items():
            if other == client or is_misled or owner.is_misled:
                continue
            unheard = owner.unheard_ms()
            if unheard < owner.session_timeout_ms * SESSION_PART:
                self._findings.report(f"{place}: {client} takes it on, {other} has it, accepted {unheard} ms ago")
        owners[client] = _Owner(unheard_ms, session_ms, is_misled)

    def takes_on_in(self, generation: int, place: GroupPartition, client: str) -> None:
        """The same, by the generation or member epoch that it has then; -1: it is out of the group already."""
        if generation < 0:
            return
        first = self._taken_on.setdefault((place, generation), client)
        self._findings.check(
            first == client, lambda: f"{place}: {first} and {client} both take it on in generation {generation}"
        )

    def gives_up(self, place: GroupPartition, client: str) -> None:
        self._owners.get(place, {}).pop(client, None)

    def is_gone(self, client: str) -> None:
        """It was killed, or left."""
        for owners in self._owners.values():
            owners.pop(client, None)
        self._heard_at.pop(client, None)
        self._misled.discard(client)

    def owners(self, place: GroupPartition) -> list[str]:
        return list(self._owners.get(place, ()))

    # ---- how far it has come

    def begins_at(self, place: GroupPartition, client: str, offset: int, *, is_committed: bool = True) -> None:
        """A member takes the partition on and gets this committed offset; -1: none. Not `is_committed`: it may have
        skipped transaction markers since, so that less may be committed."""
        owner = self._owners.get(place, {}).get(client)
        if owner is not None and owner.is_misled:
            return
        known = self._offsets.setdefault(place, _Offsets())
        self._findings.check(
            offset >= known.known or offset in known.unknown,
            lambda: f"{place}: {known.known} was committed, and {client} gets {offset}",
        )
        if is_committed:
            known.known = max(known.known, offset)
        # The owner before it can no longer commit: a commit under way arrived in time, or never will.
        known.client, known.unknown = client, {}

    def commits(self, place: GroupPartition, client: str, offset: int) -> None:
        """A member asks to commit."""
        known = self._offsets.setdefault(place, _Offsets())
        if known.client == client:
            known.unknown[offset] = None

    def committed(self, place: GroupPartition, offset: int) -> None:
        """A member got the acknowledgement of its commit."""
        known = self._offsets[place]
        known.known = max(known.known, offset)

    def known_offset(self, place: GroupPartition) -> int:
        """The highest committed offset that a member knows; -1: none."""
        return self._offsets.get(place, _Offsets()).known
