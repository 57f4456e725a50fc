"""Timestamps of the next record, from batch headers only."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from barnabas.broker.record_times import encode_times, ends_of
from barnabas.protocol.offset_times import CAUGHT_UP, TIMES_AT_ONCE, UNKNOWN, decode_times
from barnabas.storage.log import PartitionLog
from tests.storage.cleaning_rig import clean, close_segments, compacted, end_transaction, put, put_in_transaction
from tests.storage.rig import NOW_MS, Rig, append, batch


def replicated(log: PartitionLog) -> PartitionLog:
    log.set_high_watermark(log.log_end_offset)
    return log


def times(log: PartitionLog, *offsets: int) -> list[int]:
    found = ends_of(log, offsets, {}).times
    return [found[offset] for offset in offsets]


@pytest.mark.feature("OB-03")
def test_a_record_is_as_old_as_its_batch_says() -> None:
    log = Rig().open()
    append(log, batch(1, NOW_MS))
    append(log, batch(11, NOW_MS + 1_000))
    replicated(log)
    assert times(log, 0, 1, 6, 11, 12) == [NOW_MS, NOW_MS + 1_000, NOW_MS + 1_005, NOW_MS + 1_010, CAUGHT_UP]


def test_uncommitted_records_do_not_count() -> None:
    log = Rig().open()
    append(log, batch(1, NOW_MS))
    replicated(log)
    append(log, batch(1, NOW_MS + 5))
    assert times(log, 0, 1) == [NOW_MS, CAUGHT_UP]
    assert ends_of(log, [0], {}).high_watermark == 1


def test_markers_are_nothing_to_read() -> None:
    log = Rig().open()
    put_in_transaction(log, 7, 0, ("a", "1"))
    assert ends_of(log, [], {}).last_stable_offset == 0
    end_transaction(log, 7, commit=True)
    assert ends_of(log, [], {}).last_stable_offset == 2
    assert times(log, 0, 1) == [NOW_MS, CAUGHT_UP]
    put(log, ("b", "2"))
    assert times(log, 1) == [NOW_MS]


def test_offsets_removed_by_compaction_are_skipped() -> None:
    log = Rig().open(compacted())
    for number in range(4):
        append(log, batch(1, NOW_MS + number))
    replicated(log)
    close_segments(log)
    clean(log)
    put(log, ("other", "x"))
    [first, second] = times(log, 0, 1)
    assert first == second == NOW_MS + 3


def test_deleted_records_cannot_be_read() -> None:
    log = Rig().open()
    append(log, batch(1, NOW_MS))
    append(log, batch(1, NOW_MS + 10))
    replicated(log)
    log.advance_log_start_offset(1)
    assert times(log, 0) == [NOW_MS + 10]


def test_known_times_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Rig().open()
    append(log, batch(3, NOW_MS))
    replicated(log)
    known = ends_of(log, [0, 3], {}).times
    append(log, batch(1, NOW_MS + 9))
    replicated(log)
    monkeypatch.setattr("barnabas.broker.record_times.time_of_next", lambda log, offset: 99)
    assert ends_of(log, [0, 3], known).times == {0: NOW_MS, 3: 99}


def test_records_without_a_time_are_of_unknown_age() -> None:
    log = Rig().open()
    append(log, batch(1, -1))
    assert times(replicated(log), 0) == [UNKNOWN]


def last(steps: Generator[None, Any, bytes]) -> bytes:
    """The result after the last step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)


def test_a_leader_answers_another_broker() -> None:
    log = Rig().open()
    append(log, batch(2, NOW_MS))
    replicated(log)
    asked = b"".join(offset.to_bytes(8, "big") for offset in (0, 1, 2))
    encoded = last(encode_times(log, asked))
    assert decode_times(2, encoded, [0, 1, 2]) == ends_of(log, [0, 1, 2], {})
    assert decode_times(2, b"", [0, 1, 2]).times == {}, "a leader that does not know the field"
    assert decode_times(2, last(encode_times(log, b"odd")), []).times == {}
    assert TIMES_AT_ONCE >= 1_000
