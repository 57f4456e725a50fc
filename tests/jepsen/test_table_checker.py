"""Histories of tables in compacted logs: the last value of each key is there, and no deleted key is back."""

from __future__ import annotations

from typing import cast

import pytest

from checkers.table_keys import TableChecker
from operations import Outcome
from tests.jepsen.attempt_stories import Story, bugs

pytestmark = pytest.mark.feature("FI-02", "FI-11")

PLACE = ("table", 0)


class Tale:
    def __init__(self) -> None:
        self.story = Story()

    def writes(self, offset: int | None, key: int, value: int | None) -> None:
        asked = {"place": [*PLACE], "key": key, "value": value}
        if offset is None:
            self.story.did(0, "write", asked, "info")
        else:
            self.story.did(0, "write", asked, "ok", {**asked, "offset": offset})

    def transaction(self, outcome: str, *writes: tuple[int | None, int, int | None]) -> None:
        """Writes as (offset or None, key, value)."""
        asked = [{"place": [*PLACE], "key": key, "value": value} for _, key, value in writes]
        done = [
            each if offset is None else {**each, "offset": offset}
            for each, (offset, _, _) in zip(asked, writes, strict=True)
        ]
        self.story.did(0, "txn", {"writes": asked}, cast(Outcome, outcome), {"writes": done})

    def found(self, *records: tuple[int, int, int | None]) -> set[str]:
        """Anomalies if a reader is given these (offset, key, value)."""
        self.story.read({PLACE: [(offset, [key, value]) for offset, key, value in records]}, final=True)
        return bugs(self.story.judged_by(TableChecker()))


def table() -> Tale:
    tale = Tale()
    tale.writes(0, 1, 10)
    tale.writes(1, 2, 11)
    tale.writes(2, 1, 12)
    tale.writes(3, 2, None)
    return tale


def test_compaction_may_leave_this() -> None:
    assert table().found((0, 1, 10), (1, 2, 11), (2, 1, 12), (3, 2, None)) == set()
    assert table().found((2, 1, 12), (3, 2, None)) == set()
    assert table().found((2, 1, 12)) == set()


def test_the_last_value_of_a_key_may_not_be_missing() -> None:
    assert table().found((3, 2, None)) == {"lost-write"}
    assert table().found((0, 1, 10), (3, 2, None)) == {"lost-write"}


def test_a_deleted_key_may_not_be_back() -> None:
    assert table().found((1, 2, 11), (2, 1, 12)) == {"lost-write"}


def test_a_write_of_unknown_fate_may_be_the_last_one() -> None:
    tale = table()
    tale.writes(None, 1, 13)
    assert tale.found((4, 1, 13)) == set()


def test_nothing_else_may_be_there() -> None:
    assert table().found((2, 1, 12), (5, 7, 99)) == {"unexpected-read"}
    assert "inconsistent-offsets" in table().found((2, 1, 10))


def with_transaction(outcome: str, *writes: tuple[int | None, int, int | None]) -> Tale:
    tale = table()
    tale.transaction(outcome, *writes)
    return tale


def test_a_committed_transaction_counts_like_single_writes() -> None:
    committed = ("ok", (4, 1, 20), (5, 2, 21))
    assert with_transaction(*committed).found((4, 1, 20), (5, 2, 21)) == set()
    assert with_transaction(*committed).found((2, 1, 12), (5, 2, 21)) == {"lost-write"}


def test_an_aborted_write_is_never_read() -> None:
    aborted = ("fail", (4, 1, 20), (5, 1, None), (None, 2, 21))
    assert with_transaction(*aborted).found((2, 1, 12), (3, 2, None)) == set()
    assert with_transaction(*aborted).found((2, 1, 12), (4, 1, 20)) == {"G1a"}
    assert with_transaction(*aborted).found((2, 1, 12), (6, 2, 21)) == {"G1a"}
    assert with_transaction(*aborted).found((2, 1, 12), (5, 1, None)) == {"G1a"}, "a tombstone is known by its offset"


def test_an_aborted_write_hides_no_value() -> None:
    assert with_transaction("fail", (4, 1, None)).found((3, 2, None)) == {"lost-write"}


def test_a_transaction_of_unknown_fate_may_be_there_or_not() -> None:
    unknown = ("info", (4, 1, 20), (None, 2, 21))
    assert with_transaction(*unknown).found((2, 1, 12)) == set()
    assert with_transaction(*unknown).found((4, 1, 20), (5, 2, 21)) == set()
