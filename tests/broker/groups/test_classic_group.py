"""Classic groups: the Group protocol (commits, subscriptions), the table of states, and invalid input."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.coordinator.outcome import Now
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_member import ClassicMember, MemberProtocol
from barnabas.broker.groups.classic_state import MOVES, ClassicState
from barnabas.broker.groups.group import Client, Commit, Group, GroupType
from barnabas.broker.groups.group_memory import HeldBytes
from barnabas.broker.groups.limits import MOST_MEMBERS
from barnabas.protocol.embedded_consumer import TopicsReader, read_topics
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage, TooManyElements
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.records.coordinator import decode_versioned, encode_versioned
from barnabas.runtime.simulated.work import WorkCounter
from tests.broker.groups.classic_shell import (
    GROUP,
    INITIAL_DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    WALL_MS,
    Person,
    Shell,
    subscription,
)

NOW = Now(5_000, WALL_MS)
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


# -- state transitions


@pytest.mark.feature("CG-08")
def test_every_move_of_the_table_and_no_other() -> None:
    assert len(MOVES) == 11
    for source in ClassicState:
        for target in ClassicState:
            group = ClassicGroup(GROUP)
            group.state = source
            if (source, target) in MOVES:
                group.move(target, NOW)
                assert (group.previous_state, group.state, group.since_ms) == (source, target, NOW.wall_ms)
            else:
                with pytest.raises(AssertionError, match="cannot become"):
                    group.move(target, NOW)


@pytest.mark.feature("CG-08", "CG-12")
@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"])
def test_emigration_ends_it_in_every_state(state: str) -> None:
    shell, group = in_state(state)
    shell.fail_over()
    assert group.state is ClassicState.DEAD and group.previous_state.value == state


def in_state(state: str) -> tuple[Shell, ClassicGroup]:
    """A group in that state: anna leads, ben is static; in generation 1 if it has one."""
    shell = Shell()
    anna, ben = Person(shell), Person(shell, "b")
    if state == "Empty":
        shell.stable(anna)
        anna.leave()
    else:
        anna.join()
        ben.join()
        shell.pass_ms(2 * INITIAL_DELAY_MS)
        if state != "CompletingRebalance":
            anna.sync()
            ben.sync()
        if state == "PreparingRebalance":
            Person(shell).join()
    assert shell.state == state
    return shell, shell.group


# -- commits

COMMITS = [
    # state, member, generation, transactional, answer
    ("Empty", "", -1, False, NONE),
    ("Empty", "", -1, True, NONE),
    ("Empty", "anybody", -1, False, NONE),
    ("Empty", "anybody", 2, False, UNKNOWN),
    ("Empty", "", 0, False, UNKNOWN),
    ("Stable", "", -1, False, UNKNOWN),
    ("Stable", "", -1, True, NONE),
    ("Stable", "anybody", 1, False, UNKNOWN),
    ("Stable", "anybody", 1, True, UNKNOWN),
    ("Stable", "anna", 1, False, NONE),
    ("Stable", "anna", 1, True, NONE),
    ("Stable", "anna", 0, False, ILLEGAL),
    ("Stable", "anna", -1, False, ILLEGAL),
    ("Stable", "anna", 2, True, ILLEGAL),
    ("Stable", "ben", 1, False, NONE),
    ("Stable", "ben's old id", 1, False, FENCED),
    ("Stable", "ben's old id", 1, True, FENCED),
    ("Stable", "unknown instance", 1, False, UNKNOWN),
    ("PreparingRebalance", "anna", 1, False, NONE),
    ("PreparingRebalance", "anna", 0, False, ILLEGAL),
    ("PreparingRebalance", "", -1, False, UNKNOWN),
    ("CompletingRebalance", "anna", 1, False, REBALANCE),
    ("CompletingRebalance", "anna", 1, True, NONE),
    ("CompletingRebalance", "anna", 0, False, ILLEGAL),
    ("CompletingRebalance", "", -1, True, NONE),
    ("Dead", "anna", 1, False, ErrorCode.COORDINATOR_NOT_AVAILABLE),
]


@pytest.mark.feature("CG-03", "CG-09")
@pytest.mark.parametrize(("state", "who", "generation", "transactional", "answer"), COMMITS)
def test_permissions_to_commit(state: str, who: str, generation: int, transactional: bool, answer: ErrorCode) -> None:
    shell, group = in_state("Stable" if state == "Dead" else state)
    if state == "Dead":
        group.die()
    ids = dict(zip(["anna", "ben"], group.members, strict=False))
    instance = {"ben": "b", "ben's old id": "b", "unknown instance": "x"}.get(who)
    commit = Commit(ids.get(who, who), instance, generation, transactional, 9)
    member = group.members.get(commit.member_id)
    shell.pass_ms(1_000)
    before_ms = 0 if member is None else member.session_deadline_ms
    try:
        group.check_commit(commit, shell.now)
        error = NONE
    except KafkaError as refused:
        error = refused.code
    assert error is answer
    if member is not None:
        renews_session = error is NONE and not transactional
        assert member.session_deadline_ms == (shell.now_ms + SESSION_MS if renews_session else before_ms)


@pytest.mark.feature("CG-09")
def test_commits_keep_the_session() -> None:
    shell, group = in_state("Stable")
    anna, ben = group.members
    for _ in range(4):
        shell.pass_ms(SESSION_MS - 1)
        if anna in group.members:
            group.check_commit(Commit(anna, None, 1, False, 9), shell.now)
    assert anna in group.members and ben not in group.members


# -- the Group protocol


@pytest.mark.feature("CG-05")
def test_since_when_it_is_empty() -> None:
    shell = Shell()
    ghost = Person(shell)
    ghost.join_once()
    assert shell.group.is_empty() and shell.group.empty_since_ms() is None, "nobody was ever in it"
    assert in_state("Stable")[1].empty_since_ms() is None
    shell, group = in_state("Empty")
    emptied_ms = shell.now.wall_ms
    shell.pass_ms(60_000)
    assert group.empty_since_ms() == emptied_ms
    shell.fail_over()
    assert shell.group.empty_since_ms() == emptied_ms, "also by the next coordinator's account"


@pytest.mark.feature("CG-05", "PF-19")
def test_which_topics_are_in_use() -> None:
    shell = Shell()
    anna = Person(shell, protocols={"range": subscription("news", version=0)})
    ben = Person(shell, protocols={"range": subscription("sports", "weather", version=3)})
    anna.join()
    group = shell.group
    assert group.is_subscribed_to("anything"), "not known before the first generation"
    ben.join()
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    shell.sync_all([anna, ben])
    assert [group.is_subscribed_to(topic) for topic in ("news", "sports", "weather", "cats")] == [True] * 3 + [False]
    ben.leave()
    anna.join()
    assert not group.is_subscribed_to("sports")
    anna.leave()
    assert not group.is_subscribed_to("news")


@pytest.mark.feature("CG-05", "PF-19")
@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\x00\x03", b"\x00\x03\x00\x00\x00\x02\x00\x01a", b"\x00\x00\x7f\xff\xff\xff", b"\xff" * 40],
)
def test_unreadable_subscriptions(data: bytes) -> None:
    """The group works; every topic counts as in use."""
    with pytest.raises(MalformedMessage):
        read_topics(data)
    shell = Shell()
    anna = Person(shell, protocols={"range": data})
    shell.stable(anna)
    assert anna.joined.members[0].metadata == data
    assert shell.group.subscription is None and shell.group.is_subscribed_to("anything")
    shell.fail_over()
    assert anna.heartbeat() is NONE and shell.group.is_subscribed_to("anything")
    stranger = Person(Shell(), kind="connect", protocols={"range": data})
    stranger.shell.stable(stranger)
    assert not stranger.shell.group.is_subscribed_to("anything"), "what is no consumer subscribes to nothing"


@pytest.mark.feature("CG-05")
def test_subscriptions_to_the_same_topics_are_read_once() -> None:
    topics = [f"topic {number}" for number in range(10)]
    reader = TopicsReader(most_elements=21)
    for number in range(100):
        owned = {"topic 0": [number]}
        assert reader.read(subscription(*topics, owned=owned)) == frozenset(topics)
        assert reader.read(subscription(*topics[:9], "other", version=1, owned=owned)) == {*topics[:9], "other"}
    assert reader.read(subscription("ü")) == {"ü"}
    assert reader.read(subscription(*topics)) == frozenset(topics)
    with pytest.raises(TooManyElements):
        reader.read(subscription("one more"))


@pytest.mark.feature("CG-05")
def test_the_last_join_and_the_assignment_of_a_large_group_are_short_steps() -> None:
    shell, members = Shell(), MOST_MEMBERS // 3
    people = [Person(shell) for _ in range(members)]
    for person in people:
        person.join()
    calls: list[int] = []
    run, counter = shell.run, WorkCounter(lambda _name, made: calls.append(made))
    shell.run = lambda operation, *rest: run(  # type: ignore[method-assign]
        lambda now: counter("", lambda: operation(now)), *rest
    )
    shell.pass_ms(3 * INITIAL_DELAY_MS)
    assert len(shell.group.members) == members and shell.group.generation == 1
    next(person for person in people if person.member_id == shell.group.leader_id).sync()
    assert shell.group.state is ClassicState.STABLE
    assert members < max(calls) <= 30 * members, "about 5 microseconds a member"


@pytest.mark.feature("CG-05")
@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"])
def test_permissions_to_fetch_and_delete(state: str) -> None:
    _, group = in_state("Stable" if state == "Dead" else state)
    if state == "Dead":
        group.die()
    as_group: Group = group
    assert (as_group.type, as_group.protocol_type, as_group.state_name()) == (GroupType.CLASSIC, "consumer", state)
    error = {"Empty": None, "Dead": ErrorCode.GROUP_ID_NOT_FOUND}.get(state, ErrorCode.NON_EMPTY_GROUP)
    if error is None:
        as_group.check_delete()
    else:
        with pytest.raises(KafkaError) as refused:
            as_group.check_delete()
        assert refused.value.code is error
    if state == "Dead":
        with pytest.raises(KafkaError):
            as_group.check_fetch(None, -1)
    else:
        as_group.check_fetch(None, -1)
        as_group.check_fetch("anybody", 7)


@pytest.mark.feature("CG-08")
def test_how_it_is_described() -> None:
    shell, group = in_state("Stable")
    described = shell.core.describe(group).complete()
    anna, ben = described.members
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert (anna.client_id, anna.client_host, anna.group_instance_id) == ("client", "/127.0.0.1", None)
    assert (ben.group_instance_id, ben.member_metadata, ben.member_assignment) == (
        "b",
        subscription("news"),
        b"part 1 of 1",
    )
    shell, group = in_state("PreparingRebalance")
    described = shell.core.describe(group).complete()
    assert described.group_state == "PreparingRebalance" and described.protocol_data == ""
    assert [member.member_metadata for member in described.members] == [b"", b"", b""]


# -- records and other kinds


@pytest.mark.feature("CG-12")
def test_a_group_from_parts_is_stable_and_writes_itself() -> None:
    """A group of another kind becomes classic that way."""
    shell = Shell()
    protocols = (MemberProtocol("range", subscription("news")), MemberProtocol("robin", b""))
    members = [
        ClassicMember(name, instance, Client(name, "/::1"), 60_000, 10_000, protocols, f"for {name}".encode())
        for name, instance in [("anna", None), ("ben", "b")]
    ]
    group = ClassicGroup.from_parts(GROUP, "consumer", 17, members, shell.now)
    assert (group.state_name(), group.protocol_name, group.leader_id) == ("Stable", "range", "anna")
    assert group.is_subscribed_to("news") and not group.is_subscribed_to("cats")
    shell.core.adopt(group, shell.now)
    record = group.record()
    assert isinstance(record.key, GroupMetadataKey) and isinstance(record.value, GroupMetadataValue)
    again = ClassicGroup.from_value(GROUP, record.value)
    assert again.record() == record
    answer = shell.heartbeat(HeartbeatRequest(group_id=GROUP, generation_id=17, member_id="anna"))
    assert answer.error is NONE
    shell.pass_ms(10_000)
    assert list(group.members) == [] and shell.state == "Empty" and group.generation == 18


@pytest.mark.feature("CG-12")
def test_waiting_requests_are_answered_before_a_conversion() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    shell.stable(anna, ben)
    waiting = anna.join()
    for reply, response in shell.core.interrupt(shell.group):
        reply.answer(response)
    assert waiting.error is REBALANCE
    anna.join()
    ben.join()
    waiting = ben.sync()
    for reply, response in shell.core.interrupt(shell.group):
        reply.answer(response)
    assert waiting.error is REBALANCE
    assert not shell.core.interrupt(shell.group)


@pytest.mark.feature("CG-12")
@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_are_read(version: int) -> None:
    member = MemberMetadata(member_id="anna", session_timeout=7_000, subscription=subscription("news"))
    if version >= 1:
        member.rebalance_timeout = 9_000
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="anna")
    value.members.append(member)
    value, _ = decode_versioned(GroupMetadataValue, encode_versioned(value, version))
    group = ClassicGroup.from_value(GROUP, value)
    loaded = group.members["anna"]
    assert loaded.session_timeout_ms == 7_000
    assert loaded.rebalance_timeout_ms == (9_000 if version >= 1 else 7_000)
    assert (group.generation, group.leader_id, group.since_ms) == (3, "anna", None)


@pytest.mark.feature("CG-12")
def test_a_contradictory_record_is_repaired() -> None:
    twice = [MemberMetadata(member_id="anna", group_instance_id="a") for _ in range(2)]
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader="ghost", members=twice)
    group = ClassicGroup.from_value(GROUP, value)
    assert (list(group.members), group.leader_id, group.protocol_name) == (["anna"], "anna", "")
    assert group.is_subscribed_to("anything")


class OtherGroup:
    """A group of an unknown kind."""

    def __init__(self, kind: GroupType, is_empty: bool) -> None:
        self.group_id = GROUP
        self.type = kind
        self.protocol_type = "consumer"
        self._is_empty = is_empty
        self.held = HeldBytes()

    def is_empty(self) -> bool:
        return self._is_empty

    def tombstones(self) -> list[Any]:
        return []


class Recorder:
    """Serves members of another kind."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def serve(*_: Any) -> Any:
            self.asked.append(name)
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

        return serve


@pytest.mark.feature("CG-16")
def test_requests_for_another_kind_are_passed_on() -> None:
    shell = Shell()
    shell.context.groups.put(OtherGroup(GroupType.CONSUMER, is_empty=False))  # type: ignore[arg-type]
    shell._check_groups = lambda: None  # type: ignore[method-assign]  # they are classic ones' rules
    requests: list[tuple[str, Any]] = [
        ("join", JoinGroupRequest(group_id=GROUP, session_timeout_ms=SESSION_MS)),
        ("sync", SyncGroupRequest(group_id=GROUP)),
        ("heartbeat", HeartbeatRequest(group_id=GROUP)),
        ("leave", LeaveGroupRequest(group_id=GROUP)),
    ]
    for name, request in requests[:3]:
        assert getattr(shell, name)(request).error is (INCONSISTENT if name == "join" else UNKNOWN)
    recorder = Recorder()
    shell.core.other_kind = recorder
    for name, request in requests:
        assert getattr(shell, name)(request).error is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert recorder.asked == [name for name, _ in requests]


@pytest.mark.feature("CG-16")
@pytest.mark.parametrize(
    ("kind", "gives_way"), [(GroupType.CONSUMER, True), (GroupType.STREAMS, True), (GroupType.SHARE, False)]
)
def test_an_empty_group_of_another_kind_is_replaced(kind: GroupType, gives_way: bool) -> None:
    shell = Shell()
    other: Any = OtherGroup(kind, is_empty=True)
    shell.context.groups.put(other)
    if not gives_way:
        shell._check_groups = lambda: None  # type: ignore[method-assign]  # they are classic ones' rules
        assert Person(shell).join_once().error is INCONSISTENT
        return
    shell.append_error = ErrorCode.NOT_COORDINATOR
    check, shell._check_groups = shell._check_groups, lambda: None  # type: ignore[method-assign]
    assert Person(shell).join_once().error is ErrorCode.NOT_COORDINATOR
    assert shell.context.groups.get(GROUP) is other, "it is still there"
    shell.append_error = None
    shell._check_groups = check  # type: ignore[method-assign]
    assert Person(shell).join_once().error is ErrorCode.MEMBER_ID_REQUIRED
    assert shell.state == "Empty"


# -- invalid requests

PROTOCOL = JoinGroupRequestProtocol(name="range", metadata=subscription("news"))
ANNA = {"group_id": GROUP, "member_id": "anna"}
JOINS: list[tuple[str, dict[str, Any], ErrorCode]] = [
    ("a session too short", {"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ("a session too long", {"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ("a negative session", {"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ("another kind of group", {"protocol_type": "connect"}, INCONSISTENT),
    ("no kind", {"protocol_type": ""}, INCONSISTENT),
    ("no protocols", {"protocols": []}, INCONSISTENT),
    ("strange protocols", {"protocols": [JoinGroupRequestProtocol(name="own")]}, INCONSISTENT),
    ("an unknown member", {"member_id": "nobody"}, UNKNOWN),
    ("an unknown member of an unknown group", {"member_id": "nobody", "group_id": "other"}, UNKNOWN),
    ("a new group of no kind", {"protocol_type": "", "group_id": "other"}, INCONSISTENT),
    ("a new group without protocols", {"protocols": [], "group_id": "other"}, INCONSISTENT),
    ("an unknown instance with an id", {"member_id": "nobody", "group_instance_id": "x"}, UNKNOWN),
    ("an instance with another's id", {"member_id": "nobody", "group_instance_id": "b"}, FENCED),
]


@pytest.mark.feature("CG-06", "CG-10")
@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
@pytest.mark.parametrize(("changes", "error"), [join[1:] for join in JOINS], ids=[join[0] for join in JOINS])
def test_bad_joins(state: str, changes: dict[str, Any], error: ErrorCode) -> None:
    shell, group = in_state(state)
    before = (group.generation, list(group.members), list(group.pending_join), len(shell.log))
    good: dict[str, Any] = {
        "group_id": GROUP,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": [PROTOCOL],
    }
    answer = shell.join(JoinGroupRequest(**{**good, **changes}))
    assert answer.error is error and answer.response.member_id == changes.get("member_id", "")
    assert (group.generation, list(group.members), list(group.pending_join), len(shell.log)) == before
    assert shell.state == state and shell.core.find("other") is None


@pytest.mark.feature("CG-06")
def test_a_static_member_cannot_use_an_assigned_member_id() -> None:
    shell = Shell()
    anna = Person(shell)
    anna.member_id = anna.join_once().response.member_id
    anna.instance_id = "a"
    assert anna.join_once().error is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.feature("CG-06")
def test_a_duplicate_protocol_counts_once() -> None:
    shell = Shell()
    doubled = [PROTOCOL, PROTOCOL, JoinGroupRequestProtocol(name="robin")]
    request = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=SESSION_MS, protocol_type="consumer", protocols=doubled
    )
    asked = shell.join(request, 3)
    assert Person(shell).join().waits, "it supports what the first supports"
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    assert asked.response.protocol_name == "range"


@pytest.mark.feature("CG-06")
def test_a_negative_rebalance_timeout_is_none() -> None:
    shell = Shell()
    anna = Person(shell, rebalance_ms=-5)
    anna.join()
    shell.pass_ms(INITIAL_DELAY_MS)
    assert anna.generation == 1


SYNCS: list[tuple[str, str, dict[str, Any], ErrorCode]] = [
    ("Empty", "anybody", {}, UNKNOWN),
    ("Stable", "a stranger", {"member_id": "nobody"}, UNKNOWN),
    ("Stable", "no id", {"member_id": ""}, UNKNOWN),
    ("Stable", "an old generation", {"generation_id": 0}, ILLEGAL),
    ("Stable", "a coming generation", {"generation_id": 2}, ILLEGAL),
    ("Stable", "another kind", {"protocol_type": "connect"}, INCONSISTENT),
    ("Stable", "another protocol", {"protocol_name": "robin"}, INCONSISTENT),
    ("Stable", "a stranger with ben's instance", {"member_id": "x", "group_instance_id": "b"}, FENCED),
    ("Stable", "an unknown instance", {"group_instance_id": "x"}, UNKNOWN),
    ("CompletingRebalance", "an old generation", {"generation_id": 0}, ILLEGAL),
    ("CompletingRebalance", "another protocol", {"protocol_name": "robin"}, INCONSISTENT),
    ("PreparingRebalance", "a member", {}, REBALANCE),
    ("PreparingRebalance", "an old generation", {"generation_id": 0}, ILLEGAL),
    ("Stable", "another group", {"group_id": "other"}, UNKNOWN),
]


@pytest.mark.feature("CG-07", "CG-10")
@pytest.mark.parametrize(
    ("state", "changes", "error"), [(row[0], *row[2:]) for row in SYNCS], ids=[f"{row[0]}: {row[1]}" for row in SYNCS]
)
def test_bad_syncs(state: str, changes: dict[str, Any], error: ErrorCode) -> None:
    shell, group = in_state(state)
    member_id = next(iter(group.members), "anna")
    good: dict[str, Any] = {"group_id": GROUP, "generation_id": 1, "member_id": member_id}
    assert shell.sync(SyncGroupRequest(**{**good, **changes})).error is error
    assert shell.state == state


HEARTBEATS: list[tuple[str, dict[str, Any], ErrorCode]] = [
    ("Empty", {}, UNKNOWN),
    ("Stable", {}, NONE),
    ("Stable", {"member_id": "nobody"}, UNKNOWN),
    ("Stable", {"generation_id": 2}, ILLEGAL),
    ("Stable", {"generation_id": -1}, ILLEGAL),
    ("Stable", {"group_instance_id": "b"}, FENCED),
    ("Stable", {"group_instance_id": "x"}, UNKNOWN),
    ("Stable", {"group_id": "other"}, UNKNOWN),
    ("CompletingRebalance", {}, NONE),
    ("CompletingRebalance", {"generation_id": 0}, ILLEGAL),
    ("PreparingRebalance", {}, REBALANCE),
    ("PreparingRebalance", {"generation_id": 0}, ILLEGAL),
]


@pytest.mark.feature("CG-09", "CG-10")
@pytest.mark.parametrize(("state", "changes", "error"), HEARTBEATS)
def test_heartbeats(state: str, changes: dict[str, Any], error: ErrorCode) -> None:
    shell, group = in_state(state)
    member_id = next(iter(group.members), "anna")
    good: dict[str, Any] = {"group_id": GROUP, "generation_id": 1, "member_id": member_id}
    assert shell.heartbeat(HeartbeatRequest(**{**good, **changes})).error is error


@pytest.mark.feature("CG-07")
def test_a_leader_may_omit_members_and_name_unknown_ones() -> None:
    shell, group = in_state("CompletingRebalance")
    anna, ben = group.members
    parts = [
        SyncGroupRequestAssignment(member_id=anna, assignment=b"old"),
        SyncGroupRequestAssignment(member_id=anna, assignment=b"all"),
        SyncGroupRequestAssignment(member_id="nobody", assignment=b"nothing"),
    ]
    waiting = shell.sync(SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=ben, group_instance_id="b"))
    asked = shell.sync(SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=anna, assignments=parts))
    assert asked.response.assignment == b"all" and waiting.response.assignment == b""
    assert list(group.members) == [anna, ben]


@pytest.mark.feature("CG-07")
def test_only_the_leader_assigns() -> None:
    shell, group = in_state("CompletingRebalance")
    anna, ben = group.members
    parts = [SyncGroupRequestAssignment(member_id=ben, assignment=b"mine")]
    asked = shell.sync(SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=ben, assignments=parts))
    assert asked.waits and shell.state == "CompletingRebalance"
    shell.sync(SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=anna))
    assert asked.response.assignment == b""
