"""The arithmetic of rates: Kafka's windows, and the time that brings a rate back to its bound (KIP-13)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime.quotas.rate import MOST_THROTTLE_MS, Average, QuotaWindows, Rate, rounded_ms

pytestmark = pytest.mark.feature("QU-07")

WINDOWS = QuotaWindows()


def test_a_first_amount_counts_as_if_it_took_ten_windows() -> None:
    rate = Rate(WINDOWS)
    rate.record(1_000, 5_000)
    assert rate.window_ms(5_000) == 10_000
    assert rate.per_second(5_000) == 100


def test_the_window_grows_with_the_samples_up_to_eleven_seconds() -> None:
    """With 11 samples of 1 s, a sample counts until nothing happened in it for 11 s."""
    rate = Rate(WINDOWS)
    for second in range(12):
        rate.record(100, second * 1000)
    assert rate.window_ms(11_000) == 10_000, "the sample of second 0 is empty since its last event is 11 s ago"
    assert rate.window_ms(11_500) == 10_500
    assert rate.total == 1_100


def test_a_sample_that_reaches_into_the_window_counts_whole() -> None:
    """Events at the end of a sample keep the begin of it, too."""
    rate = Rate(WINDOWS)
    rate.record(100, 0)
    rate.record(100, 999)
    assert rate.window_ms(11_500) == 11_500 and rate.total == 200
    assert rate.window_ms(11_999) == 10_000 and rate.total == 0


def test_after_a_long_silence_a_rate_starts_again() -> None:
    rate = Rate(WINDOWS)
    for second in range(11):
        rate.record(1_000, second * 1000)
    assert rate.per_second(60_000) == 0
    rate.record(500, 60_000)
    assert rate.per_second(60_000) == 50


def test_the_throttle_is_the_excess_in_units_of_the_bound() -> None:
    """Ten seconds at 400 of 500, then 2 300 at once: (600 - 500) / 500 of the 10.5 s that passed."""
    rate = Rate(WINDOWS)
    for second in range(10):
        rate.record(400, second * 1000)
        assert rate.throttle_ms(500, second * 1000) == 0
    rate.record(2_300, 10_500)
    assert rate.window_ms(10_500) == 10_500
    assert rate.throttle_ms(500, 10_500) == 2_100


def test_the_rate_is_at_its_bound_when_the_throttle_is_over() -> None:
    rate = Rate(WINDOWS)
    rate.record(20_000, 0)
    throttle_ms = rate.throttle_ms(1_000, 0)
    assert throttle_ms == 10_000
    assert rate.per_second(throttle_ms) == pytest.approx(2_000)  # ten windows are the least that counts
    assert rate.throttle_ms(1_000, 10_000) == 10_000
    assert rate.throttle_ms(1_000, 11_000) == 0, "the burst is forgotten"


def test_an_amount_that_is_taken_back_never_counted() -> None:
    rate = Rate(WINDOWS)
    rate.record(300, 100)
    rate.record(9_000, 200)
    rate.record(-9_000, 200)
    assert rate.total == 300


def test_a_throttle_fits_its_field_in_answers() -> None:
    rate = Rate(WINDOWS)
    rate.record(1e12, 0)
    assert rate.throttle_ms(1, 0) == MOST_THROTTLE_MS
    assert rate.throttle_ms(0, 0) == MOST_THROTTLE_MS
    assert [rounded_ms(it) for it in (0.4, 0.5, 1.5, math.inf)] == [0, 1, 2, MOST_THROTTLE_MS]


def test_an_average_forgets_what_is_a_minute_old() -> None:
    average = Average()
    assert math.isnan(average.mean(0))
    average.record(100, 0)
    average.record(300, 1_000)
    assert average.mean(2_000) == 200
    assert math.isnan(average.mean(61_001))


class Reference:
    """The same rule by a list of all samples: what a ring of `samples + 1` may not lose."""

    def __init__(self, windows: QuotaWindows) -> None:
        self.windows = windows
        self.samples: list[list[float]] = []

    def record(self, amount: float, now_ms: int) -> None:
        if not self.samples or now_ms - self.samples[-1][0] >= self.windows.window_ms:
            self.samples.append([now_ms, now_ms, 0.0])
        self.samples[-1][1] = now_ms
        self.samples[-1][2] += amount

    def total(self, now_ms: int) -> float:
        expired_ms = now_ms - self.windows.samples * self.windows.window_ms
        return sum(sample[2] for sample in self.samples if sample[1] > expired_ms)


@given(
    st.integers(2, 12),
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 1_000)), min_size=1, max_size=60),
)
def test_no_amount_of_the_last_windows_is_lost(samples: int, events: list[tuple[int, int]]) -> None:
    windows = QuotaWindows(samples)
    rate, reference = Rate(windows), Reference(windows)
    now_ms = 0
    for pause_ms, amount in events:
        now_ms += pause_ms
        rate.record(amount, now_ms)
        reference.record(amount, now_ms)
        assert rate.window_ms(now_ms) >= (samples - 1) * 1000
        assert rate.total == reference.total(now_ms)
