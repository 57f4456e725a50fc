"""The promises of groups, checked as their members gain and lose partitions, commit, and begin where others stopped.

- A partition has one owner. Who takes it on while another still has it shows that the coordinator counted that one
  out; it may not do so within the session of a member that it has answered. The coordinator is who the committed
  metadata named last. One that was deposed and has not heard of it goes on answering what needs no record, in Kafka as
  well: whom it answers is not counted in for that, and what it gives is nobody's.
- A member of a group that is migrated to and fro is told that its group is gone only after its session.
- In one generation (or member epoch) nobody takes on what another one has taken on.
- A committed offset stays: who takes a partition on begins where its last owner has committed. Members only commit what
  is further on, so it never goes back; nothing that an earlier owner still says changes it.
- Members hear of what is committed in two ways: by the answer to their commit, and when they take a partition on. No
  coordinator tells of what could still be lost (Kafka's answers an OffsetFetch that wants stable offsets when all that
  it has written so far is replicated), so the second counts as much. Nobody hears the first who ends before it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kraft.metadata.image import NO_LEADER
from simulation.findings import Findings
from simulation.invariants.places import PartitionKey

SESSION_PART = 0.95
"""How much of a session is certain: clocks do not run alike."""
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
    """Since when the coordinator may not have heard of it."""
    session_timeout_ms: int
    is_misled: bool
    """It has it from a coordinator that was deposed, and no other has counted it in since."""


@dataclass(slots=True)
class _Offsets:
    told: int = -1
    """The furthest of which a member was told that it is committed."""
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
        self._taken_on: dict[tuple[GroupPartition, int], str] = {}
        """By whom, in which generation."""
        self._leaders: dict[int, int] = {}
        self._heard_at: dict[str, float] = {}
        """When the last request of each client was sent that the coordinator took well."""
        self._misled: set[str] = set()
        """Whom a deposed coordinator has answered last."""

    # ---- who is heard of

    def leads(self, partition: int, node_id: int) -> None:
        """The committed metadata name a leader of a partition of the groups' topic, or none: until they name another
        there is nobody else who could count members out."""
        if node_id != NO_LEADER:
            self._leaders[partition] = node_id

    def heard(self, client: str, by: Coordinator, unheard_ms: int) -> bool:
        """A member is told that its request of `unheard_ms` ago is taken well; False if that is the word of a deposed
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
        """Since when the coordinator may not have heard of it."""
        return round((self._findings.now() - self._heard_at.get(client, -NEVER_SECONDS)) * 1000)

    def may_miss_its_group(self, client: str, session_ms: int) -> bool:
        """May a member that speaks the consumer protocol be told that its group is not of that kind? It may when all
        who spoke it were counted out and classic members are left; Kafka's client gives up on that word as well. Who
        never was in the group, or was heard of within its session, may not.
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
                self._findings.report(f"{place}: {client} takes it on, {other} has it, and was heard {unheard} ms ago")
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

    def begins_at(self, place: GroupPartition, client: str, offset: int) -> None:
        """A member takes it on, and was told that the group has come so far; -1: nowhere."""
        owner = self._owners.get(place, {}).get(client)
        if owner is not None and owner.is_misled:
            return
        known = self._offsets.setdefault(place, _Offsets())
        self._findings.check(
            offset >= known.told or offset in known.unknown,
            lambda: f"{place}: {known.told} was committed, and {client} is told {offset}",
        )
        known.told = max(known.told, offset)
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
        known.told = max(known.told, offset)

    def told_offset(self, place: GroupPartition) -> int:
        """How far the group has come, as its members know: -1 if nobody was told anything."""
        return self._offsets.get(place, _Offsets()).told
