"""The event `load`, on a clock of the test, and the figures beside those of the tour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.page.load import LATENCY_WINDOW_MS, TimedLedger
from barnabas.page.show import apache_kafka

ROOT = Path(__file__).resolve().parents[2]


class Clock:
    def __init__(self) -> None:
        self.at_ms = 1_000

    def __call__(self) -> int:
        return self.at_ms


def write(ledger: TimedLedger, clock: Clock, count: int, latency_ms: int, *, read: bool = True) -> None:
    """One record after the other, each acked and read before the next."""
    for _ in range(count):
        number, value = ledger.send(0)
        clock.at_ms += latency_ms
        ledger.acked(0, number, number, clock.at_ms)
        if read:
            ledger.read(0, number, value)


def test_rates_and_latencies_are_those_of_the_last_seconds() -> None:
    clock = Clock()
    ledger = TimedLedger("run", 1, clock)
    ledger.begin_window("the load", clock.at_ms)
    write(ledger, clock, 99, 10)
    write(ledger, clock, 1, 300)
    answer = ledger.event(running=True)
    assert (answer["p50_ms"], answer["p99_ms"], answer["longest_gap_ms"]) == (10, 300, 300)
    assert answer["acked"] == answer["read"] == 100
    assert answer["acked_per_second"] == answer["read_per_second"] == 72
    assert (answer["lost"], answer["duplicated"], answer["out_of_order"], answer["undecided"]) == (0, 0, 0, 0)
    clock.at_ms += LATENCY_WINDOW_MS + 1
    answer = ledger.event(running=False)
    assert (answer["p50_ms"], answer["acked_per_second"], answer["read_per_second"]) == (None, 0, 0)
    assert answer["longest_gap_ms"] == 300  # nothing waited: silence is no gap


def test_a_current_gap_counts() -> None:
    clock = Clock()
    ledger = TimedLedger("run", 1, clock)
    ledger.begin_window("the load", clock.at_ms)
    write(ledger, clock, 1, 5)
    ledger.send(0)
    clock.at_ms += 4_000
    answer = ledger.event(running=True)
    assert (answer["longest_gap_ms"], answer["undecided"]) == (4_000, 1)


def test_planted_errors_are_counted() -> None:
    clock = Clock()
    ledger = TimedLedger("run", 1, clock)
    write(ledger, clock, 2, 1, read=False)
    write(ledger, clock, 1, 1)
    assert ledger.event(running=True)["lost"] == 2
    ledger.read(0, 2, b"run 0 2")
    assert ledger.event(running=True)["duplicated"] == 1
    ledger.read(0, 3, b"run 0 0")
    answer = ledger.event(running=True)
    assert (answer["lost"], answer["out_of_order"]) == (1, 1)


def test_a_long_run_needs_little_memory() -> None:
    clock = Clock()
    ledger = TimedLedger("run", 1, clock)
    for _ in range(100):
        write(ledger, clock, 100, 3)
        ledger.event(running=True)
    account = ledger.accounts[0]
    assert not account.acked and not account.read and not account.acks
    assert len(ledger._acks) <= LATENCY_WINDOW_MS / 3 + 1
    assert ledger.verdict().acked == 10_000 and ledger.verdict().clean


@pytest.mark.feature("FI-10")
def test_apache_kafkas_gaps_are_those_of_the_benchmark() -> None:
    rows = {}
    for line in (ROOT / "docs" / "benchmarks.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 6:
            rows[cells[1]] = cells[3:7]
    for name, figure in apache_kafka().items():
        assert "docs/benchmarks.md" in figure["source"] and figure["row"] in figure["source"]
        median, _cpu, _others, also = rows[figure["row"]]
        measured = median.split(" ")[0]
        if "also" in figure:
            found = re.search(rf"{figure['also']} ([0-9.]+)", also)
            assert found is not None
            measured = found[1]
        assert round(float(measured) * 1000) == figure["gap_ms"], name
