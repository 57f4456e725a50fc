"""A run on a terminal, as plain lines, and as an SVG."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from barnabas.cluster.status import ClusterStatus, NodeStatus, PartitionStatus, QuorumStatus
from barnabas.demo.ledger import Ledger
from barnabas.demo.play import Event, Run, Summary
from barnabas.demo.scenario import SCENARIOS
from barnabas.demo.view import draw, draw_summary, line_of, picture

NODES = [
    NodeStatus("broker-1", "broker", 9092, "dead", None),
    NodeStatus("broker-2", "broker", 9093, "running", 12),
    NodeStatus("controller-101", "controller", 9192, "paused", 13),
]
PARTITIONS = [PartitionStatus("demo", 0, 2, 7, [1, 2], [2], 4_321), PartitionStatus("demo", 1, -1, 8, [1, 2], [], None)]
STATUS = ClusterStatus("id", "", NODES, QuorumStatus(101, 3, 99), [2], PARTITIONS)


@pytest.fixture
def run() -> Run:
    """Ten seconds: acks on both partitions, then on the first alone."""
    ledger = Ledger("run", 2, began_ms=1_000)
    ledger.begin_window("kill -9 broker-1", 4_000)
    for now_ms in range(1_500, 11_000, 20):
        for partition in (0, 1) if now_ms < 4_000 else (0,):
            number, value = ledger.send(partition)
            ledger.acked(partition, number, number, now_ms)
            ledger.read(partition, number, value)
    ledger.send(1)
    watch: Any = SimpleNamespace(status=STATUS)
    events = [Event(500, "it begins"), Event(3_000, "kill -9 broker-1", fault=True)]
    return Run(SCENARIOS["kill"], ledger, watch, lambda: 10_000, events)


@pytest.fixture
def summary(run: Run) -> Summary:
    run.ledger.finish(11_000)
    return Summary("kill", 10.0, 500, run.ledger.verdict(), run.ledger.windows, 1_000, {})


def shown(what: RenderableType, columns: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, record=True)
    console.print(what)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_everything_fits_a_small_terminal(run: Run) -> None:
    lines = shown(draw(run, 80, events_count=6))
    assert len(lines) <= 24
    text = "\n".join(lines)
    assert "broker-1  dead" in text
    assert "controller-101  paused  active, epoch 3" in text
    assert [line.split() for line in lines if line.startswith("demo-")] == [
        ["demo-0", "2", "7", "2", "4321", "475", "475", "-"],
        ["demo-1", "none", "8", "?", "125", "125", "7020"],
    ]


def test_a_gap_begins_at_the_mark_of_its_fault(run: Run) -> None:
    first, second, marks = (line[9:] for line in shown(draw(run, 120), 120)[-6:-3])
    assert "·" not in first
    assert second.strip().count("·") == 70
    assert marks.index("1") == second.index("·") == 30


def test_only_the_last_events_are_drawn(run: Run) -> None:
    assert shown(draw(run, 80, events_count=1))[-1] == "   3.0 s  1 kill -9 broker-1"
    assert "it begins" not in "\n".join(shown(draw(run, 80, events_count=1)))


def test_events_as_lines(run: Run) -> None:
    assert [line_of(event) for event in run.events] == ["   0.5 s    it begins", "   3.0 s  ! kill -9 broker-1"]


def test_the_summary_has_gaps_and_losses(summary: Summary) -> None:
    lines = shown(draw_summary(summary))
    assert lines[1].split() == ["kill", "-9", "broker-1", "7020", "ms"]
    assert lines[-1] == "acked 600  read 600  lost 0  duplicated 0  out of order 0"
    bad = replace(summary, verdict=replace(summary.verdict, lost=2, misplaced=1, unknown=3))
    assert "lost 2  duplicated 0  out of order 0  misplaced 1" in "\n".join(shown(draw_summary(bad)))
    assert shown(draw_summary(bad))[-1] == "not acked: 0 refused, 3 of unknown fate"


@pytest.mark.parametrize(("read", "place"), [(False, "is not in the log"), (True, "is in the log")])
def test_the_summary_has_the_write_to_the_zombie(summary: Summary, read: bool, place: str) -> None:
    zombie = {"broker": "broker-1", "answer": "NOT_LEADER_OR_FOLLOWER", "acked": False, "read": read}
    lines = shown(draw_summary(replace(summary, findings={"zombie": zombie})))
    assert lines[-1] == f"the write to the zombie leader got NOT_LEADER_OR_FOLLOWER and {place}"


def test_the_picture_is_reproducible_and_self_contained(run: Run, summary: Summary) -> None:
    drawn = picture(run, summary, "make demo")
    assert drawn == picture(run, summary, "make demo")
    assert drawn.startswith("<svg") and "make&#160;demo" in drawn.replace("make demo", "make&#160;demo")
    assert "url(http" not in drawn and "@import" not in drawn
