"""Classic groups as stories: clients join, share, fall silent and leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.broker.groups import classic_group, classic_joins
from barnabas.broker.groups.classic_rebalance import PENDING_JOIN_WAIT_MS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.records.coordinator import decode_key, decode_versioned
from tests.broker.groups.classic_shell import (
    GROUP,
    INITIAL_DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    TYPES,
    Person,
    Shell,
    subscription,
)

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def last_value(shell: Shell) -> GroupMetadataValue:
    key, value = shell.log[-1]
    decoded = decode_key(TYPES, key)
    assert isinstance(decoded, GroupMetadataKey) and decoded.group == GROUP
    assert value is not None
    message, version = decode_versioned(GroupMetadataValue, value)
    assert version == 3, "as Kafka 4.3 writes it"
    return message


@pytest.mark.feature("CG-06", "CG-07", "CG-09")
def test_two_join_sync_and_stay() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)

    first = anna.join_once()
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED, "who has no id is given one and joins with it"
    assert first.response.member_id.startswith("client-")
    assert last_value(shell).generation == 0, "the group is there from now on"
    anna.member_id = first.response.member_id
    assert anna.join_once().waits
    shell.pass_ms(1_000)
    assert ben.join().waits
    assert shell.state == "PreparingRebalance"

    shell.pass_ms(INITIAL_DELAY_MS - 1_000 - 1)
    assert anna.joining is not None and anna.joining.waits
    shell.pass_ms(1)
    assert anna.joining.waits, "somebody came: it may well be that others do"
    shell.pass_ms(INITIAL_DELAY_MS)
    assert anna.is_leader and not ben.is_leader
    assert anna.generation == ben.generation == 1
    assert [member.member_id for member in anna.joined.members] == [anna.member_id, ben.member_id]
    assert ben.joined.members == [], "only the leader learns who is in"
    assert (ben.joined.protocol_type, ben.joined.protocol_name) == ("consumer", "range")

    theirs = ben.sync()
    assert theirs.waits and shell.state == "CompletingRebalance"
    mine = anna.sync()
    assert mine.response.assignment == b"part 0 of 1" and theirs.response.assignment == b"part 1 of 1"
    assert (mine.response.protocol_type, mine.response.protocol_name) == ("consumer", "range")
    assert shell.state == "Stable"

    value = last_value(shell)
    assert (value.generation, value.protocol_type, value.protocol, value.leader) == (
        1,
        "consumer",
        "range",
        anna.member_id,
    )
    assert [member.assignment for member in value.members] == [b"part 0 of 1", b"part 1 of 1"]
    assert [(member.client_id, member.client_host) for member in value.members] == [("client", "/127.0.0.1")] * 2
    assert value.current_state_timestamp == shell.group.since_ms

    for _ in range(5):
        shell.pass_ms(SESSION_MS - 1)
        assert anna.heartbeat() is NONE and ben.heartbeat() is NONE


@pytest.mark.feature("CG-06")
@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join(version: int) -> None:
    """Before version 4 a client joins without MEMBER_ID_REQUIRED; before version 1 its session timeout is its rebalance
    timeout, too.
    """
    shell = Shell()
    anna = Person(shell, join_version=version)
    asked = anna.join_once()
    if version >= 4:
        assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
        assert not shell.group.members
        anna.member_id = asked.response.member_id
        asked = anna.join_once()
    assert asked.waits
    (member,) = shell.group.members.values()
    assert member.rebalance_timeout_ms == (REBALANCE_MS if version >= 1 else SESSION_MS)
    shell.pass_ms(INITIAL_DELAY_MS)
    assert asked.error is NONE and asked.response.members[0].member_id == member.member_id


@pytest.mark.feature("CG-06")
def test_the_first_delay_ends_with_the_rebalance_timeout() -> None:
    """However many join, it takes at most the rebalance timeout of the first member."""
    shell = Shell()
    people = [Person(shell, rebalance_ms=8_000)]
    people[0].join()
    for _ in range(4):
        people.append(Person(shell, rebalance_ms=8_000))
        people[-1].join()
        shell.pass_ms(1_999)
    assert all(person.joining is not None and person.joining.waits for person in people)
    shell.pass_ms(4)
    assert [person.generation for person in people] == [1] * 5


@pytest.mark.feature("CG-06")
def test_a_group_that_fills_again_has_the_whole_first_delay_again() -> None:
    """The first time it was over while a member was about to join; that says nothing about the next time."""
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    anna.join()
    shell.pass_ms(INITIAL_DELAY_MS - 1)
    ben.member_id = ben.join_once().response.member_id
    shell.pass_ms(1)
    assert shell.state == "PreparingRebalance" and ben.join_once().error is NONE
    shell.sync_all([anna, ben])
    anna.leave()
    ben.leave()
    assert shell.state == "Empty"
    clara, dora = Person(shell), Person(shell)
    clara.join()
    shell.pass_ms(INITIAL_DELAY_MS - 1)
    assert dora.join().waits, "others may be starting"
    shell.pass_ms(1)
    assert shell.state == "PreparingRebalance", "somebody came meanwhile"
    shell.pass_ms(INITIAL_DELAY_MS)
    assert clara.generation == dora.generation


@pytest.mark.feature("CG-06")
def test_without_a_delay_the_first_begins_at_once() -> None:
    shell = Shell(group_initial_rebalance_delay_ms=0)
    anna = Person(shell)
    anna.join()
    shell.pass_ms(0)
    assert anna.generation == 1


@pytest.mark.feature("CG-06", "CG-09")
def test_without_a_delay_simultaneous_members_share_the_first_generation() -> None:
    """Each has to send JoinGroup twice. The first must not start a generation of its own meanwhile, which would make
    the others wait for its next heartbeat.
    """
    shell = Shell(group_initial_rebalance_delay_ms=0)
    people = [Person(shell) for _ in range(10)]
    first = people[0].join()
    for person in people[1:]:
        person.member_id = person.join_once().response.member_id
    shell.pass_ms(20)
    for person in people[1:]:
        assert first.waits, "the other members must rejoin"
        person.join_once()
        shell.pass_ms(2)
    assert [person.generation for person in people] == [1] * 10
    shell.sync_all(people)
    assert shell.state == "Stable"


@pytest.mark.feature("CG-06", "CG-09")
def test_the_first_generation_waits_shortly_for_assigned_member_ids() -> None:
    shell = Shell(group_initial_rebalance_delay_ms=0)
    anna, ghost = Person(shell), Person(shell)
    ghost.member_id = ghost.join_once().response.member_id
    asked = anna.join()
    shell.pass_ms(PENDING_JOIN_WAIT_MS - 1)
    assert asked.waits and shell.state == "PreparingRebalance"
    shell.pass_ms(2)
    assert anna.generation == 1 and list(shell.group.members) == [anna.member_id]
    # It may still join the next one.
    assert ghost.join_once().waits and shell.state == "PreparingRebalance"


@pytest.mark.feature("CG-06", "CG-09")
def test_an_unused_member_id_delays_a_rebalance_only_shortly() -> None:
    shell = Shell()
    anna, ghost = Person(shell), Person(shell)
    shell.stable(anna)
    assert ghost.join_once().error is ErrorCode.MEMBER_ID_REQUIRED
    anna.join()
    assert shell.state == "PreparingRebalance", "the ghost is expected"
    shell.pass_ms(SESSION_MS)
    assert anna.generation == 2 and list(shell.group.members) == [anna.member_id]


@pytest.mark.feature("CG-06", "CG-08")
def test_a_third_member_starts_a_rebalance() -> None:
    shell = Shell()
    anna, ben, cleo = Person(shell), Person(shell), Person(shell)
    shell.stable(anna, ben)
    cleo.join()
    assert anna.heartbeat() is REBALANCE and ben.heartbeat() is REBALANCE
    assert anna.sync().error is REBALANCE
    ben.join()
    assert cleo.joining is not None and cleo.joining.waits, "anna may still come"
    anna.join()
    assert [person.generation for person in (anna, ben, cleo)] == [2, 2, 2]
    shell.sync_all([anna, ben, cleo])
    assert [person.heartbeat() for person in (anna, ben, cleo)] == [NONE] * 3
    assert anna.heartbeat(generation=1) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.feature("CG-06", "CG-09")
def test_a_member_that_does_not_rejoin_is_removed_despite_heartbeats() -> None:
    shell = Shell()
    anna, ben, cleo = Person(shell), Person(shell), Person(shell)
    shell.stable(anna, ben)
    ben.join()
    assert ben.joined.generation_id == 1, "nothing has changed for a follower: it may go on"
    cleo.join()
    ben.join()
    for _ in range(REBALANCE_MS // 5_000):
        assert anna.heartbeat() is REBALANCE
        shell.pass_ms(5_000)
    assert ben.generation == cleo.generation == 2
    assert ben.is_leader, "anna led, but did not come"
    assert anna.heartbeat() is UNKNOWN


@pytest.mark.feature("CG-09")
def test_a_silent_member_is_removed_after_its_session_timeout() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    shell.stable(anna, ben)
    shell.pass_ms(SESSION_MS - 1)
    assert anna.heartbeat() is NONE
    shell.pass_ms(1)
    assert shell.state == "PreparingRebalance"
    assert anna.heartbeat() is REBALANCE and ben.heartbeat() is UNKNOWN
    anna.join()
    assert anna.generation == 2
    assert [member.member_id for member in anna.joined.members] == [anna.member_id]


@pytest.mark.feature("CG-09")
def test_a_waiting_member_need_not_send_heartbeats() -> None:
    shell = Shell()
    anna, ben, cleo = Person(shell), Person(shell), Person(shell)
    shell.stable(anna, ben)
    cleo.join()
    ben.join()
    for _ in range(4):
        shell.pass_ms(SESSION_MS - 1)
        assert anna.heartbeat() is REBALANCE
    assert ben.member_id in shell.group.members and cleo.member_id in shell.group.members
    anna.join()
    waiting = [ben.sync(), cleo.sync()]
    shell.pass_ms(SESSION_MS - 1)
    anna.heartbeat()
    shell.pass_ms(SESSION_MS - 1)
    anna.sync()
    assert [asked.error for asked in waiting] == [NONE, NONE]
    shell.pass_ms(SESSION_MS - 1)
    assert ben.heartbeat() is NONE, "its session starts again when it gets its assignment"


@pytest.mark.feature("CG-09")
def test_a_late_sync_renews_the_session() -> None:
    """The answer to its JoinGroup was slow; the others have their assignments already."""
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    shell.stable(anna, ben)
    cleo = Person(shell)
    cleo.join()
    for person in (anna, ben):
        person.join()
    for person in (anna, ben):
        person.sync()
    shell.pass_ms(SESSION_MS - 1)
    assert [anna.heartbeat(), ben.heartbeat()] == [NONE, NONE]
    assert cleo.sync().error is NONE
    shell.pass_ms(SESSION_MS - 1)
    assert [anna.heartbeat(), ben.heartbeat()] == [NONE, NONE]
    assert shell.state == "Stable" and cleo.member_id in shell.group.members, "it is in its session"
    shell.pass_ms(1)
    assert cleo.heartbeat() is UNKNOWN, "its last sign of life"


@pytest.mark.feature("CG-09")
@pytest.mark.parametrize("is_stable", [False, True])
def test_a_repeated_join_renews_the_session(is_stable: bool) -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    shell.stable(anna, ben)
    anna.join()
    ben.join()
    if is_stable:
        anna.sync()
    shell.pass_ms(SESSION_MS - 1)
    assert anna.heartbeat() is NONE
    assert ben.join().error is NONE, "nothing has changed: an immediate answer"
    shell.pass_ms(SESSION_MS - 1)
    assert anna.heartbeat() is NONE
    assert ben.member_id in shell.group.members
    shell.pass_ms(1)
    assert ben.heartbeat() is UNKNOWN


@pytest.mark.feature("CG-06")
def test_a_new_member_waits_for_a_limited_time() -> None:
    """Old clients have no member id while they wait; one that disconnected and joined again counts twice."""
    shell = Shell()
    anna = Person(shell, rebalance_ms=900_000)
    shell.stable(anna)
    ghost = Person(shell, join_version=3)
    asked = ghost.join_once()
    for _ in range(30):
        shell.pass_ms(SESSION_MS - 1)
        anna.heartbeat()
    assert asked.waits
    shell.pass_ms(30)
    assert asked.error is UNKNOWN and asked.response.member_id == ""


@pytest.mark.feature("CG-07")
def test_a_member_that_never_syncs_is_removed_and_the_others_rebalance() -> None:
    shell = Shell()
    anna, ben = Person(shell, rebalance_ms=20_000), Person(shell, rebalance_ms=20_000)
    anna.join()
    ben.join()
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    waiting = ben.sync()
    for _ in range(5):
        shell.pass_ms(3_999)
        assert anna.heartbeat() is NONE, "a leader that only sends heartbeats"
    assert waiting.waits
    shell.pass_ms(5)
    assert waiting.error is REBALANCE
    assert anna.heartbeat() is UNKNOWN
    ben.join()
    assert ben.is_leader and ben.generation == 2


@pytest.mark.feature("CG-07")
def test_a_follower_that_never_syncs_is_removed_from_a_stable_group() -> None:
    shell = Shell()
    anna, ben = Person(shell, rebalance_ms=20_000), Person(shell, rebalance_ms=20_000)
    anna.join()
    ben.join()
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    anna.sync()
    assert shell.state == "Stable"
    for _ in range(3):
        shell.pass_ms(7_000)
        anna.heartbeat()
        ben.heartbeat()
    assert shell.state == "PreparingRebalance" and list(shell.group.members) == [anna.member_id]


@pytest.mark.feature("CG-07")
def test_a_late_sync_gets_its_assignment_from_the_stable_group() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    anna.join()
    ben.join()
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    anna.sync()
    assert ben.sync().response.assignment == b"part 1 of 1"
    assert ben.sync().response.assignment == b"part 1 of 1", "as often as it asks"
    shell.pass_ms(SESSION_MS - 1)
    anna.heartbeat()
    ben.heartbeat()
    assert shell.state == "Stable"


@pytest.mark.feature("CG-07")
def test_the_protocol_with_most_votes_among_those_that_all_support() -> None:
    shell = Shell()
    data = subscription("news")
    anna = Person(shell, protocols={"sticky": data, "range": data, "robin": data})
    ben = Person(shell, protocols={"robin": data, "range": data})
    cleo = Person(shell, protocols={"robin": data, "range": data, "own": data})
    for person in (anna, ben, cleo):
        person.join()
    stranger = Person(shell, protocols={"own": data, "sticky": data})
    assert stranger.join_once().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Person(shell, kind="connect").join_once().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    assert anna.joined.protocol_name == "robin"


@pytest.mark.feature("CG-07", "PF-19")
@pytest.mark.parametrize("kind", ["connect", "stream", "whatever"])
def test_metadata_of_other_protocol_types_is_not_parsed(kind: str) -> None:
    shell = Shell()
    one = Person(shell, kind=kind, protocols={"eager": b"\xff\x00 not a subscription"})
    two = Person(shell, kind=kind, protocols={"eager": b""})
    shell.stable(one, two)
    assert [member.metadata for member in one.joined.members] == [b"\xff\x00 not a subscription", b""]
    assert shell.group.protocol_type == kind and shell.group.subscription is None
    described = shell.core.describe(shell.group).complete()
    assert [member.member_metadata for member in described.members] == [b"\xff\x00 not a subscription", b""]


@pytest.mark.feature("CG-07")
def test_joining_again() -> None:
    """With unchanged metadata: an immediate answer, except for the leader, which wants a new assignment."""
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    anna.join()
    ben.join()
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    assert shell.state == "CompletingRebalance"
    assert anna.join_once().response.members and anna.generation == 1, "the answer may have been lost"
    assert ben.join_once().response.members == [] and ben.generation == 1
    shell.sync_all([anna, ben])
    assert ben.join_once().response.generation_id == 1
    assert shell.state == "Stable"

    ben.protocols = {"range": subscription("news", "sports")}
    assert ben.join_once().waits and shell.state == "PreparingRebalance"
    anna.join()
    shell.sync_all([anna, ben])
    assert shell.group.subscription == frozenset({"news", "sports"})

    assert anna.join_once().waits and shell.state == "PreparingRebalance"
    ben.join()
    waiting = ben.sync()
    ben.protocols = {"range": subscription("weather")}
    ben.join_once()
    assert waiting.error is REBALANCE, "what ben wants has changed before anna had assigned"
    assert anna.sync().error is REBALANCE


@pytest.mark.feature("CG-06")
def test_a_request_that_is_sent_again_replaces_the_one_that_waits() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    first = anna.join()
    second = anna.join_once()
    assert first.error is REBALANCE and second.waits
    ben.join()
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    assert second.error is NONE
    first, second = ben.sync(), ben.sync()
    assert first.error is REBALANCE and second.waits
    anna.sync()
    assert second.response.assignment == b"part 1 of 1"


@pytest.mark.feature("CG-08", "CG-09")
@pytest.mark.parametrize("version", range(6))
def test_leaving(version: int) -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    shell.stable(anna, ben)
    answer = anna.leave(version).response
    assert answer.error_code == NONE
    assert [member.member_id for member in answer.members] == ([anna.member_id] if version >= 3 else [])
    assert ben.heartbeat() is REBALANCE
    ben.join()
    assert ben.is_leader and ben.generation == 2
    shell.sync_all([ben])
    assert ben.leave(version).error is NONE
    assert shell.state == "Empty" and shell.group.generation == 3
    value = last_value(shell)
    assert (value.generation, value.protocol, value.leader, value.members) == (3, None, None, [])
    assert value.protocol_type == "consumer"
    again = ben.leave(version).response
    assert (again.members[0] if version >= 3 else again).error_code == UNKNOWN
    assert not shell.timers.due, "nobody is left to wait for"


@pytest.mark.feature("CG-08", "CG-10")
def test_many_leave_at_once() -> None:
    """Admin clients name static members by instance id; each removal has its own error code."""
    shell = Shell()
    anna, ben, cleo, dora = Person(shell, "a"), Person(shell, "b"), Person(shell), Person(shell)
    shell.stable(anna, ben, cleo)
    dora.join_once()
    leaving = [
        MemberIdentity(member_id="", group_instance_id="a"),
        MemberIdentity(member_id="somebody", group_instance_id="b"),
        MemberIdentity(member_id="", group_instance_id="c"),
        MemberIdentity(member_id="", group_instance_id=None),
        MemberIdentity(member_id=cleo.member_id, group_instance_id=None),
        MemberIdentity(member_id=dora.joined.member_id, group_instance_id=None),
        MemberIdentity(member_id="nobody", group_instance_id=None),
    ]
    answer = shell.leave(LeaveGroupRequest(group_id=GROUP, members=leaving)).response
    assert [ErrorCode(member.error_code) for member in answer.members] == [
        NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        UNKNOWN,
        UNKNOWN,
        NONE,
        NONE,
        UNKNOWN,
    ]
    assert list(shell.group.members) == [ben.member_id] and not shell.group.pending_join
    assert shell.state == "PreparingRebalance"


@pytest.mark.feature("CG-06", "CG-08")
def test_leaving_answers_what_the_leaver_still_waits_for() -> None:
    shell = Shell()
    anna, ben = Person(shell, "a"), Person(shell, "b")
    waiting = anna.join()
    ben.join()
    anna.leave()
    assert waiting.error is UNKNOWN
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    assert ben.is_leader
    cleo = Person(shell)
    cleo.join()
    ben.join()
    waiting = cleo.sync()
    shell.leave(LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=cleo.member_id)]))
    assert waiting.error is UNKNOWN


@pytest.mark.feature("CG-06", "RP-02")
@pytest.mark.parametrize(("setting", "limit"), [(2, 3_000), (1 << 31, 2)])
def test_a_group_has_a_maximum_size(setting: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_joins, "MOST_MEMBERS", limit)
    shell = Shell(group_max_size=setting)
    anna, ben, cleo = Person(shell), Person(shell), Person(shell)
    shell.stable(anna, ben)
    refused = cleo.join_once()
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED and refused.response.member_id == ""
    assert shell.state == "Stable"
    anna.join()
    assert ben.join().error is NONE and anna.generation == 2


@pytest.mark.feature("CG-06", "CG-12")
def test_a_lowered_limit_rejects_the_last_to_rejoin() -> None:
    shell = Shell()
    people = [Person(shell) for _ in range(3)]
    shell.stable(*people)
    shell.settings = replace(shell.settings, group_max_size=3)
    shell.fail_over()
    assert shell.state == "Stable", "there is room for all of them"
    shell.settings = replace(shell.settings, group_max_size=2)
    shell.fail_over()
    assert shell.state == "PreparingRebalance", "the new coordinator sees that they are too many"
    people[2].join()
    people[0].join()
    refused = people[1].join_once()
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert people[0].generation == people[2].generation == 2


@pytest.mark.feature("CG-06", "CG-12")
def test_the_session_of_the_last_member_ends_though_that_cannot_be_written() -> None:
    """Another coordinator takes the member for alive, until its session is over there, too."""
    shell = Shell()
    anna = Person(shell)
    shell.stable(anna)
    shell.append_error = ErrorCode.NOT_COORDINATOR
    shell.pass_ms(SESSION_MS + REBALANCE_MS)
    assert shell.state == "Empty" and anna.heartbeat() is UNKNOWN
    shell.append_error = None
    shell.fail_over()
    assert shell.state == "Stable" and anna.heartbeat() is NONE
    shell.pass_ms(SESSION_MS + REBALANCE_MS)
    assert shell.state == "Empty"


@pytest.mark.feature("CG-12")
def test_members_go_on_with_the_next_coordinator() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell, "b")
    shell.stable(anna, ben)
    shell.fail_over()
    assert shell.state == "Stable" and shell.group.leader_id == anna.member_id
    assert [anna.heartbeat(), ben.heartbeat()] == [NONE, NONE], "nobody has to join again"
    assert ben.sync().response.assignment == b"part 1 of 1"
    assert shell.group.subscription == frozenset({"news"})
    shell.pass_ms(SESSION_MS - 1)
    assert anna.heartbeat() is NONE, "sessions start again"
    shell.pass_ms(1)
    assert ben.heartbeat() is UNKNOWN


@pytest.mark.feature("CG-12", "CG-08")
@pytest.mark.parametrize("phase", ["first join", "join", "sync", "assigned", "left"])
def test_the_coordinator_moves_during_a_rebalance(phase: str) -> None:
    """Waiting clients look for the new coordinator, which has the last replicated generation."""
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    if phase == "first join":
        waiting = [anna.join(), ben.join()]
        shell.fail_over()
        assert shell.state == "Empty"
        assert [asked.error for asked in waiting] == [ErrorCode.NOT_COORDINATOR] * 2
        assert anna.join_once().error is UNKNOWN, "the ids that were given out are forgotten"
        anna.member_id = ben.member_id = ""
        shell.stable(anna, ben)
        return
    shell.stable(anna, ben)
    expected = 2
    if phase == "left":
        shell.is_cut_off = True
        ben.leave()
        anna.leave()
        expected = 2
    else:
        anna.join()
        if phase != "join":
            ben.join()
            ben.sync()
            if phase == "assigned":
                shell.is_cut_off = True
                assert anna.sync().waits, "nobody learns what may be lost yet"
                assert shell.state == "Stable"
    shell.fail_over()
    assert (shell.state, shell.group.generation) == ("Stable", 1)
    assert sorted(shell.group.members) == sorted([anna.member_id, ben.member_id])
    anna.join()
    ben.join()
    assert anna.generation == ben.generation == expected
    shell.sync_all([anna, ben])


@pytest.mark.feature("CG-12")
def test_a_replicated_generation_survives_without_an_answer() -> None:
    shell = Shell()
    anna = Person(shell)
    anna.join()
    shell.pass_ms(INITIAL_DELAY_MS)
    shell.is_cut_off = True
    asked = anna.sync()
    shell.replicated = len(shell.log)
    shell.fail_over()
    assert asked.error is ErrorCode.NOT_COORDINATOR
    assert anna.sync().response.assignment == b"part 0 of 1"


@pytest.mark.feature("CG-07", "CG-12")
def test_an_assignment_that_cannot_be_written_is_not_used() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    anna.join()
    ben.join()
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    waiting = ben.sync()
    shell.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert anna.sync().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE and waiting.response.assignment == b""
    assert shell.state == "PreparingRebalance"
    assert anna.heartbeat() is REBALANCE
    shell.append_error = None
    anna.join()
    ben.join()
    shell.sync_all([anna, ben])
    assert last_value(shell).generation == 2


@pytest.mark.feature("CG-06", "CG-12")
@pytest.mark.parametrize("version", [3, 9])
def test_a_group_that_cannot_be_written_is_not_created(version: int) -> None:
    shell = Shell()
    shell.append_error = ErrorCode.NOT_COORDINATOR
    assert Person(shell, join_version=version).join_once().error is ErrorCode.NOT_COORDINATOR
    assert shell.core.find(GROUP) is None and not shell.timers.due


@pytest.mark.feature("CG-08", "CG-12")
def test_an_empty_group_that_cannot_be_written_is_empty_here() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    shell.stable(anna, ben)
    shell.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ben.leave()
    assert anna.leave().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.state == "Empty"
    shell.append_error = None
    shell.fail_over()
    assert shell.state == "Stable", "as the log has it"
    shell.pass_ms(SESSION_MS)
    shell.pass_ms(REBALANCE_MS)
    assert shell.state == "Empty"


@pytest.mark.feature("CG-05", "CG-08")
def test_a_group_ends_with_its_tombstone() -> None:
    shell = Shell()
    anna, ghost = Person(shell), Person(shell)
    shell.stable(anna)
    anna.leave()
    ghost.join_once()
    group = shell.group
    group.check_delete()
    (tombstone,) = group.tombstones()
    assert isinstance(tombstone.key, GroupMetadataKey) and tombstone.value is None
    shell.core.replay(tombstone.key, None)
    assert group.state_name() == "Dead" and shell.core.find(GROUP) is None and not shell.timers.due
    assert anna.heartbeat() is UNKNOWN and anna.sync().error is UNKNOWN
    assert anna.leave().response.members[0].error_code == UNKNOWN
    shell.core.replay(tombstone.key, None)


@pytest.mark.feature("CG-06")
def test_the_metadata_of_all_members_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_group, "MOST_GROUP_BYTES", 1_000)
    shell = Shell()
    anna, ben, carl = (Person(shell, protocols={"range": bytes(400), "sticky": bytes(50)}) for _ in range(3))
    assert anna.join().waits and ben.join().waits
    assert carl.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED

    anna.protocols = {"range": bytes(501), "sticky": bytes(50)}
    assert anna.join_once().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    anna.protocols = {"range": bytes(10)}
    assert anna.join_once().waits
    assert carl.join().waits, "a member that joins again replaces its metadata, and makes room"
