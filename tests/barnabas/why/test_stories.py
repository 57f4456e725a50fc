"""Merging the decisions of several nodes into one story."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.why import story_lines
from barnabas.runtime.decisions import DecisionKind, Decisions
from barnabas.why.decision_log import read_log
from barnabas.why.story import meant, near, read_decisions, read_subjects, story

pytestmark = pytest.mark.feature("OB-07")

KNOWN = [
    "broker 2",
    "broker-2",
    "controller 101",
    "flights-0",
    "flights-3",
    "flights-10",
    "group etl",
    "group flights",
    "quorum",
    "topic flights",
    "transaction import-1",
]


class Nodes:
    """Rings of several nodes with one clock."""

    def __init__(self) -> None:
        self.now_ms = 1_763_750_000_000
        self.rings: dict[str, Decisions] = {}

    def note(self, node: str, kind: DecisionKind, subject: str, text: str, **more: Any) -> None:
        self.now_ms += 10
        self.rings.setdefault(node, Decisions(node, lambda: self.now_ms)).note(kind, subject, text, **more)

    def all(self) -> list[Any]:
        return [it.as_json() for ring in self.rings.values() for it in ring.since(0)]


def election(nodes: Nodes) -> None:
    """An election that one controller decides, another reads, and the new leader carries out."""
    moved = "leader of flights-3 moved 2 -> 3 in epoch 12"
    facts: dict[str, Any] = {"leader": 3, "leader_epoch": 12}
    nodes.note("controller-101", DecisionKind.ELECTION, "flights-3", moved, cause="broker 2 was killed", **facts)
    nodes.note("broker-3", DecisionKind.ELECTION, "flights-3", "broker 3 leads", cause="log", **facts, hearsay=2)
    nodes.note("controller-102", DecisionKind.ELECTION, "flights-3", moved, cause="it read so", **facts, hearsay=1)


@pytest.mark.parametrize(
    ("text", "subjects"),
    [
        ("flights-3", ["flights-3", "topic flights"]),
        ("flights", ["group flights", "topic flights", "flights-0", "flights-3", "flights-10"]),
        ("etl", ["group etl"]),
        ("group etl", ["group etl"]),
        ("import-1", ["transaction import-1"]),
        ("broker 2", ["broker 2"]),
        ("broker-2", ["broker-2", "broker 2"]),
        ("controller-101", ["controller 101"]),
        ("quorum", ["quorum"]),
        ("nothing", []),
        ("", []),
    ],
)
def test_subjects_that_match_a_question(text: str, subjects: list[str]) -> None:
    assert meant(text, KNOWN) == subjects


def test_an_unknown_partition_of_a_known_topic_matches_the_topic() -> None:
    assert meant("flights-7", KNOWN) == ["topic flights"]


def test_similar_subjects() -> None:
    assert near("flihgts-3", KNOWN)[0] == "flights-3"
    assert "group etl" in near("elt", KNOWN)
    assert near("fli", KNOWN)[0].removeprefix("topic ").removeprefix("group ").startswith("flights")
    assert near("\x00" * 50_000, KNOWN) == []


def test_an_event_is_reported_once_by_the_node_that_decided() -> None:
    nodes = Nodes()
    election(nodes)
    (event,) = story(nodes.all())
    assert event.decision["node"] == "controller-101" and event.cause == "broker 2 was killed"
    assert [it["node"] for it in event.seen_by] == ["controller-102", "broker-3"]


def test_the_best_informed_node_reports_if_the_deciding_node_is_gone() -> None:
    nodes = Nodes()
    election(nodes)
    del nodes.rings["controller-101"]
    (event,) = story(nodes.all())
    assert (event.decision["node"], event.cause) == ("controller-102", "it read so")
    del nodes.rings["controller-102"]
    (event,) = story(nodes.all())
    assert event.decision["node"] == "broker-3"


def test_request_and_grant_of_an_isr_are_one_event_with_the_leaders_reason() -> None:
    nodes = Nodes()
    for epoch, isr in ((7, [1, 2]), (8, [1, 2, 3])):
        facts: dict[str, Any] = {"isr": [9], "isr_wanted": isr, "partition_epoch": epoch}
        nodes.note("broker-1", DecisionKind.ISR, "flights-3", "asks", cause=f"reason {epoch}", **facts)
        granted: dict[str, Any] = {"isr": isr, "partition_epoch": epoch + 1}
        nodes.note("controller-101", DecisionKind.ISR, "flights-3", f"ISR {isr}", cause="asked for", **granted)
    nodes.note("broker-1", DecisionKind.ISR, "flights-3", "asks", isr=[9], isr_wanted=[1], partition_epoch=9)
    events = story(nodes.all())
    assert [(it.what, it.cause) for it in events] == [
        ("ISR [1, 2]", "asked for: reason 7"),
        ("ISR [1, 2, 3]", "asked for: reason 8"),
        ("asks", ""),
    ]
    assert events[0].to_json()["told"] == "ISR [1, 2]: asked for: reason 7"


def test_text_output_has_time_event_node_and_cause() -> None:
    nodes = Nodes()
    election(nodes)
    assert story_lines(story(nodes.all()), ["flights-3"]) == [
        "2025-11-21",
        "  18:33:20.010Z  leader of flights-3 moved 2 -> 3 in epoch 12  (controller-101)",
        "      because broker 2 was killed",
        "      leader epoch 12",
        "      18:33:20.020Z  broker 3 leads  (broker-3)",
    ]


def test_only_the_first_of_many_events_of_one_step_are_printed() -> None:
    nodes = Nodes()
    for step in (5, 6):
        for index in range(20):
            name = f"flights-{index}"
            also = ["broker 2"]
            nodes.note("controller-101", DecisionKind.ELECTION, name, "moved", also=also, metadata_offset=step)
    lines = story_lines(story(nodes.all()), ["broker 2"])
    assert sum("moved" in line for line in lines) == 6
    assert [line for line in lines if "more" in line] == ["      … and 17 more in the same step"] * 2


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J\x1b[31m", "\u202eevil", "x" * 5_000])
def test_control_characters_in_names_are_not_printed(name: str) -> None:
    nodes = Nodes()
    nodes.note("broker-1", DecisionKind.REBALANCE, f"group {name}", f"group {name} rebalances", cause=f"{name} joins")
    assert all(line.isprintable() for line in story_lines(story(nodes.all()), []))


@pytest.mark.parametrize(
    "page",
    [
        None,
        [],
        "x",
        {"decisions": None},
        {"decisions": {"a": 1}},
        {"decisions": [1, None, {}, {"node": 1}]},
        {
            "decisions": [
                {"node": "n", "kind": "k", "subject": "s", "told": "t", "cause": "c", "number": "1", "at_ms": 1}
            ]
        },
        {"subjects": [1, None, {}]},
    ],
)
def test_malformed_decisions_are_ignored(page: object) -> None:
    assert read_decisions(page) == [] and read_subjects(page) == []


def test_a_log_file_contains_the_decisions_before_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = Nodes()
    with caplog.at_level("INFO", logger="decisions"):
        election(nodes)
        nodes.note("controller-101", DecisionKind.REBALANCE, "group a\nb", 'group "x" rebalances: y = z', also=["a b"])
    lines = [f"2025-11-21T18:33:20.010Z INFO    decisions: {it}" for it in caplog.messages]
    log = tmp_path / "controller-101.log"
    log.write_text("\n".join(["a line", *lines, "decision nonsense", "\ufffd decision kind="]), encoding="utf-8")
    ring = nodes.rings["controller-101"]
    found = read_log(log, "controller-101")
    assert [it for it in found if it["number"] in (1, 2) and "hearsay" not in it["facts"]] == [
        it.as_json() for it in ring.since(0)
    ]
    assert story([*found, *(it.as_json() for it in ring.since(0))])[0].decision == ring.since(0)[0].as_json()
    assert read_log(tmp_path / "nothing.log", "broker-1") == []


def test_the_story_does_not_depend_on_the_order_of_answers(capsys: pytest.CaptureFixture[str]) -> None:

    nodes = Nodes()
    election(nodes)
    forwards, backwards = nodes.all(), list(reversed(nodes.all()))
    assert [it.to_json() for it in story(forwards)] == [it.to_json() for it in story(backwards)]
