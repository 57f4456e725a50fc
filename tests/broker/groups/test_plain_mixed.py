"""Histories of a consumer group with members of both protocols, beside a plain one: those of `test_plain_consumers.py`,
and members that join, sync, send heartbeats and leave with the classic protocol.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest

from barnabas.broker.coordinator.outcome import Reply
from barnabas.broker.groups import assignment_turns, consumer_heartbeat
from barnabas.broker.groups.group import Client
from barnabas.protocol.embedded_consumer import read_assignment, write_subscription
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from tests.broker.groups.plain_consumers import UNRELEASED, UNREVOKED, Place, PlainGroup, PlainMember
from tests.broker.groups.test_plain_consumers import AT_ONCE, BROKEN, CLIENTS, GROUP, SESSION_MS, SIZE, TOPICS, History

pytestmark = pytest.mark.feature("CG-16")

E = ErrorCode


class Said(NamedTuple):
    """Content of a JoinGroup."""

    name: str
    client: Client
    topics: list[str]
    owned: dict[str, list[int]]
    rack: str | None


class MixedHistory(History):
    def __init__(self, seed: int) -> None:
        self.joins: dict[str, int] = {}
        """Until when a member has to join again."""
        self.syncs: dict[str, int] = {}
        self.patience: dict[str, int] = {}
        """Session timeouts that members chose."""
        super().__init__(seed)

    # -- what the rest of the history needs

    def soft_state(self) -> list[dict[str, Any]]:
        return [*super().soft_state(), self.joins, self.syncs, self.patience]

    def forget(self, name: str) -> None:
        super().forget(name)
        for timers in (self.joins, self.syncs, self.patience):
            timers.pop(name, None)

    def moves(self) -> None:
        self.joins, self.syncs, self.patience = {}, {}, {}
        super().moves()

    def joins_or_stays(self, group: PlainGroup, request: Any, client: Client) -> PlainMember:
        self.patience.pop(request.member_id, None)
        return super().joins_or_stays(group, request, client)

    def other_timers(self, ranks: dict[Any, int]) -> list[tuple[int, int, str, str]]:
        return [
            (at_ms, ranks[f"consumer-{kind}", GROUP, name], kind, name)
            for kind, timers in (("join", self.joins), ("sync", self.syncs))
            for name, at_ms in timers.items()
        ]

    def comes(self, what: str, name: str, at_ms: int) -> None:
        is_member = self.group is not None and name in self.group.members
        if what in ("join", "sync"):
            del (self.joins if what == "join" else self.syncs)[name]
            if is_member:
                self.fence(name, f"it did not {'rejoin' if what == 'join' else 'sync'} in time")
        elif what == "session" and is_member:
            self.fence(name, f"it sent nothing for {self.patience.get(name, SESSION_MS)} ms")
        else:
            super().comes(what, name, at_ms)

    def lives(self, name: str) -> None:
        assert self.group is not None
        member = self.group.members.get(name)
        if member is not None and member.classic is not None:
            self.patience[name] = member.classic[0]
            self.sessions[name] = self.now_ms + member.classic[0]

    def ask(self, command: Any, request: Any, version: int, client: Client) -> Any:
        answers: list[Any] = []
        reply = Reply(answers.append, answers.append)
        try:
            self.bench.run(partial(command, request, client, version, reply))
        except KafkaError as error:
            return error.code
        (answer,) = answers
        return answer

    def somebody(self) -> tuple[str, str | None]:
        """A member, and its instance id, mostly."""
        chance, members = self.chance, {} if self.group is None else self.group.members
        classic = [name for name, it in members.items() if it.classic is not None]
        name = chance.choice([*classic * 4, *members, "x", "y", "z"])
        instance = members[name].instance if name in members else None
        if chance.random() < 0.1:
            instance = chance.choice([None, "one", "two"])
        return name, instance

    # -- JoinGroup

    def join(self) -> None:
        chance, group = self.chance, self.group
        if group is None or not group.members:
            return
        name, instance = self.somebody()
        known = group.members.get(name)
        if name not in group.members and chance.random() < 0.3:
            name, instance = "", chance.choice([None, "one", "one"])
        elif known is not None and known.instance is not None and chance.random() < 0.3:
            name = ""
        topics, rack = chance.sample(TOPICS, chance.choice([0, 1, 2])), chance.choice([None, None, "r"])
        if known is not None and chance.random() < 0.7:
            topics = sorted(known.names)
        owned = self.some_owned(known)
        metadata = subscription(topics, owned, rack) if chance.random() < 0.95 else b"bad"
        names = chance.choice([("range",)] * 5 + [("range", "sticky"), ("sticky", "range"), ("sticky",), ()])
        version = chance.choice([0, 1, 3, 4, 9, 9])
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=chance.choice([10_000, 50_000]),
            rebalance_timeout_ms=chance.choice([15_000, 30_000, -1]),
            member_id=name,
            group_instance_id=instance,
            protocol_type="consumer" if chance.random() < 0.97 else "connect",
            protocols=[JoinGroupRequestProtocol(name=it, metadata=metadata) for it in names],
        )
        client, is_broken, size = chance.choice(CLIENTS), chance.random() < 0.1, len(self.bench.log)
        self.bench.broken = BROKEN if is_broken else None
        answer = self.ask(self.bench.machine.classic.join, request, version, client)
        self.bench.broken = None
        wrong = self.wrong_join(group, request, version, metadata)
        if wrong is not None:
            assert (answer.error_code, len(self.bench.log)) == (wrong, size)
            assert bool(answer.member_id) == (wrong is E.MEMBER_ID_REQUIRED)
            return
        is_refused = isinstance(answer, ErrorCode)
        name = name or self.drawn(group, answer)
        self.joined(group, request, version, Said(name, client, topics, owned, rack), is_broken=is_broken)
        assert is_refused == (self.group is group)
        if self.group is not group:
            member = self.group.members[name] if self.group is not None else PlainMember()
            assert (answer.error_code, answer.member_id, answer.generation_id) == (E.NONE, name, member.epoch)
            assert (answer.protocol_type, answer.protocol_name) == ("consumer", names[0])
        self.take_turns_soon()

    def drawn(self, group: PlainGroup, answer: Any) -> str:
        """The id of a new member, which only the timers know if it could not be written."""
        if not isinstance(answer, ErrorCode):
            return str(answer.member_id)
        known = {*group.members, *self.syncs}
        keys = [key for key in self.bench.timers.waiting if isinstance(key, tuple) and key[0] == "consumer-sync"]
        return next(str(key[2]) for key in keys if key[2] not in known)

    def wrong_join(
        self, group: PlainGroup, request: JoinGroupRequest, version: int, metadata: bytes
    ) -> ErrorCode | None:
        name, instance, names = request.member_id, request.group_instance_id, [it.name for it in request.protocols]
        if name not in group.members and len(group.members) >= SIZE:
            return E.GROUP_MAX_SIZE_REACHED
        classic = [it.classic[1] for it in group.members.values() if it.classic is not None]
        counts = Counter(protocol for protocols in classic for protocol, _ in protocols)
        if request.protocol_type != "consumer" or not any(counts[it] == len(classic) for it in names):
            return E.INCONSISTENT_GROUP_PROTOCOL
        if not name and instance is None and version >= 4:
            return E.MEMBER_ID_REQUIRED
        if metadata == b"bad":
            return E.INCONSISTENT_GROUP_PROTOCOL
        holder = group.holder(instance)
        if not name or instance is None or holder == name:
            return None
        return E.UNKNOWN_MEMBER_ID if holder is None else E.FENCED_INSTANCE_ID

    def joined(
        self, before: PlainGroup, request: JoinGroupRequest, version: int, said: Said, *, is_broken: bool
    ) -> None:
        name, client, topics, owned, rack = said
        instance, session_ms = request.group_instance_id, request.session_timeout_ms
        rebalance_ms = session_ms if version < 1 else max(request.rebalance_timeout_ms, 0)
        group, noted = before.copy(), len(self.notes)

        def say(member: PlainMember) -> PlainMember:
            return replace(
                member,
                client=client[:2],
                instance=member.instance if instance is None else instance,
                rack=member.rack if rack is None else rack,
                names=frozenset(topics),
                pattern="",
                rebalance_ms=rebalance_ms,
                classic=(session_ms, tuple((it.name, it.metadata) for it in request.protocols)),
            )

        holder = None if request.member_id else group.holder(instance)
        images = self.bench.image.topics.by_name
        reported = {(images[it].id, number) for it, numbers in owned.items() if it in images for number in numbers}
        self.changes(group, name, holder, say, reported, client)
        self.joins.pop(name, None)
        self.patience[name], self.sessions[name] = session_ms, self.now_ms + session_ms
        self.syncs[name] = self.now_ms + rebalance_ms
        if is_broken and (holder is not None or before.durable() != group.durable()):
            before.checked = group.checked
            del self.notes[noted:]
            return
        self.group = group
        for other in before.members.keys() - group.members.keys():
            self.forget(other)

    def some_owned(self, member: PlainMember | None) -> dict[str, list[int]]:
        if member is None:
            return {}
        names = {it.id: it.name for it in self.bench.image.topics.by_name.values()}
        places = self.chance.choice([[*member.assigned], [*member.assigned], [*member.held], [*member.revoking]])
        found: dict[str, list[int]] = {"gone": [0]}
        for topic_id, number in places:
            if topic_id in names:
                found.setdefault(names[topic_id], []).append(number)
        return found

    # -- SyncGroup, Heartbeat, LeaveGroup

    def wrong_member(self, name: str, instance: str | None, generation: int) -> ErrorCode | None:
        if self.group is None or not self.group.members:
            return E.UNKNOWN_MEMBER_ID
        if (code := self.named(name, instance)) is not None:
            return code
        member = self.group.members[name]
        if member.classic is None:
            return E.UNKNOWN_MEMBER_ID
        return None if generation == member.epoch else E.ILLEGAL_GENERATION

    def named(self, name: str, instance: str | None) -> ErrorCode | None:
        assert self.group is not None
        holder = name if instance is None else self.group.holder(instance)
        if holder is None or holder not in self.group.members:
            return E.UNKNOWN_MEMBER_ID
        return None if holder == name else E.FENCED_INSTANCE_ID

    def has_to_join(self, name: str) -> None:
        assert self.group is not None
        self.joins.setdefault(name, self.now_ms + self.group.members[name].rebalance_ms)

    def generation_of(self, name: str) -> int:
        epoch = self.group.members[name].epoch if self.group is not None and name in self.group.members else 1
        return epoch + self.chance.choice([0] * 10 + [1, -1])

    def sync(self) -> None:
        chance = self.chance
        name, instance = self.somebody()
        generation = self.generation_of(name)
        member = None if self.group is None else self.group.members.get(name)
        protocol = "range" if member is None or member.classic is None else member.classic[1][0][0]
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=name,
            group_instance_id=instance,
            generation_id=generation,
            protocol_type=chance.choice(["consumer", "consumer", "consumer", None, "connect"]),
            protocol_name=chance.choice([protocol, protocol, protocol, None, "other"]),
        )
        answer = self.ask(self.bench.machine.classic.sync, request, 5, CLIENTS[0])
        if (wrong := self.wrong_member(name, instance, generation)) is not None:
            assert answer is wrong
            return
        assert self.group is not None and member is not None
        if request.protocol_type == "connect" or request.protocol_name == "other":
            assert answer is E.INCONSISTENT_GROUP_PROTOCOL
        elif self.group.assignment_epoch > member.epoch and member.state is not UNREVOKED:
            assert answer is E.REBALANCE_IN_PROGRESS
            self.has_to_join(name)
        else:
            self.syncs.pop(name, None)
            self.lives(name)
            topics = self.bench.image.topics
            shown = read_assignment(answer.assignment).assigned_partitions
            given = {(topics.by_name[it.topic].id, number) for it in shown for number in it.partitions}
            assert given == {place for place in member.assigned if place[0] in topics.by_id}
            assert (answer.protocol_type, answer.protocol_name) == (request.protocol_type, request.protocol_name)

    def heartbeat(self) -> None:
        name, instance = self.somebody()
        generation = self.generation_of(name)
        request = HeartbeatRequest(
            group_id=GROUP, member_id=name, group_instance_id=instance, generation_id=generation
        )
        answer = self.ask(self.bench.machine.classic.heartbeat, request, 4, CLIENTS[0])
        if (wrong := self.wrong_member(name, instance, generation)) is not None:
            assert answer is wrong
            return
        assert self.group is not None
        self.lives(name)
        is_asked = self.should_join(self.group, name)
        assert answer.error_code == (E.REBALANCE_IN_PROGRESS if is_asked else E.NONE)
        if is_asked:
            self.has_to_join(name)

    def should_join(self, group: PlainGroup, name: str) -> bool:
        member = group.members[name]
        if member.epoch < group.assignment_epoch or member.state is UNREVOKED:
            return True
        missing: set[Place] = group.targets.get(name, set()) - member.assigned.keys()
        if member.state is UNRELEASED and not missing & group.owned():
            return True
        if group.assignment_epoch >= group.epoch or any(it.classic is None for it in group.members.values()):
            return False
        return not group.assigned_at_ms or not 0 <= self.wall_ms - group.assigned_at_ms < self.interval_ms

    def leave(self) -> None:
        chance, group = self.chance, self.group
        if group is None or not group.members:
            return
        version = chance.choice([2, 3, 5])
        people = [self.somebody() for _ in range(chance.choice([1, 1, 2]))]
        if chance.random() < 0.2:
            people.append(("", chance.choice([None, "one"])))
        asked = [MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in people]
        request = LeaveGroupRequest(group_id=GROUP, member_id=people[0][0], members=asked)
        answer = self.ask(self.bench.machine.classic.leave, request, version, CLIENTS[0])
        if version < 3:
            people = [(people[0][0], None)]
        gone, codes = {}, []
        for name, instance in people:
            holder = group.holder(instance)
            who = holder if not name and holder is not None else name
            codes.append(self.named(who, instance) or E.NONE)
            if codes[-1] is E.NONE:
                gone[who] = None
        assert codes == ([answer.error_code] if version < 3 else [it.error_code for it in answer.members])
        if version >= 3:
            assert [(it.member_id, it.group_instance_id) for it in answer.members] == people
        if gone:
            self.remove(group, list(gone), f"{', '.join(gone)} left")

    def check(self) -> None:
        super().check()
        if self.group is not None:
            for kind, timers in (("join", self.joins), ("sync", self.syncs)):
                for name in self.group.members:
                    assert self.bench.timers.deadline_ms((f"consumer-{kind}", GROUP, name)) == timers.get(name)


def subscription(topics: list[str], owned: dict[str, list[int]], rack: str | None) -> bytes:
    places = [ConsumerProtocolSubscriptionTopicPartition(topic=it, partitions=numbers) for it, numbers in owned.items()]
    return write_subscription(ConsumerProtocolSubscription(topics=topics, owned_partitions=places, rack_id=rack))


@pytest.mark.parametrize("seed", range(24))
def test_a_group_of_both_protocols_is_like_a_plain_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_heartbeat, "MOST_TOPICS", 3)
    monkeypatch.setattr(consumer_heartbeat, "MOST_OWNED_PARTITIONS", 6)
    history = MixedHistory(seed)
    if history.in_turns:
        monkeypatch.setattr(assignment_turns, "MOST_AT_ONCE", 0)
        monkeypatch.setattr(assignment_turns, "WRITTEN_AT_ONCE", AT_ONCE)
    for name in TOPICS[:2]:
        history.bench.create_topic(name, 2)
        history.created_at = history.bench.image.offset
    steps = [history.beat] * 5 + [history.join] * 8 + [history.sync] * 5 + [history.heartbeat] * 4 + [history.time] * 3
    steps += [history.leave, history.offsets, history.topics, history.moves, history.search_fails, history.set_clock]
    for _ in range(150):
        history.chance.choice(steps)()
        history.check()
