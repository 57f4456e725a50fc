"""Promises, verdicts and exit codes."""

from __future__ import annotations

import pytest

from barnabas.check.judge import Finding
from barnabas.check.promises import Kind, Promise, UnknownPromise
from barnabas.check.verdict import BROKEN, HOLDS, Verdict

LOST, DOUBLED, REORDERED = (Finding(kind, f"one is {kind}") for kind in (Kind.LOST, Kind.DOUBLED, Kind.REORDERED))


@pytest.mark.parametrize(
    ("words", "breaks"),
    [
        (["at-least-once"], {Kind.LOST}),
        (["exactly-once"], {Kind.LOST, Kind.DOUBLED}),
        (["ordered"], {Kind.LOST, Kind.REORDERED}),
        (["at-least-once", "ordered"], {Kind.LOST, Kind.REORDERED}),
        (["exactly-once,ordered"], {Kind.LOST, Kind.DOUBLED, Kind.REORDERED}),
    ],
)
def test_each_promise_is_broken_by_its_findings(words: list[str], breaks: set[Kind]) -> None:
    verdict = Verdict(Promise.parse(words), 1, [LOST, DOUBLED, REORDERED])
    assert {it.kind for it in verdict.broken} == breaks
    assert verdict.exit_code == BROKEN
    assert set(verdict.legal_counts) == {Kind.LOST, Kind.DOUBLED, Kind.REORDERED} - breaks


@pytest.mark.parametrize("words", [["twice"], ["at-least-once", "exactly-once"], [""]])
def test_an_unknown_promise_is_refused_in_one_line(words: list[str]) -> None:
    with pytest.raises(UnknownPromise) as refused:
        Promise.parse(words)
    assert "\n" not in str(refused.value)


def test_the_verdict_is_one_line() -> None:
    broken = Verdict(Promise(exactly_once=True), 7, [LOST, LOST, DOUBLED], {"inputs": 9, "faults": 2})
    assert broken.line == "exactly-once is broken: 2 lost, 1 doubled (9 inputs, 2 faults; seed 7)"
    holds = Verdict(Promise(), 7, [DOUBLED], {"inputs": 9})
    assert (holds.line, holds.exit_code) == ("at-least-once holds (9 inputs; seed 7)", HOLDS)


def test_stories_are_chosen_from_each_kind() -> None:
    verdict = Verdict(Promise(exactly_once=True), 1, [LOST] * 9 + [DOUBLED] * 2)
    assert [it.kind for it in verdict.chosen(3)] == [Kind.LOST] * 3 + [Kind.DOUBLED] * 2
