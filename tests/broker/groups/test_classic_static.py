"""Static members of classic groups (KIP-345, KIP-814): their place is kept while they are away."""

from __future__ import annotations

import pytest

from barnabas.protocol.embedded_consumer import write_assignment
from barnabas.protocol.errors import ErrorCode
from tests.broker.groups.classic_shell import GROUP, INITIAL_DELAY_MS, SESSION_MS, Person, Shell, subscription

pytestmark = pytest.mark.feature("CG-10")

NONE = ErrorCode.NONE
FENCED = ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_joins_at_once_and_is_named_after_its_instance() -> None:
    shell = Shell()
    anna = Person(shell, "a")
    assert anna.join().waits, "nobody asks a static member to come again with an id"
    shell.pass_ms(INITIAL_DELAY_MS)
    assert anna.member_id.startswith("a-") and anna.is_leader
    assert anna.joined.members[0].group_instance_id == "a"


@pytest.mark.parametrize("version", [5, 8, 9])
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_restart_within_the_session_keeps_the_assignment(version: int, who: str) -> None:
    shell = Shell()
    people = [Person(shell, "a", join_version=version), Person(shell, "b", join_version=version)]
    shell.stable(*people)
    old = people[0] if who == "leader" else people[1]
    new = Person(shell, old.instance_id, join_version=version)

    answer = new.join().response
    assert answer.error_code == NONE and answer.generation_id == 1 and new.member_id != old.member_id
    assert shell.state == "Stable", "nobody else is bothered"
    if who == "follower":
        assert not new.is_leader and not answer.skip_assignment and answer.members == []
    elif version >= 9:
        assert new.is_leader and answer.skip_assignment, "it leads, but is not to assign"
        assert len(answer.members) == 2
    else:
        assert answer.leader == old.member_id and answer.members == [], "it is not to know that it leads"
    assert new.sync().response.assignment == b"part %d of 1" % (0 if who == "leader" else 1)
    assert new.heartbeat() is NONE
    assert old.heartbeat() is FENCED
    assert old.sync().error is FENCED
    assert old.join_once().error is FENCED
    assert old.leave().response.members[0].error_code == FENCED

    shell.fail_over()
    assert new.heartbeat() is NONE, "the new id was written"
    assert old.heartbeat() is FENCED


def test_a_restart_that_cannot_be_written_changes_nothing() -> None:
    shell = Shell()
    old, ben = Person(shell, "a"), Person(shell, "b")
    shell.stable(old, ben)
    new = Person(shell, "a", protocols={"range": subscription("sports"), "robin": b""}, session_ms=7_000)
    shell.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = new.join_once().response
    assert (answer.error_code, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert (answer.generation_id, answer.leader) == (1, old.member_id)
    assert old.heartbeat() is NONE and shell.group.leader_id == old.member_id
    member = shell.group.members[old.member_id]
    assert member.session_timeout_ms == SESSION_MS and member.protocol_names() == ["range"]


def test_a_changed_protocol_starts_a_rebalance() -> None:
    data = subscription("news")
    shell = Shell()
    old, ben = (Person(shell, name, protocols={"range": data, "robin": data}) for name in ("a", "b"))
    shell.stable(old, ben)
    assert old.joined.protocol_name == "range"
    new = Person(shell, "a", protocols={"robin": data})
    assert new.join().waits and shell.state == "PreparingRebalance"
    ben.join()
    assert new.joined.protocol_name == "robin" and new.generation == 2


def cooperative(owned: list[int]) -> dict[str, bytes]:
    return {"cooperative-sticky": subscription("news", owned={"news": owned})}


@pytest.mark.parametrize("fails_over", [False, True])
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_return_with_unrevoked_partitions_starts_a_rebalance(who: str, fails_over: bool) -> None:
    """A cooperative member is to revoke partitions and rejoin, so that others get them (KIP-429). It stops before that,
    and its replacement never owned them.
    """
    shell = Shell()
    anna, ben = Person(shell, "a"), Person(shell, "b")
    had, has_none = (anna, ben) if who == "leader" else (ben, anna)
    had.protocols, has_none.protocols = cooperative([0, 1, 2, 3]), cooperative([])
    anna.parts = [write_assignment({"news": [0, 1] if person is had else []}) for person in (anna, ben)]
    shell.stable(anna, ben)
    if fails_over:
        shell.fail_over()

    again = Person(shell, had.instance_id, protocols=cooperative([]))
    assert again.join().waits and shell.state == "PreparingRebalance"
    assert has_none.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    has_none.join()
    assert again.generation == has_none.generation == 2
    shell.sync_all([again, has_none])

    # Only one rebalance is requested.
    once_more = Person(shell, had.instance_id, protocols=cooperative([]))
    assert once_more.join().response.generation_id == 2 and shell.state == "Stable"


@pytest.mark.parametrize("owned", [[], [0], [0, 1]])
def test_a_return_without_unrevoked_partitions_starts_no_rebalance(owned: list[int]) -> None:
    shell = Shell()
    anna, ben = Person(shell, "a", protocols=cooperative(owned)), Person(shell, "b", protocols=cooperative([2]))
    anna.parts = [write_assignment({"news": [0, 1]}), write_assignment({"news": [2, 3]})]
    shell.stable(anna, ben)
    again = Person(shell, "a", protocols=cooperative([]))
    assert again.join().response.generation_id == 1 and shell.state == "Stable"
    assert again.sync().response.assignment == anna.parts[0]
    assert ben.heartbeat() is NONE


def test_a_return_while_the_leader_assigns_starts_the_rebalance_again() -> None:
    """The leader is assigning to the old id."""
    shell = Shell()
    anna, ben = Person(shell, "a"), Person(shell, "b")
    anna.join()
    ben.join()
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    waiting = ben.sync()
    again = Person(shell, "b")
    assert again.join().waits
    assert waiting.error is FENCED
    assert anna.sync().error is ErrorCode.REBALANCE_IN_PROGRESS
    anna.join()
    assert again.generation == anna.generation == 2


def test_a_member_that_starts_twice_fences_itself() -> None:
    shell = Shell()
    first, second = Person(shell, "a"), Person(shell, "a")
    waiting = first.join()
    assert second.join().waits
    assert waiting.error is FENCED
    assert waiting.response.protocol_name is None and waiting.response.member_id == first.member_id
    shell.pass_ms(2 * INITIAL_DELAY_MS)
    assert second.is_leader and list(shell.group.members) == [second.member_id]


def test_an_absent_member_is_in_the_next_generation_until_its_session_expires() -> None:
    shell = Shell()
    anna, ben, cleo = Person(shell, "a", session_ms=30_000, rebalance_ms=9_000), Person(shell), Person(shell)
    anna.rebalance_ms = ben.rebalance_ms = cleo.rebalance_ms = 9_000
    shell.stable(anna, ben)
    cleo.join()
    ben.join()
    shell.pass_ms(9_000)
    assert ben.generation == cleo.generation == 2
    assert ben.is_leader and len(ben.joined.members) == 3, "anna is away, and keeps her place"
    cleo.sync()
    ben.sync()
    back = Person(shell, "a", rebalance_ms=9_000)
    assert back.join().response.generation_id == 2
    assert back.sync().response.assignment == b"part 0 of 2"
    assert shell.state == "Stable"


def test_the_rebalance_waits_if_only_absent_members_remain() -> None:
    shell = Shell()
    anna, ben = Person(shell, "a", session_ms=30_000, rebalance_ms=9_000), Person(shell, rebalance_ms=9_000)
    shell.stable(anna, ben)
    ben.leave()
    shell.pass_ms(20_000)
    assert shell.state == "PreparingRebalance"
    back = Person(shell, "a", rebalance_ms=9_000)
    back.join()
    assert back.generation == 2 and back.is_leader
    shell.pass_ms(SESSION_MS)
    assert shell.state == "Empty", "and then it is silent"


def test_absent_static_members_are_waited_for_in_turns_of_half_a_second() -> None:
    """Their own rebalance timeout is 0: another wait that is over at once would keep the coordinator busy for ever."""
    shell = Shell()
    anna, ben = Person(shell, instance_id="one"), Person(shell, rebalance_ms=SESSION_MS // 2)
    shell.stable(anna)
    anna.rebalance_ms = 0
    anna.join()
    anna.sync()
    ben.join()
    ben.leave()
    shell.pass_ms(SESSION_MS // 2 - 1)
    anna.heartbeat()
    due = shell.timers.pop_due(shell.now_ms + 1)
    assert due is not None
    shell.now_ms = due[0]
    shell.run(due[1])
    assert shell.timers.deadline_ms(("classic join", GROUP)) == shell.now_ms + 500
    anna.join()
    assert anna.generation == 3


def test_a_leave_request_of_an_unknown_static_member_removes_nobody() -> None:
    """A consumer with an instance id does not send LeaveGroup; its session timeout removes it."""
    shell = Shell()
    anna, ben = Person(shell, "a"), Person(shell)
    shell.stable(anna, ben)
    for _ in range(2):
        shell.pass_ms(SESSION_MS // 2)
        ben.heartbeat()
    assert shell.state == "PreparingRebalance" and "a" not in shell.group.static_members
    assert anna.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
