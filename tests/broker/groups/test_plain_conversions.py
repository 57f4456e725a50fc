"""Random groups that become groups of the other kind, beside what a plain rule makes of them: at once and in turns,
with the records, the decision notes, the timers and the number of turns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Outcome
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups import downgrades, upgrades
from barnabas.broker.groups.assignors import assignor
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_member import ConsumerMember, MemberState
from barnabas.broker.groups.topic_hashes import TopicHashes
from barnabas.protocol.embedded_consumer import read_assignment, write_assignment, write_subscription
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from barnabas.protocol.messages.group_log import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from barnabas.protocol.records.coordinator import decode_key, decode_versioned
from barnabas.protocol.schema import encode
from tests.broker.groups.consumer_rig import GROUP, REBALANCE_MS, TYPES, Reader
from tests.broker.groups.large_groups import TURN
from tests.broker.groups.plain_consumers import Place, PlainGroup, PlainMember, Step, by_topic, places_of, plain_member
from tests.broker.groups.test_migration import MixedRig

pytestmark = pytest.mark.feature("CG-16")

E = ErrorCode
GENERATION = 7
TURN_ITEMS = 25
"""Work of one turn, and of one step, here."""
MEMBER_ITEMS = 10
SESSION_MS = 45_000
BAD = b"\0\3bad"
Numbers = dict[str, list[int]]


@dataclass(frozen=True)
class Seat:
    """A member of a classic group, as its record has it."""

    name: str
    instance: str | None
    rack: str | None
    session_ms: int
    rebalance_ms: int
    topics: list[str]
    claimed: Numbers
    generation: int
    """In which it got what it claims."""
    part: Numbers
    user_data: bytes = b""
    bad: str = ""
    """The part that cannot be read: `subscription` or `assignment`."""

    @property
    def subscription(self) -> bytes:
        if self.bad == "subscription":
            return BAD
        return write_subscription(
            ConsumerProtocolSubscription(
                topics=self.topics,
                owned_partitions=[
                    ConsumerProtocolSubscriptionTopicPartition(topic=it, partitions=numbers)
                    for it, numbers in self.claimed.items()
                ],
                generation_id=self.generation,
                rack_id=self.rack,
            )
        )

    @property
    def assignment(self) -> bytes:
        if self.bad == "assignment":
            return BAD
        if not self.part and not self.user_data:
            return b""
        assignment = read_assignment(write_assignment(self.part))
        whole = ConsumerProtocolAssignment(
            assigned_partitions=assignment.assigned_partitions, user_data=self.user_data or None
        )
        return b"\0\3" + encode(whole, 3)


def some_seats(chance: random.Random, count: int) -> list[Seat]:
    """Their shares are disjoint, mostly; what they claim is not."""
    places = [
        (topic, number) for topic, numbers in (("news", 6), ("sport", 3), ("gone", 2)) for number in range(numbers)
    ]
    chance.shuffle(places)
    seats = []
    for number in range(count):
        mine = [places.pop() for _ in range(min(len(places), chance.choice([0, 1, 2, 3])))]
        claimed = [("news", it) for it in range(6) if chance.random() < 0.25] + mine[: chance.choice([0, 2])]
        seats.append(
            Seat(
                f"old {number}",
                f"instance {number}" if chance.random() < 0.2 else None,
                chance.choice([None, None, "r"]),
                chance.choice([10_000, 30_000]),
                chance.choice([60_000, 90_000]),
                chance.sample(["news", "sport", "gone"], chance.choice([1, 2, 3])),
                by_name(claimed),
                chance.choice([-1, GENERATION - 1, GENERATION - 1, GENERATION]),
                by_name(mine),
            )
        )
    if seats and chance.random() < 0.2:
        spoilt = chance.randrange(count)
        change: dict[str, Any] = chance.choice(
            [
                {"user_data": b"mine"},
                {"bad": "subscription"},
                {"bad": "assignment"},
                {"part": {"news": [0, 1, 2, 3, 4, 5]}},
            ]
        )
        seats[spoilt] = replace(seats[spoilt], **change)
    return seats


def by_name(places: Iterable[tuple[str, int]]) -> Numbers:
    found: Numbers = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return found


class ConvertingRig(MixedRig):
    """Counts the turns of a conversion."""

    turns = 0
    is_loaded = True

    def check(self) -> None:
        if self.is_loaded and not self.directory.is_frozen(GROUP):
            super().check()

    def await_answer(self, answers: list[Any]) -> None:
        while not answers:
            self.turn()

    def turn(self) -> None:
        assert self.timers.deadline_ms(TURN) == self.monotonic_ms + 1, "a turn of another step of the event loop"
        self.pass_ms(1)
        self.turns += 1

    def finish(self) -> None:
        while self.timers.deadline_ms(TURN) is not None:
            self.turn()

    def notes(self) -> list[tuple[str, str]]:
        return [(it.what, it.cause) for it in self.decisions.since(0)]

    def timers_of(self, *kinds: str) -> dict[Any, int]:
        """Deadlines by the rest of the key."""
        return {key[2:]: it[0] for key, it in self.timers.due.items() if key[0] in kinds}  # type: ignore[index]

    @property
    def topics(self) -> Any:
        return self.image.topics.by_name


@pytest.fixture(params=[False, True], ids=["at once", "in turns"])
def in_turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(upgrades, "AT_ONCE_ITEMS", 0)
        monkeypatch.setattr(upgrades, "TURN_ITEMS", TURN_ITEMS)
        monkeypatch.setattr(downgrades, "AT_ONCE_ITEMS", 0)
        monkeypatch.setattr(downgrades, "MEMBERS_IN_A_TURN", 2)
        monkeypatch.setattr(assignor, "STEP_ITEMS", TURN_ITEMS)
    is_in_turns: bool = request.param
    return is_in_turns


def full(items: Iterable[int]) -> int:
    """How many times so many items fill a step or a turn."""
    count = size = 0
    for it in items:
        size += it
        if size >= TURN_ITEMS:
            count, size = count + 1, 0
    return count


def batches(items: list[int]) -> int:
    """How many turns it takes to write so many items."""
    size = 0
    for it in items:
        size = 0 if size >= TURN_ITEMS else size
        size += it
    return full(items) + (0 < size < TURN_ITEMS)


# -- classic groups become consumer groups


def upgraded(seats: list[Seat], topics: Any) -> dict[str, PlainMember] | str:
    """The members, or the reason against an upgrade."""
    members: dict[str, PlainMember] = {}
    taken: set[Place] = set()
    for seat in seats:
        if seat.bad:
            return "malformed"
        if seat.user_data:
            return "custom assignor"
        mine = places(seat.part, topics)
        if mine & taken:
            return "more than one member"
        taken |= mine
        members[seat.name] = PlainMember(
            ("client", "/1"),
            seat.instance,
            seat.rack,
            frozenset(seat.topics),
            rebalance_ms=seat.rebalance_ms,
            epoch=GENERATION,
            previous_epoch=GENERATION,
            assigned=dict.fromkeys(mine, GENERATION),
            classic=(seat.session_ms, (("range", seat.subscription),)),
        )
    for seat in sorted(seats, key=lambda it: -it.generation):
        more = places(seat.claimed, topics) - taken
        taken |= more
        member = members[seat.name]
        members[seat.name] = replace(member, assigned={**member.assigned, **dict.fromkeys(more, GENERATION)})
    return members


def places(numbers: Numbers, topics: Any) -> set[Place]:
    """Those of topics that exist."""
    return {(topics[it].id, number) for it, found in numbers.items() if it in topics for number in found}


def turns_of_an_upgrade(seats: list[Seat], members: dict[str, PlainMember], topics: Any) -> int:
    read = full(MEMBER_ITEMS + len(set(it.topics)) + len(places(it.part, topics)) for it in seats)
    claims = full(MEMBER_ITEMS + len(places(it.claimed, topics)) for it in sorted(seats, key=lambda it: -it.generation))
    subscribed = full(1 + len(it.names) for it in members.values())
    written = batches([MEMBER_ITEMS + len(it.names) + len(it.assigned) for it in members.values()])
    return read + claims + subscribed + 1 + written + 1 + 1


def classic_rig(seats: list[Seat], kind: str, **settings: Any) -> ConvertingRig:
    rig = ConvertingRig(**settings)
    rig.create_topic("news", 6)
    rig.create_topic("sport", 3)
    members = [
        MemberMetadata(
            member_id=it.name,
            group_instance_id=it.instance,
            client_id="client",
            client_host="/1",
            rebalance_timeout=it.rebalance_ms,
            session_timeout=it.session_ms,
            subscription=it.subscription,
            assignment=it.assignment,
        )
        for it in seats
    ]
    value = GroupMetadataValue(
        protocol_type=kind, generation=GENERATION, protocol="range", leader=seats[0].name, members=members
    )
    rig.run(lambda now: Outcome([CoordinatorRecord(GroupMetadataKey(group=GROUP), value, 3)]))
    rig.run(rig.machine.classic.loaded)
    return rig


@pytest.mark.parametrize("seed", range(40))
def test_a_classic_group_is_upgraded_as_the_plain_rule_says(seed: int, in_turns: bool) -> None:
    chance = random.Random(seed)
    seats = some_seats(chance, chance.choice([1, 2, 3, 4, 5]))
    policy = chance.choice(["bidirectional"] * 4 + ["upgrade"] * 4 + ["downgrade", "Disabled"])
    size = chance.choice([len(seats) + 1] * 8 + [len(seats), len(seats) - 1])
    kind = chance.choice(["consumer"] * 12 + ["connect"])
    rig = classic_rig(seats, kind, group_consumer_migration_policy=policy, group_consumer_max_size=size)
    written = len(rig.log)
    for (name,), deadline_ms in rig.timers_of("classic session").items():
        # Timers of sessions come early, and look again.
        assert deadline_ms > rig.monotonic_ms + 1
        key = ("classic session", GROUP, name)
        rig.timers.due[key] = (rig.monotonic_ms + 1, *rig.timers.due[key][1:])
    new = Reader(rig, "new", "news", "sport")
    new.join()
    members = upgraded(seats, rig.topics)
    wrong = why_not(policy, kind, size, seats, members, in_turns=in_turns)
    assert new.error is (E.NONE if wrong is None else wrong[0]), new.response.error_message
    if wrong is not None or isinstance(members, str):
        assert wrong is not None and wrong[1] in (new.response.error_message or "")
        group = rig.directory.get(GROUP)
        assert isinstance(group, ClassicGroup) and group.state_name() == "Stable" and len(rig.log) == written
        assert not rig.notes() and rig.timers_of("consumer-session") == {}
        assert rig.timers_of("classic session").keys() == {(it.name,) for it in seats}
        return
    assert rig.turns == (turns_of_an_upgrade(seats, members, rig.topics) if in_turns else 0)
    check_upgraded(rig, members, seats, new, written, in_turns=in_turns)


def why_not(
    policy: str, kind: str, size: int, seats: list[Seat], members: dict[str, PlainMember] | str, *, in_turns: bool
) -> tuple[ErrorCode, str] | None:
    refused = E.GROUP_ID_NOT_FOUND
    if policy not in ("bidirectional", "upgrade"):
        return refused, "online upgrade is disabled"
    if kind != "consumer":
        return refused, "does not use the consumer embedded protocol"
    if len(seats) > size:
        return refused, "exceeds"
    found = None if not isinstance(members, str) else (refused, members)
    no_room = None if len(seats) < size else (E.GROUP_MAX_SIZE_REACHED, f"maximum capacity of {size} members")
    return no_room or found


def check_upgraded(
    rig: ConvertingRig, members: dict[str, PlainMember], seats: list[Seat], new: Reader, written: int, *, in_turns: bool
) -> None:
    topics, epoch = rig.image.topics, GENERATION + 1
    before = PlainGroup(GENERATION, 0, GENERATION, members=members)
    before.targets = {name: set(it.assigned) for name, it in members.items()}
    joined = PlainMember(("client", "/127.0.0.1"), names=frozenset({"news", "sport"}), rebalance_ms=REBALANCE_MS)
    after = PlainGroup(epoch, 0, epoch, members={**members, "new": joined})
    after.targets = after.new_targets("uniform", topics, before.targets)
    ids = {topics.by_name[it].id for it in ("news", "sport")}
    step = Step(epoch, after.targets["new"], ids, True, set(), before.owned())
    after.members["new"] = step.of(joined)
    group = rig.group
    assert {name: plain_member(it) for name, it in group.members.items()} == after.members
    assert {name: places_of(it) for name, it in group.targets.items()} == after.targets
    assert (group.epoch, group.assignment_epoch, group.must_reassign) == (epoch, epoch, False)
    assert group.metadata_hash == TopicHashes().of_group(["news", "sport"], rig.image)
    epochs = [value for key, value in map(decoded, rig.log[written:]) if isinstance(key, ConsumerGroupMetadataKey)]
    names = sorted({name for it in members.values() for name in it.names})
    assert epochs[0] == ConsumerGroupMetadataValue(GENERATION, TopicHashes().of_group(names, rig.image))
    assert rig.notes()[:2] == [
        (
            f"group {GROUP} becomes a consumer group",
            f"a member with the consumer protocol joins; {len(seats)} classic members remain",
        ),
        (f"group {GROUP} begins epoch {epoch}", "new joined"),
    ]
    assert rig.timers_of("classic session", "classic join", "classic sync") == {}
    sessions = rig.timers_of("consumer-session")
    assert sessions.pop((GROUP, "new")[1:]) == rig.monotonic_ms + SESSION_MS
    if not in_turns:
        assert sessions == {(it.name,): rig.monotonic_ms + it.session_ms for it in seats}
        return
    for it in seats:
        assert 0 < rig.monotonic_ms + it.session_ms - sessions[(it.name,)] < rig.turns, "from its own turn on"
    assert len(sessions) == len(seats) and rig.timers.deadline_ms(TURN) is None
    rig.fail_over(compacted=True)
    assert {name: plain_member(it) for name, it in rig.group.members.items()} == after.members


def decoded(record: tuple[bytes, bytes | None]) -> tuple[Any, Any]:
    key, value = decode_key(TYPES, record[0]), record[1]
    assert key is not None
    return key, None if value is None else decode_versioned(TYPES[key.API_KEY].value, value)[0]


# -- consumer groups become classic groups


def consumer_rig(chance: random.Random, seats: list[Seat], **settings: Any) -> ConvertingRig:
    """A consumer group of these classic members and a new one."""
    rig = ConvertingRig(**settings)
    rig.create_topic("news", 6)
    rig.create_topic("sport", 3)
    group = [CoordinatorRecord(it.key, it.value) for it in (records.group_epoch(GROUP, GENERATION, 5),)]
    taken: set[Place] = set()
    members = []
    for seat in seats:
        assigned = places(seat.part, rig.topics) - taken
        taken |= assigned
        revoking = places(seat.claimed, rig.topics) - taken
        taken |= revoking
        member = ConsumerMember(
            seat.name,
            epoch=chance.choice([GENERATION, GENERATION - 1]),
            state=MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE,
            instance_id=seat.instance,
            client_id="client",
            client_host="/1",
            rebalance_timeout_ms=seat.rebalance_ms,
            topic_names=frozenset(seat.topics),
            assigned={it: dict.fromkeys(sorted(found), 3) for it, found in by_topic(assigned).items()},
            revoking={it: dict.fromkeys(sorted(found), 3) for it, found in by_topic(revoking).items()},
            classic=ClassicMemberMetadata(
                session_timeout_ms=seat.session_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=seat.subscription)
                    for name in chance.choice([["range"], ["range", "sticky"], ["sticky", "range"]])
                ],
            ),
        )
        members.append(member)
    members.append(ConsumerMember("new", epoch=GENERATION, topic_names=frozenset({"news"}), rebalance_timeout_ms=1))
    for member in members:
        group += [
            records.member_metadata(GROUP, member),
            records.target_assignment(GROUP, member.member_id, {}),
            records.current_assignment(GROUP, member),
        ]
    group.append(records.target_assignment_epoch(GROUP, GENERATION, 0))
    rig.is_loaded = False
    rig.run(lambda now: Outcome(group))
    rig.is_loaded = True
    rig.run(rig.machine.consumer.loaded)
    rig.run(rig.machine.classic.loaded)
    return rig


def leave(rig: ConvertingRig) -> str:
    assert Reader(rig, "new", "news").leave().error_code == E.NONE
    return ""


def fall_silent(rig: ConvertingRig) -> str:
    for (name,) in rig.timers_of("consumer-session"):
        deadline_ms = rig.monotonic_ms + (SESSION_MS if name == "new" else 10 * SESSION_MS)
        key = ("consumer-session", GROUP, name)
        rig.timers.due[key] = (deadline_ms, *rig.timers.due[key][1:])
        rig.timers.cancel(("consumer-rebalance", GROUP, name))
    rig.pass_ms(SESSION_MS)
    return f"it sent nothing for {SESSION_MS} ms"


@pytest.mark.parametrize("goes", [leave, fall_silent])
@pytest.mark.parametrize("seed", range(24))
def test_a_consumer_group_is_downgraded_as_the_plain_rule_says(
    seed: int, goes: Callable[[ConvertingRig], str], in_turns: bool
) -> None:
    chance = random.Random(seed)
    seats = [replace(it, bad="", user_data=b"") for it in some_seats(chance, chance.choice([0, 1, 2, 3, 5, 6]))]
    policy = chance.choice(["bidirectional"] * 4 + ["Downgrade"] * 4 + ["upgrade", "disabled"])
    size = chance.choice([len(seats)] * 6 + [len(seats) + 1, max(1, len(seats) - 1)])
    rig = consumer_rig(chance, seats, group_consumer_migration_policy=policy, group_max_size=size)
    before = rig.group
    members = {name: it for name, it in before.members.items() if name != "new"}
    written = len(rig.log)
    silent = goes(rig)
    rig.finish()
    fenced = [(f"member new of group {GROUP} is fenced", silent)] if silent else []
    is_allowed = bool(seats) and policy.lower() in ("bidirectional", "downgrade") and len(seats) <= size
    if not is_allowed:
        left = len(seats) or "no"
        gone = f"new is fenced, {silent}" if silent else "new left"
        assert isinstance(rig.directory.get(GROUP), ConsumerGroup) and rig.turns == 0
        assert rig.notes() == [
            *fenced,
            (f"group {GROUP} begins epoch {GENERATION + 1}", f"{gone}; {left} members remain"),
        ]
        return
    assert rig.notes() == [
        *fenced,
        (
            f"group {GROUP} becomes a classic group",
            f"no member with the consumer protocol remains; {len(seats)} classic members do",
        ),
        (f"group {GROUP} rebalances, after generation {GENERATION}", "new left and used the consumer protocol"),
    ]
    held = [len(plain_member(it).held) for it in members.values()]
    removals = -(-max(0, len(seats) - 2) // 2)
    turns = removals + full(MEMBER_ITEMS + it for it in held) + 2 + 1 + 1
    assert rig.turns == (turns if in_turns else 0)
    check_downgraded(rig, members, seats, in_turns=in_turns)
    keys = [key for key, value in rig.log[written:] if value is None]
    assert len(keys) == len(set(keys)) == 3 * (len(seats) + 1) + 3, "each record has one tombstone"
    assert rig.log[-1][1] is not None and rig.log[-1][0] not in keys, "the classic group is written last"
    rig.fail_over(compacted=True)
    check_downgraded(rig, members, seats, in_turns=in_turns, is_loaded=True)


def check_downgraded(
    rig: ConvertingRig,
    members: dict[str, ConsumerMember],
    seats: list[Seat],
    *,
    in_turns: bool,
    is_loaded: bool = False,
) -> None:
    group = rig.directory.get(GROUP)
    assert isinstance(group, ClassicGroup)
    assert (group.kind, group.generation, group.state_name()) == ("consumer", GENERATION, "PreparingRebalance")
    assert group.is_unled and group.leader_id == seats[0].name
    assert list(group.members) == [it.name for it in seats]
    names = {it.id: name for name, it in rig.topics.items()}
    for seat in seats:
        member, was = group.members[seat.name], members[seat.name]
        assert was.classic is not None
        given = read_assignment(member.assignment).assigned_partitions
        parts = {(it.topic, number) for it in given for number in it.partitions}
        assert parts == {(names[topic_id], number) for topic_id, number in plain_member(was).held}
        assert (member.group_instance_id, member.client[:2]) == (seat.instance, ("client", "/1"))
        assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (seat.rebalance_ms, seat.session_ms)
        protocols = [(it.name, it.metadata) for it in was.classic.supported_protocols]
        assert list(member.protocols) == (protocols if not is_loaded else [(group.protocol_name, seat.subscription)])
    for topic in ("news", "sport", "gone", "other"):
        assert group.is_subscribed_to(topic) == any(topic in it.topics for it in seats)
    assert rig.timers_of("consumer-session", "consumer-rebalance") == {}
    sessions = rig.timers_of("classic session")
    assert rig.timers.deadline_ms(("classic join", GROUP)) == rig.monotonic_ms + max(it.rebalance_ms for it in seats)
    if is_loaded or not in_turns:
        assert sessions == {(it.name,): rig.monotonic_ms + it.session_ms for it in seats}
    else:
        assert sessions.keys() == {(it.name,) for it in seats}
        assert all(rig.monotonic_ms + it.session_ms - sessions[(it.name,)] <= rig.turns for it in seats)
