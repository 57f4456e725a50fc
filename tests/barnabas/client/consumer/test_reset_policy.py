"""Values of auto.offset.reset, and the timestamps that they mean."""

import pytest

from barnabas.client.consumer.reset_policy import FROM_EARLIEST, FROM_LATEST, NO_RESET, ResetPolicy
from barnabas.client.offset_lookup import EARLIEST, LATEST

HOUR_MS = 3_600_000


@pytest.mark.feature("CG-01")
def test_kafkas_values() -> None:
    assert ResetPolicy.parse("earliest") == FROM_EARLIEST
    assert ResetPolicy.parse(" Latest ") == FROM_LATEST
    assert ResetPolicy.parse("NONE") == NO_RESET
    assert FROM_EARLIEST.timestamp(5) == EARLIEST
    assert FROM_LATEST.timestamp(5) == LATEST
    assert NO_RESET.timestamp(5) is None


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("PT1H", HOUR_MS),
        ("P1D", 24 * HOUR_MS),
        ("P2DT3H4M5.678S", 51 * HOUR_MS + 4 * 60_000 + 5_678),
        ("PT0S", 0),
        ("pt90m", 90 * 60_000),
        ("PT0.5S", 500),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    policy = ResetPolicy.parse(f"by_duration:{text}")
    assert policy.duration_ms == expected_ms
    now_ms = 10**12
    assert policy.timestamp(now_ms) == now_ms - expected_ms
    assert policy.timestamp(expected_ms - 1) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "first",
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:-PT1H",
        "by_duration:1h",
    ],
)
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        ResetPolicy.parse(text)
