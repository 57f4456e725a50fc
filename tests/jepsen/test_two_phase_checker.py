"""Histories of transactions that an external coordinator decides: completed as decided, and otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.two_phase import TwoPhaseChecker
from tests.jepsen.attempt_stories import Story, bugs

pytestmark = pytest.mark.feature("FI-02", "FI-11", "TX-15")

FIRST, SECOND = ("two-phase", 0), ("two-phase", 1)


def tale(*fates: str, committed: list[int], crash: str = "decided") -> Story:
    """Transactions 1, 2, … of one thread, each with a record in both partitions, and the last recovery."""
    story = Story()
    story.run = {"options": {"processes": 1}}
    for number, fate in enumerate(fates, 1):
        asked = {"id": number, "records": [[*FIRST, number], [*SECOND, number]], "commit": True, "crash": crash}
        type_: Any = fate
        story.did(number - 1, "transact", asked, type_)
    story.did(len(fates), "recover", {"crash": False}, "ok", {"crash": False, "committed": committed})
    return story


def ends(story: Story, first: list[int], second: list[int]) -> set[str]:
    parts = {FIRST: list(enumerate(first)), SECOND: list(enumerate(second))}
    story.read(parts, final=True)
    return bugs(story.judged_by(TwoPhaseChecker()))


def test_a_decision_is_carried_out_by_a_later_client_too() -> None:
    assert ends(tale("ok", "info", "fail", committed=[1, 2]), [1, 2], [1, 2]) == set()


def test_a_prepared_transaction_is_lost() -> None:
    assert ends(tale("info", committed=[1]), [], []) == {"lost-write"}


def test_a_transaction_is_committed_that_was_not_decided() -> None:
    assert ends(tale("info", committed=[], crash="prepared"), [1], [1]) == {"G1a"}


def test_a_transaction_is_completed_in_one_partition_only() -> None:
    assert ends(tale("info", committed=[1]), [1], []) == {"torn-transaction"}


def test_without_the_decisions_a_transaction_may_have_any_outcome() -> None:
    story = Story()
    story.run = {"options": {"processes": 1}}
    asked = {"id": 1, "records": [[*FIRST, 1]], "commit": True, "crash": "decided"}
    story.did(0, "transact", asked, "info")
    story.read({FIRST: [(0, 1)]}, final=True)
    verdict = story.judged_by(TwoPhaseChecker())
    assert not bugs(verdict) and verdict.valid == "unknown"
