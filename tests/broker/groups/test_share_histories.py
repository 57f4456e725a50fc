"""Histories of a share group beside a plain one: members join, stay, change, leave and fall silent; topics come and go;
states are initialized, altered and deleted; writes fail; coordinators move. Each seed is another one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from barnabas.broker.groups.assignors.assignor import MemberSpec
from barnabas.broker.groups.assignors.simple import assign_shares
from barnabas.broker.groups.group import Client
from barnabas.broker.groups.share_topics import TopicStates
from barnabas.broker.groups.topic_hashes import TopicHashes
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.runtime.at_once import at_once
from tests.broker.groups.machine_bench import Bench

pytestmark = pytest.mark.feature("CG-17", "CG-18")

E = ErrorCode
GROUP = "work"
SESSION_MS, HEARTBEAT_MS, INTERVAL_MS = 45_000, 5_000, 1_000
REFRESH_MS = 2**31 - 1
MEMBERS, TOPICS = ("a", "b", "c"), ("x", "y", "z")
NO_CLIENT = Client("", "")
BROKEN = KafkaError(E.NOT_COORDINATOR)

Partitions = dict[bytes, frozenset[int]]
States = dict[bytes, TopicStates]


@dataclass(frozen=True)
class PlainMember:
    client: Client = NO_CLIENT
    rack: str | None = None
    names: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = field(default_factory=dict)


@dataclass
class PlainGroup:
    """All that the log holds of the group, and a few things that it does not."""

    epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assigned_at_ms: int = 0
    members: dict[str, PlainMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    initializing: States = field(default_factory=dict)
    initialized: States = field(default_factory=dict)
    deleting: dict[bytes, str] = field(default_factory=dict)
    checked: tuple[int, int] = (0, 0)
    """Time of the next look at the topics, and the epoch for which it was set. Lost with the coordinator."""

    def copy(self) -> PlainGroup:
        copied = replace(self)
        for name in ("members", "targets", "initializing", "initialized", "deleting"):
            setattr(copied, name, dict(getattr(self, name)))
        return copied

    def names(self) -> set[str]:
        return {name for member in self.members.values() for name in member.names}

    def begin(self, states: States) -> None:
        for topic_id, it in states.items():
            self.deleting.pop(topic_id, None)
            known = self.initializing.get(topic_id)
            parts = it.partitions | (known.partitions if known is not None else frozenset())
            self.initializing[topic_id] = TopicStates((known or it).name, parts)

    def drop(self, topic_ids: Any) -> None:
        for topic_id in topic_ids:
            for states in (self.initializing, self.initialized, self.deleting):
                states.pop(topic_id, None)

    def end(self, states: States, *, is_done: bool) -> None:
        for topic_id, it in states.items():
            known = self.initializing.get(topic_id)
            if known is None:
                continue
            left = known.partitions - it.partitions
            if left:
                self.initializing[topic_id] = known._replace(partitions=left)
            else:
                del self.initializing[topic_id]
            if is_done:
                before = self.initialized.get(topic_id, TopicStates(it.name, frozenset()))
                self.initialized[topic_id] = TopicStates(it.name, before.partitions | it.partitions)


class History:
    """The machine under test, and a plain group."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.interval_ms = chance.choice([0, INTERVAL_MS])
        self.bench = Bench(group__share__assignment__interval__ms=str(self.interval_ms), group__share__max__size="2")
        self.bench.run(self.bench.machine.loaded)
        self.group: PlainGroup | None = None
        self.under_way: dict[bytes, set[int]] = {}
        self.sessions: dict[str, int] = {}
        self.asked: list[tuple[int, States]] = []
        """Initializations that the port works on."""
        self.notes: list[tuple[str, str]] = []
        self.noted = 0
        self.rebalances = 0

    # -- the plain rules of a heartbeat

    def ids(self, names: Any) -> set[bytes]:
        topics = self.bench.image.topics.by_name
        return {topics[name].id for name in names if name in topics}

    def note(self, what: str, cause: str) -> None:
        self.notes.append((what, cause))

    def hash_of(self, names: Any) -> int:
        return TopicHashes().of_group(sorted(names), self.bench.image)

    def wrong(self, request: ShareGroupHeartbeatRequest) -> tuple[ErrorCode, str] | None:
        """The first reason against a heartbeat."""
        group, epoch, name = self.group, request.member_epoch, request.member_id
        if epoch == 0 and not request.subscribed_topic_names:
            return E.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."
        if group is None and epoch != 0:
            return E.GROUP_ID_NOT_FOUND, f"Group {GROUP} not found."
        if epoch == -1 and group is not None and name in group.members:
            return None
        unknown = E.UNKNOWN_MEMBER_ID, f"Member {name} is not a member of group {GROUP}."
        if group is None or name not in group.members:
            if epoch != -1 and group is not None and len(group.members) >= 2:
                return E.GROUP_MAX_SIZE_REACHED, "The share group has reached its maximum capacity of 2 members."
            return None if epoch == 0 else unknown
        member = group.members[name]
        if epoch in (0, member.epoch, member.previous_epoch):
            return None
        known = f"than the one known by the group coordinator ({member.epoch})"
        again = "The member must abandon all its partitions and rejoin."
        if epoch > member.epoch:
            return (
                E.FENCED_MEMBER_EPOCH,
                f"The share group member has a greater member epoch ({epoch}) {known}. {again}",
            )
        before = f"and it does not match the previous member epoch ({member.previous_epoch})"
        return (
            E.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({epoch}) {known}, {before}. {again}",
        )

    def remove(self, name: str, cause: str) -> None:
        group = self.group
        assert group is not None
        del group.members[name]
        group.targets.pop(name, None)
        self.sessions.pop(name, None)
        group.epoch += 1
        group.metadata_hash = self.hash_of(group.names())
        left = len(group.members)
        self.note(f"group {GROUP} begins epoch {group.epoch}", f"{cause}; {left or 'no'} members remain")

    def next_epoch(self, group: PlainGroup, name: str, before: PlainMember | None, after: PlainMember) -> None:
        now_ms = self.bench.monotonic_ms
        owned: dict[bytes, set[int]] = {}
        for target in group.targets.values():
            for topic_id, indexes in target.items():
                owned.setdefault(topic_id, set()).update(indexes)
        old_names = group.names()
        waiting = any(
            it.name in old_names and owned.get(topic_id, set()) != it.partitions
            for topic_id, it in group.initialized.items()
        )
        group.members[name] = after
        cause = ""
        if before is None:
            cause = f"{name} joined"
        elif before.names != after.names:
            cause = f"{name} changed its subscribed topics"
        elif group.assignment_epoch >= group.epoch and waiting:
            cause = "the states of further partitions are initialized"
        at_ms, epoch = group.checked
        if not cause and now_ms < at_ms and group.epoch >= epoch:
            return
        metadata_hash = self.hash_of(group.names())
        if cause or metadata_hash != group.metadata_hash:
            group.epoch += 1
            group.metadata_hash = metadata_hash
            self.note(
                f"group {GROUP} begins epoch {group.epoch}", cause or "partitions or racks of its topics have changed"
            )
        group.checked = (now_ms + REFRESH_MS, group.epoch)

    def assign(self, group: PlainGroup) -> None:
        wall_ms = self.bench.now.wall_ms
        too_soon = group.assigned_at_ms and 0 <= wall_ms - group.assigned_at_ms < self.interval_ms
        if group.assignment_epoch >= group.epoch or too_soon:
            return
        specs = {
            name: MemberSpec(None, frozenset(self.ids(it.names)), group.targets.get(name, {}))
            for name, it in group.members.items()
        }
        assignable = {topic_id: it.partitions for topic_id, it in group.initialized.items()}
        targets = at_once(assign_shares(specs, assignable))
        group.targets = {name: dict(it) for name, it in targets.items()}
        self.note(
            f"group {GROUP} has a new target assignment of epoch {group.epoch} for {len(specs)} members",
            f"the previous one had epoch {group.assignment_epoch}; assignor simple",
        )
        group.assignment_epoch, group.assigned_at_ms = group.epoch, wall_ms
        self.rebalances += 1

    def missing(self, group: PlainGroup) -> States:
        found = {}
        for name in sorted(group.names()):
            topic = self.bench.image.topics.by_name.get(name)
            if topic is not None:
                settled = set(self.under_way.get(topic.id, ()))
                if topic.id in group.initialized:
                    settled |= group.initialized[topic.id].partitions
                if len(settled) < len(topic.partitions):
                    found[topic.id] = TopicStates(name, frozenset(topic.partitions) - settled)
        return found

    def begins(self, states: States) -> None:
        for topic_id, it in states.items():
            self.under_way.setdefault(topic_id, set()).update(it.partitions)

    # -- one heartbeat

    def beat(self) -> None:
        chance = self.chance
        name = chance.choice(MEMBERS)
        member = None if self.group is None else self.group.members.get(name)
        epoch = 0 if member is None else member.epoch
        epoch = chance.choice([*[epoch] * 8, 0, -1, epoch + 1, max(1, epoch - 1), -1])
        if member is not None and chance.random() < 0.2:
            epoch = max(member.previous_epoch, 1)
        names = chance.sample(TOPICS, chance.choice([1, 2, 2]))
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=name,
            member_epoch=epoch,
            rack_id=chance.choice([None, None, None, "r"]),
            subscribed_topic_names=names if epoch == 0 or chance.random() < 0.15 else None,
        )
        if chance.random() < 0.05:
            request.subscribed_topic_names = None
        client = chance.choice([Client("c", "/1"), Client("c", "/1"), Client("d", "/2")])
        is_broken = chance.random() < 0.1
        size = len(self.bench.log)
        self.bench.broken = BROKEN if is_broken else None
        try:
            answer = self.bench.ask(self.bench.machine.shares.heartbeat, request, client)
        except KafkaError as error:
            answer = error
        self.bench.broken = None
        if (wrong := self.wrong(request)) is not None:
            assert (answer.error_code, answer.error_message) == wrong
            assert len(self.bench.log) == size
            return
        before, group = self.group, (self.group or PlainGroup()).copy()
        noted, rebalances = len(self.notes), self.rebalances
        if epoch == -1:
            sessions = dict(self.sessions)
            self.group = group
            self.remove(name, f"{name} left")
            if is_broken:
                assert isinstance(answer, KafkaError)
                self.group, self.sessions, self.notes = before, sessions, self.notes[:noted]
            else:
                assert (answer.error_code, answer.member_epoch, answer.member_id) == (E.NONE, -1, name)
            return
        assigned, missing = self.joins_or_stays(group, request, client)
        self.sessions[name] = self.bench.monotonic_ms + SESSION_MS
        is_written = is_changed(before, group) or bool(missing)
        if is_broken and is_written:
            assert isinstance(answer, KafkaError) and answer.code is BROKEN.code
            if before is not None:
                before.checked = group.checked
            else:
                self.sessions.pop(name)
            if before is not None and name not in before.members:
                self.sessions.pop(name)
            self.notes = self.notes[:noted]
            self.bench.events.share_rebalances -= self.rebalances - rebalances
            self.rebalances = rebalances
            return
        self.group = group
        self.begins(missing)
        after = group.members[name]
        assert (answer.error_code, answer.error_message, answer.member_id) == (E.NONE, None, name)
        assert (answer.member_epoch, answer.heartbeat_interval_ms) == (after.epoch, HEARTBEAT_MS)
        shown = None if answer.assignment is None else partitions_of(answer.assignment.topic_partitions)
        is_shown = epoch == 0 or request.subscribed_topic_names is not None or assigned != after.assigned
        assert shown == (after.assigned if is_shown else None)
        if missing:
            self.asked.append((group.epoch, missing))

    def joins_or_stays(
        self, group: PlainGroup, request: ShareGroupHeartbeatRequest, client: Client
    ) -> tuple[Partitions, States]:
        """Changes the group; returns the former assignment of the member, and the states that are to be initialized."""
        name, asked = request.member_id, request.subscribed_topic_names
        before = group.members.get(name)
        known = before or PlainMember()
        after = replace(
            known,
            client=client,
            rack=known.rack if request.rack_id is None else request.rack_id,
            names=known.names if asked is None else frozenset(asked),
        )
        epoch = group.epoch
        self.next_epoch(group, name, before, after)
        self.assign(group)
        if group.epoch != epoch or after.epoch != group.assignment_epoch:
            mine = self.ids(after.names)
            target = {topic_id: it for topic_id, it in group.targets.get(name, {}).items() if topic_id in mine}
            after = replace(after, assigned=target)
            if after.epoch != group.assignment_epoch:
                after = replace(after, epoch=group.assignment_epoch, previous_epoch=after.epoch)
        group.members[name] = after
        missing = self.missing(group)
        group.begin(missing)
        return known.assigned, missing

    # -- the rest of the world

    def port(self) -> None:
        """Initializations end, in any order, with success or without."""
        if not self.asked:
            return
        _, states = self.asked.pop(self.chance.randrange(len(self.asked)))
        done = {topic_id: it for topic_id, it in states.items() if self.chance.random() < 0.75}
        failed = {topic_id: it for topic_id, it in states.items() if topic_id not in done}
        shares = self.bench.machine.shares
        self.bench.run(lambda now: shares.initialization_ended(GROUP, done, failed, now))
        self.ended(done, failed)

    def ended(self, done: States, failed: States) -> None:
        for topic_id, it in (*done.items(), *failed.items()):
            self.under_way.get(topic_id, set()).difference_update(it.partitions)
        if self.group is not None:
            self.group.end(done, is_done=True)
            self.group.end(failed, is_done=False)

    def code_of(self, ask: Any, *arguments: Any) -> Any:
        try:
            return self.bench.ask(ask, *arguments)
        except KafkaError as error:
            return error.code

    def alter(self) -> None:
        """Steps of the admin requests: alteration of offsets, deletion of them, deletion of the group."""
        chance, machine = self.chance, self.bench.machine
        shares, group = machine.shares, self.group
        refused = E.NON_EMPTY_GROUP if group is not None and group.members else None
        existing = {it.id: it for it in self.bench.image.topics.by_name.values()}
        chosen = [topic_id for topic_id in existing if chance.random() < 0.6]
        match chance.choice(["alter", "alter", "delete topics", "end topics", "delete"]):
            case "alter":
                states = {it: TopicStates(existing[it].name, frozenset([0])) for it in chosen}
                answer = self.code_of(shares.begin_alteration, GROUP, states)
                if refused is not None:
                    assert answer is refused
                    return
                group = self.group = group or PlainGroup()
                group.epoch += 1
                group.metadata_hash = self.hash_of(())
                group.begin(states)
                assert answer == group.epoch
                done = {it: states[it] for it in chosen if chance.random() < 0.7}
                failed = {it: states[it] for it in chosen if it not in done}
                assert self.bench.ask(shares.end_alteration, GROUP, done, failed) is None
                self.ended(done, failed)
            case "end topics":
                answer = self.code_of(shares.end_topic_deletion, GROUP, chosen)
                assert answer is (E.GROUP_ID_NOT_FOUND if group is None else None)
                if group is not None:
                    group.drop(chosen)
            case "delete topics" | "delete" as how:
                topics = [*group.initialized, *group.initializing] if group and how == "delete" else chosen
                arguments = (GROUP,) if how == "delete" else (GROUP, chosen)
                step = shares.begin_deletion if how == "delete" else shares.begin_topic_deletion
                answer = self.code_of(step, *arguments)
                if group is None or refused is not None:
                    assert answer is (refused or E.GROUP_ID_NOT_FOUND)
                    return
                known = {**group.initializing, **group.initialized}
                names = {it: known[it].name for it in topics if it in known}
                deleting = {**group.deleting, **names}
                group.drop(topics)
                group.deleting = deleting
                assert answer == {it: frozenset(existing[it].partitions) for it in deleting if it in existing}
                if how == "delete":
                    self.bench.ask(machine.delete, GROUP)
                    self.note(f"group {GROUP} is deleted, with its offsets", "requested by DeleteGroups")
                    self.group = None

    def topics(self) -> None:
        chance, bench = self.chance, self.bench
        name = chance.choice(TOPICS)
        topic = bench.image.topics.by_name.get(name)
        if topic is None:
            bench.create_topic(name, chance.choice([1, 2, 3]))
        elif chance.random() < 0.5:
            bench.delete_topic(name)
        else:
            bench.recreate_topic(name)
        if self.group is not None:
            if topic is not None:
                self.group.drop([topic.id])
            if name in self.group.names():
                self.group.checked = (0, 0)

    def time(self) -> None:
        bench, chance = self.bench, self.chance
        ends = [at_ms - bench.monotonic_ms for at_ms in self.sessions.values()]
        time_ms = chance.choice([1, INTERVAL_MS - 1, INTERVAL_MS, 10_000, 20_000, *ends, *[it - 1 for it in ends]])
        time_ms = max(0, REFRESH_MS if chance.random() < 0.02 else time_ms)
        until_ms = bench.monotonic_ms + time_ms
        ordered = [key[2] for key in bench.timers.waiting if isinstance(key, tuple) and key[0] == "share-session"]
        bench.advance(time_ms)
        for name, at_ms in sorted(self.sessions.items(), key=lambda it: (it[1], ordered.index(it[0]))):
            if at_ms <= until_ms:
                late = f"it sent nothing for {SESSION_MS} ms"
                self.note(f"member {name} of group {GROUP} is fenced", late)
                self.remove(name, f"{name} is fenced, {late}")

    def moves(self) -> None:
        """Another broker coordinates the group; the old port's work is lost, or ends there."""
        if self.chance.random() < 0.5:
            self.bench.compact()
        self.bench.reload()
        self.under_way, self.asked = {}, []
        found = self.bench.machine.shares.find(GROUP)
        if self.group is not None and found is not None:
            # The order of members is that of the log.
            self.group.members = {name: self.group.members[name] for name in found.members}
            self.group.checked = (0, 0)
            self.sessions = dict.fromkeys(self.group.members, self.bench.monotonic_ms + SESSION_MS)

    def set_clock(self) -> None:
        """The wall clock is set, ahead or back."""
        self.bench.clock_error_ms += self.chance.choice([-1, -1, 1, -self.interval_ms, -3_600_000, 3_600_000])

    # -- checks

    def check(self) -> None:
        bench = self.bench
        found, group = bench.machine.shares.find(GROUP), self.group
        assert (found is None) == (group is None)
        given = [(epoch, dict(states)) for _, epoch, states in bench.share_states.asked]
        assert given == self.asked[len(self.asked) - len(given) :]
        bench.share_states.asked = []
        decided = bench.decisions.since(self.noted + 1)
        self.noted += len(decided)
        assert sorted((it.what, it.cause) for it in decided) == sorted(self.notes)
        self.notes = []
        assert bench.events.share_rebalances == self.rebalances
        if found is None or group is None:
            return
        assert (found.epoch, found.metadata_hash) == (group.epoch, group.metadata_hash)
        assert (found.assignment_epoch, found.assignment_timestamp_ms) == (group.assignment_epoch, group.assigned_at_ms)
        topics = found.topics
        assert (dict(topics.initializing), dict(topics.initialized)) == (group.initializing, group.initialized)
        assert (dict(topics.deleting), dict(found.targets)) == (group.deleting, group.targets)
        assert sorted(found.subscribed) == sorted(group.names())
        assert {name: self.plain_of(it) for name, it in found.members.items()} == group.members
        for name in group.members:
            assert bench.timers.deadline_ms(("share-session", GROUP, name)) == self.sessions[name]
        described = bench.machine.describe_share(GROUP).complete()
        assert (described.group_state, described.group_epoch) == ("Stable" if group.members else "Empty", group.epoch)
        existing = {it.id for it in bench.image.topics.by_name.values()}
        for member in described.members:
            assigned = {it: parts for it, parts in group.members[member.member_id].assigned.items() if it in existing}
            assert partitions_of(member.assignment.topic_partitions) == assigned

    @staticmethod
    def plain_of(member: Any) -> PlainMember:
        client = Client(member.client_id, member.client_host)
        epochs = member.epoch, member.previous_epoch
        return PlainMember(client, member.rack_id, member.topic_names, *epochs, dict(member.assigned))


def partitions_of(topics: Any) -> Partitions:
    return {it.topic_id: frozenset(it.partitions) for it in topics}


def is_changed(before: PlainGroup | None, after: PlainGroup) -> bool:
    """True if something is written."""
    return before is None or replace(before, checked=(0, 0)) != replace(after, checked=(0, 0))


@pytest.mark.parametrize("seed", range(16))
def test_a_share_group_is_like_a_plain_one(seed: int) -> None:
    history = History(seed)
    for name in TOPICS[:2]:
        history.bench.create_topic(name, 2)
    steps = [history.beat] * 12 + [history.port] * 4 + [history.time] * 3
    steps += [history.alter, history.alter, history.topics, history.topics, history.moves, history.set_clock]
    for _ in range(120):
        history.chance.choice(steps)()
        history.check()
