"""The state of a log's disk beside a plain list of the errors that it had."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.log_health import LogHealth

FAILURES = {errno.EIO, errno.EROFS, errno.ENOENT}
NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
OTHER_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
ERRORS = st.sampled_from(sorted(FAILURES | NO_ROOM | OTHER_SHORTAGES))
STEPS = st.lists(st.tuples(ERRORS, st.sampled_from(["write", "sync", "truncation"])), max_size=6)


@pytest.mark.feature("RE-18", "OP-06")
@given(STEPS, st.booleans(), st.booleans())
def test_the_first_failure_counts_and_a_shortage_is_none(
    steps: list[tuple[int, str]], listens: bool, is_closed: bool
) -> None:
    """A failed sync is never a shortage; a truncation that stopped halfway is one only for a lack of room."""
    failed: list[OSError] = []
    no_room: list[None] = []
    health = LogHealth(lambda: "the log")
    if listens:
        health.on_failure, health.on_no_room = failed.append, lambda: no_room.append(None)
    health.is_closed_for_room = is_closed
    failures, lacks = [], 0
    for number, kind in steps:
        error = OSError(number, f"error {number}")
        if kind == "truncation":
            answer = health.truncation_failed(error)
        else:
            answer = health.failed(error, passes=False if kind == "sync" else None)
        assert (answer.code, answer.message) == (ErrorCode.KAFKA_STORAGE_ERROR, f"the log: {error}")
        passes = {"write": NO_ROOM | OTHER_SHORTAGES, "truncation": NO_ROOM, "sync": set()}[kind]
        if number not in passes:
            failures.append(error)
        lacks += number in passes and number in NO_ROOM
    assert health.failure is (failures[0] if failures else None)
    assert failed == (failures[:1] if listens else [])
    assert len(no_room) == (lacks if listens else 0)
    if failures:
        with pytest.raises(KafkaError, match=f"the log: .*{failures[0].errno}") as refused:
            health.check()
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    else:
        health.check()
    if is_closed:
        with pytest.raises(KafkaError, match="the log: its log directory is full"):
            health.check_room()
    else:
        health.check_room()
