"""Share sessions: which partitions a member fetches, in which order, and how many there may be."""

from __future__ import annotations

import pytest

from barnabas.broker.shares.sessions import ShareSession, ShareSessions
from barnabas.protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.feature("CG-19")

T, U = b"t" * 16, b"u" * 16
FIRST, SECOND, THIRD = (T, 0), (T, 1), (U, 0)
ONE, TWO = ("work", "one"), ("work", "two")
NONE, ERROR = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER


def refused(code: ErrorCode, *call: object) -> None:
    function, *arguments = call
    with pytest.raises(KafkaError) as caught:
        function(*arguments)  # type: ignore[operator]
    assert caught.value.code is code


def test_epochs_grow_and_are_checked() -> None:
    sessions = ShareSessions(10, 100)
    refused(ErrorCode.SHARE_SESSION_NOT_FOUND, sessions.resume, ONE, 1)
    refused(ErrorCode.SHARE_SESSION_NOT_FOUND, sessions.closing, ONE)
    session = sessions.open(ONE, 7, [FIRST])
    assert sessions.resume(ONE, 1) is session and session.epoch == 2
    refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, sessions.resume, ONE, 1)
    session.epoch = 0x7FFFFFFF
    sessions.resume(ONE, 0x7FFFFFFF)
    assert session.epoch == 1, "epoch 0 would open a new session"


def test_a_member_has_one_session() -> None:
    sessions = ShareSessions(1, 100)
    first = sessions.open(ONE, 7, [FIRST, SECOND])
    second = sessions.open(ONE, 8, [THIRD])
    assert (len(sessions), sessions.partitions) == (1, 1)
    sessions.remove(first)
    assert sessions.find(ONE) is second, "the end of the old connection does not end the new session"
    assert sessions.of_connection(7) == [] and sessions.of_connection(8) == [second]
    refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, sessions.open, TWO, 9, [FIRST])
    assert sessions.has_members("work")
    sessions.remove(second)
    assert not sessions.has_members("work") and not sessions.groups
    assert sessions.open(TWO, 9, [FIRST])


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = ShareSessions(10, 3)
    session = sessions.open(ONE, 7, [FIRST, FIRST, SECOND])
    assert sessions.partitions == 2
    refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, sessions.open, TWO, 7, [FIRST, THIRD])
    refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, sessions.change, session, [THIRD, (U, 1)], [])
    assert (list(session.partitions), sessions.partitions) == ([FIRST, SECOND], 2)
    sessions.change(session, [SECOND, THIRD], [FIRST, (U, 9)])
    assert (list(session.partitions), sessions.partitions) == ([SECOND, THIRD], 2)


def test_partitions_are_read_in_turn() -> None:
    session = ShareSession(ONE, 7, [FIRST, SECOND, THIRD])
    assert [session.in_turn(epoch)[0] for epoch in range(5)] == [FIRST, SECOND, THIRD, FIRST, SECOND]
    assert sorted(session.in_turn(4)) == sorted([FIRST, SECOND, THIRD])


def test_a_response_has_what_is_new() -> None:
    sessions = ShareSessions(10, 100)
    session = sessions.open(ONE, 7, [FIRST])
    sessions.change(session, [SECOND], [])
    assert not session.must_answer(FIRST, NONE, has_records=False)
    assert session.must_answer(SECOND, NONE, has_records=False), "it was added just now"
    assert not session.must_answer(SECOND, NONE, has_records=False)
    assert session.must_answer(FIRST, ERROR, has_records=False)
    assert session.must_answer(FIRST, NONE, has_records=False), "the error is gone"
    assert not session.must_answer(FIRST, NONE, has_records=False)
    assert session.must_answer(FIRST, NONE, has_records=True)
    assert list(session.partitions) == [SECOND, FIRST], "it had records, so the others come before it"
    assert not session.must_answer(THIRD, NONE, has_records=True), "the session has forgotten it"
