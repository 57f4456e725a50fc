"""Percentiles are right to one part in a hundred, however many durations there are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.percentiles import Histogram
from barnabas.cli.throughput import Result, Throughput, share_name

SHARES = [0.0, 0.5, 0.95, 0.99, 0.999, 1.0]


def test_nothing_has_no_percentiles() -> None:
    empty = Histogram()
    assert empty.percentiles_us(SHARES) == [0] * len(SHARES)
    assert empty.mean_us == 0


def test_small_durations_are_exact() -> None:
    found = Histogram()
    for duration_us in range(1, 101):
        found.add(duration_us)
    assert found.percentiles_us([0.01, 0.5, 0.95, 1.0]) == [1, 50, 95, 100]
    assert found.mean_us == 50.5


@pytest.mark.feature("TO-08")
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200))
def test_each_percentile_is_near_the_true_one(durations_us: list[int]) -> None:
    found = Histogram()
    for duration_us in durations_us:
        found.add(duration_us)
    ordered = sorted(durations_us)
    for share, message in zip(SHARES, found.percentiles_us(SHARES), strict=True):
        true = ordered[max(0, math.ceil(share * len(ordered)) - 1)]
        assert true <= message <= true * (1 + 1 / 128) + 1
    assert found.max_us == ordered[-1]
    assert found.mean_us == pytest.approx(sum(ordered) / len(ordered))


def test_windows_count_records_since_the_last_one() -> None:
    account = Throughput(began_us=0, interval_us=1_000_000)
    account.add(10, 1_048_576, 2_000)
    assert account.window(999_999) is None
    assert account.window(1_000_000) == "10 records, 10/s, 1.00 MiB/s, 2.0 ms mean, 2.0 ms at most"
    assert account.window(5_000_000) is None, "nothing came"
    account.add(5, 0)
    assert account.window(6_000_000) == "5 records, 1/s, 0.00 MiB/s"
    assert account.records == 15


def test_a_result_for_people_and_for_programs() -> None:
    durations = Histogram()
    durations.add(1_000, times=99)
    durations.add(100_000)
    result = Result(100, 10 * 1_048_576, 2_000_000, 50_000, {"until acked": durations}, [0.5, 0.999], {"wait": 3.0})
    assert result.lines() == [
        "100 records, 50/s, 5.00 MiB/s, 2.00 s, 500.00 CPU seconds for a million",
        "wait: 3.0 ms",
        "until acked (ms): mean 1.99, p50 1.00, p99.9 100.00, max 100.00",
    ]
    message = result.to_json()
    assert message["records_per_second"] == 50
    assert message["until_acked_ms"] == {"mean": 1.99, "p50": 1.003, "p99.9": 100.0, "max": 100.0}
    assert message["wait_ms"] == 3.0


def test_a_result_of_nothing() -> None:
    result = Result(0, 0, 0, 0, {"latency": Histogram()}, [0.5])
    assert result.lines()[0] == "0 records, 0/s, 0.00 MiB/s, 0.00 s, no CPU time"
    assert result.to_json()["records_per_second"] == 0


def test_shares_are_named_as_they_were_typed() -> None:
    assert [share_name(float(text) / 100) for text in ("50", "99.9", "99.99", "0.1")] == ["50", "99.9", "99.99", "0.1"]
