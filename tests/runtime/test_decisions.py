"""A node's ring of decisions, and the pages on which it is read."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import pytest

from barnabas.runtime.decision_pages import MAX_LIMIT, decision_pages
from barnabas.runtime.decisions import BURST, BURST_MS, MAX_LIST, MAX_TEXT, DecisionKind, Decisions, read_log_line
from barnabas.runtime.http import HttpRequest, HttpResponse

pytestmark = pytest.mark.feature("OB-07")


def ring(size: int = 100) -> Decisions:
    now = iter(range(1_000, 1_000_000))
    return Decisions("broker-2", lambda: next(now), size)


async def ask(decisions: Decisions, path: str, **query: str) -> HttpResponse:
    return await decision_pages(decisions)[path](HttpRequest("GET", path, query, {}, True))


async def asked(decisions: Decisions, path: str = "/decisions", **query: str) -> Any:
    response = await ask(decisions, path, **query)
    assert response.status is HTTPStatus.OK
    return json.loads(response.body)


def test_a_decision_has_its_cause_epochs_and_offsets() -> None:
    decisions = ring()
    decisions.note(
        DecisionKind.ELECTION,
        "flights-3",
        "leader of flights-3 moved 2 -> 3 in epoch 12: broker 2's connection was refused: it was killed",
        also=["broker 2"],
        leader=3,
        leader_epoch=12,
        isr=[3, 1],
        offset=None,
    )
    (decision,) = decisions.since(0)
    assert decision.as_json() == {
        "number": 1,
        "at_ms": 1_000,
        "node": "broker-2",
        "kind": "election",
        "subject": "flights-3",
        "also": ["broker 2"],
        "told": "leader of flights-3 moved 2 -> 3 in epoch 12: broker 2's connection was refused: it was killed",
        "cause": "broker 2's connection was refused: it was killed",
        "facts": {"leader": 3, "leader_epoch": 12, "isr": [3, 1], "offset": None},
    }
    assert decision.as_log_line() == (
        "decision kind=election subject=flights-3 number=1 at_ms=1000 leader=3 leader_epoch=12 isr=[3,1] offset=null "
        'also=["broker 2"] told="leader of flights-3 moved 2 -> 3 in epoch 12" '
        'cause="broker 2\'s connection was refused: it was killed"'
    )
    assert read_log_line(f"… INFO decisions: {decision.as_log_line()}", "broker-2") == decision.as_json()


def test_a_name_with_a_colon_does_not_become_a_cause() -> None:
    decisions = ring()
    decisions.note(DecisionKind.REBALANCE, "group a: b", "group a: b rebalances", cause="member c: d joined")
    (decision,) = decisions.since(0)
    assert (decision.sentence, decision.cause) == ("group a: b rebalances: member c: d joined", "member c: d joined")


def test_the_ring_keeps_the_newest_and_reports_the_first_number() -> None:
    decisions = ring(size=10)
    for number in range(1, 26):
        decisions.note(DecisionKind.LOG, f"flights-{number % 2}", f"decision {number}", at=number)
    assert (decisions.first_number, decisions.next_number) == (16, 26)
    assert [it.number for it in decisions.since(0)] == list(range(16, 26))
    assert [it.number for it in decisions.since(20)] == list(range(20, 26))
    assert [it.number for it in decisions.since(20, limit=2)] == [20, 21]
    assert [it.number for it in decisions.since(0, "flights-1")] == [17, 19, 21, 23, 25]
    assert decisions.since(26) == decisions.since(10**30) == decisions.since(0, limit=-1) == []


@pytest.mark.parametrize(
    "name", ["a\nb", "a\r\nINFO x", 'a" kind=log', "a\u2028b", "\x1b[31m", "\ud800", "x" * 40_000, ""]
)
def test_hostile_names_stay_one_line_of_bounded_length(name: str) -> None:
    decisions = ring()
    decisions.note(DecisionKind.REBALANCE, f"group {name}", f"group {name} is empty", also=[name] * 9_999, member=name)
    (decision,) = decisions.since(0, f"group {name}")
    line = decision.as_log_line()
    assert len(line.splitlines()) == 1 and line.isprintable() and len(line) < 60 * MAX_TEXT
    assert len(decision.also) == MAX_LIST
    assert json.loads(json.dumps(decision.as_json())) == decision.as_json()
    assert read_log_line(line, "broker-2") == decision.as_json()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "decision ",
        "decision kind=isr",
        'decision kind=isr subject=s number="1" at_ms=1 told=x',
        "decision kind=isr subject=s number=1 at_ms=1 told=",
        'decision kind=isr subject=s number=1 at_ms=1 told="x',
        "decision kind=isr subject=s number=1 at_ms=1 told=x =5",
        "decision " + "[" * 100_000,
        "decision x=" + "[" * 100_000,
        "a decision of another kind",
    ],
)
def test_a_line_without_a_decision_is_ignored(line: str) -> None:
    assert read_log_line(line, "broker-2") is None


async def test_the_page_is_read_step_by_step_without_gap_or_repeat() -> None:
    decisions = ring()
    for number in range(1, 8):
        decisions.note(DecisionKind.ISR, "flights-0" if number % 2 else "flights-1", f"decision {number}")
    seen, after = [], 0
    while True:
        body = await asked(decisions, after=str(after), limit="3", subject="flights-0")
        if not body["decisions"]:
            break
        seen += [it["number"] for it in body["decisions"]]
        after = body["next"] - 1
    assert seen == [1, 3, 5, 7]
    assert body == {"node": "broker-2", "next": 8, "first": 1, "decisions": []}
    assert (await asked(decisions, "/subjects"))["subjects"] == ["flights-0", "flights-1"]


async def test_a_page_is_never_too_long() -> None:
    decisions = ring(size=MAX_LIMIT + 10)
    for number in range(MAX_LIMIT + 10):
        decisions.note(DecisionKind.ISR, "flights-0", f"decision {number}")
    body = await asked(decisions, limit="999999999")
    assert (len(body["decisions"]), body["next"]) == (MAX_LIMIT, MAX_LIMIT + 1)


@pytest.mark.parametrize("text", ["-1", "x", "1e3", "", "9" * 19, "9" * 10_000, "١", "0x10", " 1"])
@pytest.mark.parametrize("name", ["after", "limit"])
async def test_a_query_that_is_no_number_is_refused_with_one_line(name: str, text: str) -> None:
    response = await ask(ring(), "/decisions", **{name: text})
    assert response.status is HTTPStatus.BAD_REQUEST
    assert response.body == f"{name} must be a whole number of at most 18 digits\n".encode()


async def test_an_unknown_subject_has_no_decisions() -> None:
    decisions = ring()
    decisions.note(DecisionKind.ISR, "flights-0", "moved")
    assert (await asked(decisions, subject="flights"))["decisions"] == []
    assert (await asked(decisions, subject="x" * 16_000))["decisions"] == []


def test_elections_of_thousands_of_partitions_are_counted_and_do_not_displace_everything() -> None:
    now_ms = 5_000
    decisions = Decisions("broker-2", lambda: now_ms)
    decisions.note(DecisionKind.QUORUM, "quorum", "controller 101 leads", cause="it was elected")
    for number in range(BURST + 500):
        if decisions.accepts(DecisionKind.ELECTION):
            decisions.note(DecisionKind.ELECTION, f"flights-{number}", "broker 2 leads", cause="the log says so")
    assert len(decisions.since(0, kind="election")) == BURST
    assert decisions.since(0, "quorum"), "an older decision is still there"
    assert decisions.accepts(DecisionKind.ISR), "other kinds have their own count"
    now_ms += BURST_MS
    assert decisions.accepts(DecisionKind.ELECTION)
    (summary,) = decisions.since(0, "broker-2")
    assert summary.what == "500 decisions of the kind election were not noted"
    assert summary.facts == {"decisions": BURST + 500}
