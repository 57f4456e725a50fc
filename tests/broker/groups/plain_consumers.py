"""A consumer group (KIP-848) as a plain value, without records, counters or caches: what its members have and want, and
what one heartbeat makes of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from barnabas.broker.groups.assignors import ASSIGNORS
from barnabas.broker.groups.assignors.assignor import GroupSpec, MemberSpec
from barnabas.broker.groups.consumer_member import ConsumerMember, MemberState, Partitions
from barnabas.broker.groups.group_memory import MEMBER_BYTES, NAME_BYTES
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.runtime.at_once import at_once

Place = tuple[bytes, int]
"""A topic id and a partition."""

STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS
LEFT_FOR_A_WHILE = -2


@dataclass(frozen=True)
class PlainMember:
    client: tuple[str, str] = ("", "")
    instance: str | None = None
    rack: str | None = None
    names: frozenset[str] = frozenset()
    pattern: str = ""
    assignor: str | None = None
    rebalance_ms: int = -1
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = STABLE
    assigned: dict[Place, int] = field(default_factory=dict)
    """With the member epoch in which it was assigned."""
    revoking: dict[Place, int] = field(default_factory=dict)
    classic: tuple[int, tuple[tuple[str, bytes], ...]] | None = None
    """Session timeout, protocols and their metadata of a member with the classic protocol."""

    @property
    def held(self) -> set[Place]:
        """Partitions that it may still read."""
        return {*self.assigned, *self.revoking}

    def is_at(self, epoch: int) -> bool:
        return self.state is STABLE and self.epoch == epoch


@dataclass(frozen=True)
class Resolved:
    topics: frozenset[str]
    version: int
    at_ms: int


@dataclass
class PlainGroup:
    """All that the log holds of the group, and two things that it does not."""

    epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assigned_at_ms: int = 0
    members: dict[str, PlainMember] = field(default_factory=dict)
    targets: dict[str, set[Place]] = field(default_factory=dict)
    resolved: dict[str, Resolved] = field(default_factory=dict)
    """In the order of their searches."""
    checked: tuple[int, int] = (0, 0)
    """Time of the next look at the topics, and the epoch for which it was set. Lost with the coordinator."""
    must_reassign: bool = False
    """Lost with the coordinator."""

    def copy(self) -> PlainGroup:
        copied = replace(self)
        for name in ("members", "targets", "resolved"):
            setattr(copied, name, dict(getattr(self, name)))
        return copied

    def durable(self) -> PlainGroup:
        return replace(self, checked=(0, 0), must_reassign=False)

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(it.is_at(self.assignment_epoch) for it in self.members.values())
        return "Stable" if settled else "Reconciling"

    @property
    def patterns(self) -> dict[str, int]:
        """Members by pattern."""
        return Counter(it.pattern for it in self.members.values() if it.pattern)

    def topics(self) -> set[str]:
        """Subscribed by name or by pattern."""
        names = {name for it in self.members.values() for name in it.names}
        return names.union(*(self.resolved[it].topics for it in self.patterns if it in self.resolved))

    def topics_of(self, member: PlainMember) -> frozenset[str]:
        found = self.resolved.get(member.pattern)
        return member.names | (found.topics if found is not None else frozenset())

    def holder(self, instance: str | None) -> str | None:
        """The static member with this instance id."""
        held = (name for name, it in self.members.items() if instance is not None and it.instance == instance)
        return next(held, None)

    def owned(self) -> set[Place]:
        return {place for it in self.members.values() for place in it.held}

    def assigns_each_once(self, topics: TopicsImage) -> bool:
        """Each partition of its topics has one member that is to own it, and none has two."""
        counts = Counter(place for target in self.targets.values() for place in target)
        wanted = {
            (topic.id, number)
            for topic in (topics.by_name[name] for name in self.topics() if name in topics.by_name)
            for number in topic.partitions
        }
        return wanted <= counts.keys() and all(count == 1 for count in counts.values())

    def assignor(self, known: list[str]) -> str:
        return next((it for it in [self.favourite()] if it in known), known[0])

    def favourite(self) -> str:
        """The assignor with most votes; the first by name among equals."""
        votes = Counter(it.assignor for it in self.members.values() if it.assignor is not None)
        return min(votes, key=lambda name: (-votes[name], name), default="")

    def new_targets(self, assignor: str, topics: TopicsImage, last: dict[str, set[Place]]) -> dict[str, set[Place]]:
        """Targets that the assignor gives its members, which had `last`."""
        ids = {
            name: frozenset(topics.by_name[it].id for it in self.topics_of(member) if it in topics.by_name)
            for name, member in self.members.items()
        }
        counts = {it: len(topics.by_id[it].partitions) for found in ids.values() for it in sorted(found)}
        specs = {
            name: MemberSpec(it.instance, ids[name], by_topic(last.get(name, ()))) for name, it in self.members.items()
        }
        targets = at_once(ASSIGNORS[assignor](GroupSpec(specs, counts)))
        return {name: places_of(target) for name, target in targets.items()}

    @property
    def memory_bytes(self) -> int:
        members = self.members.values()
        names = [NAME_BYTES + len(name) for it in members for name in (*it.names, it.pattern) if name]
        metadata = [len(data) for it in members if it.classic is not None for _, data in it.classic[1]]
        return MEMBER_BYTES * len(members) + sum(names) + sum(metadata)


def by_topic(places: Iterable[Place]) -> Partitions:
    found: dict[bytes, set[int]] = {}
    for topic_id, number in places:
        found.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def places_of(partitions: Partitions) -> set[Place]:
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


@dataclass(frozen=True)
class Step:
    """A member's next step towards its target."""

    epoch: int
    """Epoch of the target."""
    target: set[Place]
    topics: set[bytes]
    """Those it subscribes to now."""
    changed: bool
    """Its subscription, by this heartbeat."""
    reported: set[Place] | None
    owned: set[Place]
    """By anybody."""

    def of(self, member: PlainMember) -> PlainMember:
        keeps_revoking = member.state is UNREVOKED and not self.has_revoked(member.revoking)
        is_there = member.is_at(self.epoch)
        if keeps_revoking or is_there:
            return self.without_unsubscribed(member) if self.changed else member
        return self.towards(member)

    def has_revoked(self, places: Iterable[Place]) -> bool:
        return self.reported is not None and not self.reported & set(places)

    def without_unsubscribed(self, member: PlainMember) -> PlainMember:
        lost = {place: epoch for place, epoch in member.assigned.items() if place[0] not in self.topics}
        if not lost:
            return member
        kept = {place: epoch for place, epoch in member.assigned.items() if place not in lost}
        after = replace(member, assigned=kept, previous_epoch=member.epoch)
        revoking = {**member.revoking, **lost}
        return after if self.has_revoked(revoking) else replace(after, state=UNREVOKED, revoking=revoking)

    def towards(self, member: PlainMember) -> PlainMember:
        wanted = {place for place in self.target if place[0] in self.topics}
        kept = {place: epoch for place, epoch in member.assigned.items() if place in wanted}
        revoking = {place: epoch for place, epoch in member.assigned.items() if place not in wanted}
        after = replace(member, assigned=kept, previous_epoch=member.epoch)
        if revoking and not self.has_revoked(revoking):
            return replace(after, state=UNREVOKED, revoking=revoking)
        missing = wanted - kept.keys()
        free = missing - (self.owned - member.revoking.keys())
        return replace(
            after,
            state=STABLE if free == missing else UNRELEASED,
            epoch=self.epoch,
            assigned={**kept, **dict.fromkeys(free, self.epoch)},
            revoking={},
        )


def plain_member(member: ConsumerMember) -> PlainMember:
    """The same of a member under test."""
    return PlainMember(
        (member.client_id, member.client_host),
        member.instance_id,
        member.rack_id,
        member.topic_names,
        member.topic_pattern,
        member.server_assignor,
        member.rebalance_timeout_ms,
        member.epoch,
        member.previous_epoch,
        member.state,
        {(topic_id, number): at for topic_id, owned in member.assigned.items() for number, at in owned.items()},
        {(topic_id, number): at for topic_id, owned in member.revoking.items() for number, at in owned.items()},
        None
        if member.classic is None
        else (
            member.classic.session_timeout_ms,
            tuple((it.name, it.metadata) for it in member.classic.supported_protocols),
        ),
    )
