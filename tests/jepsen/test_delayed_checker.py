"""Histories of delayed records: in time, once, in order, and otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.delayed_records import DelayedChecker
from checkers.verdict import Verdict
from tests.jepsen.attempt_stories import Story, bugs

pytestmark = pytest.mark.feature("FI-02", "FI-11")

TOPIC = "delayed"
PLACE = (TOPIC, 0)


class Tale:
    def __init__(self) -> None:
        self.story = Story()

    def sends(self, value: int, delay_ms: int, by: str = "after", type_: Any = "ok") -> None:
        asked = {"value": value, "place": [*PLACE], "delay_ms": delay_ms, "by": by}
        self.story.did(0, "send", asked, type_)

    def reads(self, *records: tuple[int, int], after_s: float = 0.0, final: bool = True) -> None:
        self.story.passes(after_s)
        self.story.read({PLACE: list(records)}, final=final)

    def verdict(self) -> Verdict:
        return self.story.judged_by(DelayedChecker())


def test_records_come_in_the_order_of_their_times() -> None:
    tale = Tale()
    tale.sends(1, 3_000)
    tale.sends(2, 1_000)
    tale.sends(3, 0, "none")
    tale.reads((2, 3), (4, 2), (6, 1), after_s=4)
    assert tale.verdict().valid == "true"
    wrong = Tale()
    wrong.sends(1, 3_000)
    wrong.sends(2, 1_000)
    wrong.reads((2, 1), (3, 2), after_s=4)
    assert bugs(wrong.verdict()) == {"out-of-order"}


def test_pairs_that_did_not_wait_together_have_no_order() -> None:
    tale = Tale()
    tale.sends(1, 3_000)
    tale.story.passes(3.5)
    tale.sends(2, 1_000)
    tale.reads((3, 2), (4, 1), after_s=4)
    assert tale.verdict().valid == "true"


def test_nothing_is_early() -> None:
    tale = Tale()
    tale.sends(1, 3_000)
    tale.reads((1, 1), after_s=2.5)
    assert bugs(tale.verdict()) == {"early"}
    clocks = Tale()
    clocks.story.fault("clock", "broker-1")
    clocks.sends(1, 3_000)
    clocks.reads((1, 1), after_s=2.5)
    assert clocks.verdict().valid == "true"


def test_a_time_of_the_producers_clock_may_differ_from_that_of_the_leader() -> None:
    tale = Tale()
    tale.sends(1, 3_000, "at")
    tale.reads((1, 1), after_s=1.5)
    assert tale.verdict().valid == "true"
    tale = Tale()
    tale.sends(1, 3_000, "at")
    tale.reads((1, 1), after_s=0.5)
    assert bugs(tale.verdict()) == {"early"}


def test_each_is_delivered_once() -> None:
    tale = Tale()
    tale.sends(1, 100)
    tale.reads((1, 1), (3, 1), after_s=1)
    assert bugs(tale.verdict()) == {"delivered-twice"}
    lost = Tale()
    lost.sends(1, 100)
    lost.sends(2, 100, type_="info")
    lost.sends(3, 0)
    lost.reads((1, 3), after_s=1)
    assert bugs(lost.verdict()) == {"undelivered"}


def test_refused_records_and_strangers_are_not_delivered() -> None:
    tale = Tale()
    tale.sends(1, 0, type_="fail")
    tale.reads((1, 1), (2, 7))
    assert bugs(tale.verdict()) == {"G1a", "unexpected-read"}
