"""Histories of a classic group beside a plain one: members join, sync, send heartbeats, leave, return, fall silent and
send what they must not; writes fail; coordinators move. Each seed is another one.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.broker.coordinator.outcome import Reply
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.group import Client
from barnabas.broker.groups.group_memory import NAME_BYTES
from barnabas.protocol.embedded_consumer import write_assignment
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.broker.groups.classic_shell import subscription
from tests.broker.groups.machine_bench import WALL_MS, Bench
from tests.broker.groups.plain_classic import (
    COMPLETING,
    EMPTY,
    GROUP,
    KNOWN_BYTES,
    PREPARING,
    STABLE,
    PlainClassic,
    PlainMember,
    Written,
)

pytestmark = pytest.mark.feature("CG-06", "CG-07", "CG-08", "CG-10", "CG-11")

E = ErrorCode
SIZE = 3
SESSIONS_MS = (10_000, 10_000, 20_000)
REBALANCES_MS = (30_000, 5_000, 60_000)
BROKEN = KafkaError(E.COORDINATOR_NOT_AVAILABLE)
INSTANCES = ("one", "two")

METADATA = [
    subscription("news"),
    subscription("news"),
    subscription("news", "sport"),
    subscription("news", owned={"news": [0]}),
    b"garbage",
]
PARTS = [write_assignment({"news": [0]}, 3), write_assignment({"news": [1]}, 3), b"", b"junk"]
KNOWN_BYTES.update(
    {
        METADATA[0]: (frozenset({"news"}), frozenset()),
        METADATA[2]: (frozenset({"news", "sport"}), frozenset()),
        METADATA[3]: (frozenset({"news"}), frozenset({("news", 0)})),
        PARTS[0]: (frozenset(), frozenset({("news", 0)})),
        PARTS[1]: (frozenset(), frozenset({("news", 1)})),
        b"": (frozenset(), frozenset()),
    }
)
PROTOCOLS = (("range",), ("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",), ("range", "range"), ())


class History:
    """The machine under test, and a plain group."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.kind = chance.choice(["consumer", "consumer", "connect"])
        self.delay_ms = chance.choice([0, 3_000])
        self.bench = Bench(
            group__initial__rebalance__delay__ms=str(self.delay_ms),
            group__max__size=str(SIZE),
            offsets__retention__check__interval__ms=str(2**50),
        )
        self.bench.run(self.bench.machine.loaded)
        self.plain: PlainClassic | None = None
        self.number = 0
        self.happened: list[tuple[int, Any]] = []
        self.noted = 0
        self.rebalances = 0
        self.last_written: Any = None

    def begin_with_old_record(self) -> None:
        """The group was written by an old version, which did not note the time."""
        names, metadata = {"old 1": "one", "old 2": None}, METADATA[0]
        members = [
            MemberMetadata(
                member_id=name,
                group_instance_id=instance,
                client_id="c",
                client_host="/1",
                rebalance_timeout=30_000,
                session_timeout=10_000,
                subscription=metadata,
                assignment=PARTS[0],
            )
            for name, instance in names.items()
        ]
        value = GroupMetadataValue(
            protocol_type=self.kind, generation=4, protocol="range", leader="old 1", members=members
        )
        self.bench.write(GroupMetadataKey(group=GROUP), value, 3)
        self.bench.reload()
        rows = [(name, it, ("c", "/1"), 30_000, 10_000, metadata, PARTS[0]) for name, it in names.items()]
        now_ms = self.bench.monotonic_ms
        plain = PlainClassic(self.delay_ms, SIZE, now_ms, WALL_MS + now_ms)
        plain.written = Written(self.kind, 4, "range", "old 1", None, tuple(rows))
        self.plain = self.loaded(plain)

    # -- asking

    def ask(self, command: Callable[..., Any], request: Any, version: int, client: Client) -> int:
        self.number += 1
        number = self.number

        def answered(response: Any) -> None:
            self.happened.append((number, response))

        try:
            self.bench.run(partial(command, request, client, version, Reply(answered, answered)))
        except KafkaError as error:
            answered(error.code)
        return number

    def step(self, ask: Callable[[], None]) -> None:
        """One step; its writes may fail."""
        is_broken = self.chance.random() < 0.1
        self.bench.broken = BROKEN if is_broken else None
        if self.plain is not None:
            self.last_written = self.plain.written
            self.plain.now_ms, self.plain.wall_ms = self.bench.monotonic_ms, WALL_MS + self.bench.monotonic_ms
            self.plain.answers, self.plain.notes, self.plain.writes = [], [], False
        ask()
        self.bench.broken = None

    @property
    def fails(self) -> bool:
        """The write of this step failed."""
        return self.bench.broken is not None and self.plain is not None and self.plain.writes

    def unwritten(self) -> PlainClassic:
        assert self.plain is not None
        self.plain.written, self.plain.notes = self.last_written, []
        return self.plain

    # -- joining

    def join(self) -> None:
        chance, plain = self.chance, self.plain
        name, instance = self.somebody()
        if chance.random() < 0.4 and (instance is None or chance.random() < 0.6):
            name = ""
        names = chance.choice(PROTOCOLS)
        if plain is not None and name in plain.members and chance.random() < 0.6:
            protocols = plain.members[name].protocols
        else:
            protocols = tuple((it, chance.choice(METADATA)) for it in names)
        version = chance.choice([0, 1, 3, 4, 8, 9, 9])
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=name,
            group_instance_id=instance,
            session_timeout_ms=chance.choice([*SESSIONS_MS * 4, 5_999, 1_800_001]),
            rebalance_timeout_ms=chance.choice([*REBALANCES_MS, -1]),
            protocol_type=self.kind if chance.random() < 0.95 else chance.choice(["", "other"]),
            protocols=[JoinGroupRequestProtocol(name=it, metadata=data) for it, data in protocols],
            reason=chance.choice([None, "because"]),
        )
        client = chance.choice([Client("c", "/1"), Client("d", "/2")])
        number = self.ask(self.bench.machine.classic.join, request, version, client)
        self.joined(number, request, version, client)

    def joined(self, number: int, request: JoinGroupRequest, version: int, client: Client) -> None:
        kind, is_created = request.protocol_type, self.plain is None
        if not 6_000 <= request.session_timeout_ms <= 1_800_000:
            self.expect(number, E.INVALID_SESSION_TIMEOUT)
            return
        if self.plain is None:
            if request.member_id or not kind or not request.protocols:
                self.expect(number, E.UNKNOWN_MEMBER_ID if request.member_id else E.INCONSISTENT_GROUP_PROTOCOL)
                return
            now_ms = self.bench.monotonic_ms
            self.plain = PlainClassic(self.delay_ms, SIZE, now_ms, WALL_MS + now_ms, since_ms=WALL_MS + now_ms)
            self.plain.write()
        plain = self.plain
        before, new = copy.deepcopy(plain), self.new_id(plain)
        leader, holder = plain.leader, plain.holder(request.group_instance_id)
        code = plain.join(number, request, version, (client.client_id, client.host), new)
        if code is not None:
            plain.answers.append((number, code))
        if not self.fails:
            return
        if is_created:
            self.plain = None
            self.expect(number, JoinGroupResponse(error_code=BROKEN.code))
        elif not request.member_id and holder is not None:
            self.returns_in_vain(before, holder, new, number, leader)
        else:
            self.unwritten()

    def returns_in_vain(self, before: PlainClassic, old: str, new: str, number: int, leader: str | None) -> None:
        """A static member keeps its former id, because the new one could not be written."""
        plain, was = self.unwritten(), before.members[old]
        member = plain.members.pop(new)
        member.protocols, member.rebalance_ms, member.session_ms = was.protocols, was.rebalance_ms, was.session_ms
        plain.members[old] = member
        plain.leader = leader
        if new in plain.unsynced:
            del plain.unsynced[new]
            plain.unsynced[old] = None
        plain.timers.pop(new)
        plain.watch(old)
        response = JoinGroupResponse(
            error_code=BROKEN.code,
            generation_id=plain.generation,
            protocol_type=plain.kind,
            protocol_name=plain.protocol,
            leader=leader or "",
        )
        plain.answers[-1] = (number, response)

    def new_id(self, plain: PlainClassic) -> str:
        """The id that the coordinator has drawn, if it has."""
        found = self.bench.machine.classic.find(GROUP)
        known = {*plain.members, *plain.expected}
        ids = [] if found is None else [it for it in (*found.members, *found.pending_join) if it not in known]
        ids += [it.member_id for _, it in self.happened if isinstance(it, JoinGroupResponse) and it.member_id]
        return next((it for it in ids if it not in known), "drawn")

    def somebody(self) -> tuple[str, str | None]:
        """Mostly a member or an id that was given to a client, with the instance id that it has."""
        chance, plain = self.chance, self.plain
        names = ["stranger"] if plain is None else [*plain.members, *plain.members, *plain.expected, "stranger"]
        name = chance.choice(names)
        member = None if plain is None else plain.members.get(name)
        instance = chance.choice([None, None, None, *INSTANCES]) if member is None else member.instance
        if chance.random() < 0.05:
            instance = chance.choice([None, *INSTANCES])
        return name, instance

    def expect(self, number: int, answer: Any) -> None:
        if self.plain is None:
            assert self.happened == [(number, answer)]
            self.happened = []
        else:
            self.plain.answers.append((number, answer))

    # -- other requests

    def sync(self) -> None:
        chance, plain = self.chance, self.plain
        name, instance = self.somebody()
        if plain is not None and plain.leader and chance.random() < 0.4:
            name, instance = plain.leader, plain.members[plain.leader].instance
        generation = 0 if plain is None else plain.generation
        kind, protocol = (None, None) if plain is None else (plain.kind, plain.protocol)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation - (chance.random() < 0.05),
            member_id=name,
            group_instance_id=instance,
            protocol_type=chance.choice([kind, kind, kind, kind, None, "other"]),
            protocol_name=chance.choice([protocol, protocol, protocol, protocol, None, "other"]),
            assignments=[
                SyncGroupRequestAssignment(member_id=it, assignment=chance.choice(PARTS))
                for it in (*(plain.members if plain is not None else ()), "nobody")
                if chance.random() < 0.9
            ],
        )
        number = self.ask(self.bench.machine.classic.sync, request, 5, Client("c", "/1"))
        if plain is None or plain.state == EMPTY:
            self.expect(number, E.UNKNOWN_MEMBER_ID)
        elif (code := self.wrong_sync(plain, request)) is not None:
            self.expect(number, code)
        else:
            self.synced(plain, number, request)

    @staticmethod
    def wrong_sync(plain: PlainClassic, request: SyncGroupRequest) -> ErrorCode | None:
        if (code := plain.stranger(request.member_id, request.group_instance_id)) is not None:
            return code
        if request.generation_id != plain.generation:
            return E.ILLEGAL_GENERATION
        said, actual = (request.protocol_type, request.protocol_name), (plain.kind, plain.protocol)
        if any(None not in (one, other) and one != other for one, other in zip(said, actual, strict=True)):
            return E.INCONSISTENT_GROUP_PROTOCOL
        return E.REBALANCE_IN_PROGRESS if plain.state == PREPARING else None

    def synced(self, plain: PlainClassic, number: int, request: SyncGroupRequest) -> None:
        superseded = plain.state == COMPLETING and plain.members[request.member_id].sync is not None
        parts = {it.member_id: it.assignment for it in request.assignments}
        has_assigned = plain.syncs(number, request.member_id, parts)
        if has_assigned and self.fails:
            self.unwritten()
            for place in range(superseded, len(plain.answers)):
                plain.answers[place] = (plain.answers[place][0], SyncGroupResponse(error_code=BROKEN.code))
            plain.refuses_syncs(BROKEN.code)
            plain.begins("the assignment could not be written")

    def heartbeat(self) -> None:
        chance, plain = self.chance, self.plain
        name, instance = self.somebody()
        generation = 0 if plain is None else plain.generation
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=generation + chance.choice([0] * 12 + [1, -1]),
            member_id=name,
            group_instance_id=instance,
        )
        number = self.ask(self.bench.machine.classic.heartbeat, request, 4, Client("c", "/1"))
        code = E.UNKNOWN_MEMBER_ID if plain is None else plain.stranger(name, instance)
        if plain is None or code is not None:
            self.expect(number, code)
        elif request.generation_id != generation:
            self.expect(number, E.ILLEGAL_GENERATION)
        else:
            plain.watch(name)
            code = E.REBALANCE_IN_PROGRESS if plain.state == PREPARING else E.NONE
            self.expect(number, HeartbeatResponse(error_code=code))

    def leave(self) -> None:
        chance, plain = self.chance, self.plain
        version = chance.choice([2, 3, 5])
        people = [self.somebody() for _ in range(1 if version < 3 else chance.choice([1, 1, 2]))]
        if chance.random() < 0.2:
            people.append(("", chance.choice([None, *INSTANCES])))
        asked = [MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in people]
        request = LeaveGroupRequest(group_id=GROUP, member_id=people[0][0], members=asked)
        number = self.ask(self.bench.machine.classic.leave, request, version, Client("c", "/1"))
        if version < 3:
            asked = [MemberIdentity(member_id=people[0][0])]
        results = [
            MemberResponse(
                member_id=it.member_id,
                group_instance_id=it.group_instance_id,
                error_code=E.UNKNOWN_MEMBER_ID if plain is None else self.leaves(plain, it),
            )
            for it in asked
        ]
        gone = [it.member_id for it in results if it.error_code == E.NONE]
        if plain is not None and gone:
            if plain.state in (STABLE, COMPLETING):
                plain.begins(f"{', '.join(gone)} left")
            else:
                plain.goes_on()
        response = (
            LeaveGroupResponse(members=results)
            if version >= 3
            else LeaveGroupResponse(error_code=results[0].error_code)
        )
        if self.fails:
            self.unwritten()
            response = LeaveGroupResponse(error_code=BROKEN.code)
        self.expect(number, response)

    @staticmethod
    def leaves(plain: PlainClassic, who: MemberIdentity) -> ErrorCode:
        name = who.member_id
        if not name:
            found = plain.holder(who.group_instance_id)
            if found is None:
                return E.UNKNOWN_MEMBER_ID
            name = found
        elif name not in plain.expected and (code := plain.stranger(name, who.group_instance_id)) is not None:
            return code
        plain.leaves(name)
        return E.NONE

    # -- time and coordinators

    def time(self) -> None:
        chance, bench, plain = self.chance, self.bench, self.plain
        ends = [] if plain is None else [at_ms - bench.monotonic_ms for at_ms in plain.timers.values()]
        time_ms = max(0, chance.choice([1, 499, 500, 3_000, *ends, *ends, *[it - 1 for it in ends]]))
        until_ms = bench.monotonic_ms + time_ms
        bench.advance(time_ms)
        while plain is not None and plain.timers:
            timer, at_ms = min(plain.timers.items(), key=lambda it: it[1])
            if at_ms > until_ms:
                break
            answers, notes = plain.answers, plain.notes
            plain.notes, plain.writes, written = [], False, plain.written
            plain.wall_ms = WALL_MS + max(plain.now_ms, at_ms)
            plain.is_due(timer)
            if plain.writes and bench.broken is not None:
                plain.written, plain.notes = written, []
            plain.answers, plain.notes = answers, notes + plain.notes
        bench.broken = None

    def moves(self) -> None:
        """Another broker coordinates the group, and reads its log."""
        for reply in self.bench.machine.give_up():
            reply.refuse(E.NOT_COORDINATOR)
        waiting = [] if self.plain is None else [(it.join, it.sync) for it in self.plain.members.values()]
        refused = [(number, E.NOT_COORDINATOR) for both in waiting for number in both if number is not None]
        assert self.happened == refused
        self.happened, self.bench.broken = [], None
        self.bench.reload()
        if self.plain is not None:
            self.plain = self.loaded(self.plain)

    def loaded(self, before: PlainClassic) -> PlainClassic:
        record = before.written
        assert record is not None
        plain = PlainClassic(self.delay_ms, SIZE, before.now_ms, before.wall_ms)
        plain.generation, plain.kind, plain.protocol = record.generation, record.kind, record.protocol
        plain.since_ms, plain.leader, plain.written = record.since_ms, record.leader, record
        plain.rebalances = before.rebalances
        for name, instance, client, rebalance_ms, session_ms, metadata, assignment in record.members:
            protocols = ((record.protocol or "", metadata),)
            plain.members[name] = PlainMember(instance, client, rebalance_ms, session_ms, protocols, assignment)
            plain.watch(name)
        plain.state = STABLE if plain.members else EMPTY
        plain.reads_topics()
        return plain

    def delete(self) -> None:
        try:
            self.bench.ask(self.bench.machine.delete, GROUP)
            code = None
        except KafkaError as error:
            code = error.code
        if self.plain is None:
            assert code is E.GROUP_ID_NOT_FOUND
        elif self.plain.state != EMPTY:
            assert code is E.NON_EMPTY_GROUP
        elif self.bench.broken is not None:
            assert code is BROKEN.code
        else:
            assert code is None
            (note,) = self.bench.decisions.since(self.noted + 1)
            self.noted += 1
            assert note.what == f"group {GROUP} is deleted, with its offsets"
            self.plain = None

    # -- checks

    def check(self) -> None:
        bench, plain = self.bench, self.plain
        decided = bench.decisions.since(self.noted + 1)
        self.noted += len(decided)
        assert [(it.what, it.cause) for it in decided] == ([] if plain is None else plain.notes)
        assert self.happened == ([] if plain is None else plain.answers)
        self.happened = []
        found = bench.machine.classic.find(GROUP)
        timers = {key: it[0] for key, it in bench.timers.waiting.items() if "classic" in str(key)}
        if plain is None or found is None:
            assert plain is None and found is None and not timers
            assert bench.machine.groups.memory.held_bytes == 0
            return
        self.rebalances, plain.rebalances = self.rebalances + plain.rebalances, 0
        assert bench.events.rebalances == self.rebalances
        assert timers == {self.key_of(timer): at_ms for timer, at_ms in plain.timers.items()}
        self.check_group(found, plain)

    @staticmethod
    def key_of(timer: str) -> tuple[str, ...]:
        return (f"classic {timer}", GROUP) if timer in ("join", "sync") else ("classic session", GROUP, timer)

    def check_group(self, found: ClassicGroup, plain: PlainClassic) -> None:
        assert (found.state.value, found.generation, found.kind or "") == (plain.state, plain.generation, plain.kind)
        assert (found.protocol_name, found.leader_id, found.since_ms) == (plain.protocol, plain.leader, plain.since_ms)
        assert (list(found.pending_join), list(found.pending_sync)) == (list(plain.expected), list(plain.unsynced))
        assert [
            (name, it.group_instance_id, it.client[:2], it.rebalance_timeout_ms, it.session_timeout_ms, it.protocols)
            for name, it in found.members.items()
        ] == [
            (name, it.instance, it.client, it.rebalance_ms, it.session_ms, it.protocols)
            for name, it in plain.members.items()
        ]
        assert [(it.assignment, it.is_new) for it in found.members.values()] == [
            (it.assignment, it.is_new) for it in plain.members.values()
        ]
        assert found.static_members == {
            it.instance: name for name, it in plain.members.items() if it.instance is not None
        }
        for topic in ("news", "sport", "other"):
            is_used = plain.kind == "consumer" if plain.topics is None else topic in plain.topics
            assert found.is_subscribed_to(topic) == is_used
        held = sum(NAME_BYTES + len(name) for name in plain.expected)
        for name, it in plain.members.items():
            held += 2 * (NAME_BYTES + len(name)) + len(it.assignment) + sum(len(data) for _, data in it.protocols)
        assert self.bench.machine.groups.memory.held_bytes == found.held.size_bytes == held
        is_stable = plain.state == STABLE
        described = self.bench.machine.describe_classic(GROUP, 6).complete()
        assert (described.group_state, described.protocol_type) == (plain.state, plain.kind)
        assert described.protocol_data == ((plain.protocol or "") if is_stable else "")
        assert [(it.member_id, it.member_metadata, it.member_assignment) for it in described.members] == [
            (name, it.metadata(plain.protocol) if is_stable else b"", it.assignment)
            for name, it in plain.members.items()
        ]


@pytest.mark.parametrize("seed", range(40))
def test_a_classic_group_is_like_a_plain_one(seed: int) -> None:
    history = History(seed)
    if seed % 4 == 3:
        history.begin_with_old_record()
        history.check()
    steps = [history.join] * 8 + [history.sync] * 7 + [history.heartbeat] * 3 + [history.leave] * 2
    steps += [*[history.time] * 4, history.moves, history.delete]
    for _ in range(150):
        history.step(history.chance.choice(steps))
        history.check()
