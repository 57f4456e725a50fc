"""The header of a record that is delivered later, and what a broker reads from it."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime, timedelta, timezone

import pytest

from barnabas import delivery_header
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.delivery_time import AT_ONCE, delivery_time_ms, delivery_times
from barnabas.protocol.records.record import Record, payload_of
from barnabas.protocol.records.record_check import RecordsRefused

pytestmark = pytest.mark.feature("RP-12")

NOW_MS = 1_750_000_000_000
DAY_MS = 86_400_000


def time_of(*headers: tuple[str, bytes | None], most_ms: int = 400 * DAY_MS) -> int:
    return delivery_time_ms(headers, NOW_MS, most_ms)


def test_times_and_spans_of_python_become_milliseconds() -> None:
    noon = datetime(2026, 8, 1, 12, tzinfo=UTC)
    assert delivery_header(deliver_at=noon) == ("deliver-at", b"1785585600000")
    assert delivery_header(deliver_at=noon.astimezone(timezone(timedelta(hours=5)))) == delivery_header(deliver_at=noon)
    assert delivery_header(deliver_at=5) == ("deliver-at", b"5")
    assert delivery_header(deliver_after=timedelta(minutes=1, milliseconds=3)) == ("deliver-after", b"60003")
    assert delivery_header(deliver_after=0) == ("deliver-after", b"0")


def test_values_that_are_no_times_are_refused() -> None:
    for wrong in ({}, {"deliver_at": 1, "deliver_after": 1}):
        with pytest.raises(ValueError, match="either deliver_at or deliver_after"):
            delivery_header(**wrong)
    with pytest.raises(ValueError, match="must have a time zone"):
        delivery_header(deliver_at=datetime(2026, 8, 1))
    with pytest.raises(ValueError, match="must not be negative; got -1 ms"):
        delivery_header(deliver_after=-1)


@pytest.mark.parametrize(
    ("name", "value", "time_ms"),
    [
        ("deliver-at", b"%d" % (NOW_MS + 1), NOW_MS + 1),
        ("deliver-at", (NOW_MS + 1).to_bytes(8, "big"), NOW_MS + 1),
        ("deliver-at", b"%d" % NOW_MS, AT_ONCE),
        ("deliver-at", b"12345678", AT_ONCE),
        ("deliver-after", b"250", NOW_MS + 250),
        ("deliver-after", (250).to_bytes(8, "big"), NOW_MS + 250),
        ("deliver-after", b"0", AT_ONCE),
        ("deliver-after", b"PT1M30.5S", NOW_MS + 90_500),
        ("deliver-after", b"p1dt2h", NOW_MS + DAY_MS + 7_200_000),
        ("deliver-after", b"PT0.0045S", NOW_MS + 4),
        ("other", b"5", AT_ONCE),
    ],
)
def test_a_broker_reads_numbers_and_durations(name: str, value: bytes, time_ms: int) -> None:
    assert time_of(("x", None), (name, value)) == time_ms


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("deliver-at", b"soon")], "deliver-at must be milliseconds since the epoch .*; got b'soon'"),
        ([("deliver-at", None)], "got null"),
        ([("deliver-at", b"PT5S")], "deliver-at must be"),
        ([("deliver-at", b"-5")], "deliver-at must be"),
        ([("deliver-at", b"\xff" * 8)], "deliver-at must be"),
        ([("deliver-at", "５".encode())], "deliver-at must be"),
        ([("deliver-after", b"P")], "or a duration such as PT5S; got b'P'"),
        ([("deliver-after", b"PT")], "or a duration"),
        ([("deliver-after", b"P1M")], "or a duration"),
        ([("deliver-after", b"")], "or a duration"),
        ([("deliver-at", b"9" * 19)], "deliver-at must be"),
        ([("deliver-at", b"5"), ("deliver-after", b"5")], "a record has one header .* at most; got 2"),
        ([("deliver-after", b"P401D")], r"at most 34560000000 are allowed \(barnabas.delayed.delivery.max.ms\)"),
    ],
)
def test_a_broker_says_what_is_wrong_with_a_time(headers: list[tuple[str, bytes | None]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        time_of(*headers)


def times_of(*values: bytes | None) -> array[int] | None:
    batch = build_batch([Record(0, 5, None, b"v", (("deliver-after", it),) if it else ()) for it in values])
    header = read_header(batch)
    payload = payload_of(memoryview(batch), header, 0, 1 << 20)
    return delivery_times(payload, header.records_count, header.base_timestamp, NOW_MS, DAY_MS)


def test_the_times_of_a_batch() -> None:
    assert times_of(b"5", None, b"0") == array("q", [NOW_MS + 5, NOW_MS, NOW_MS])
    assert times_of(None, b"0") is None, "all are due"
    with pytest.raises(RecordsRefused) as refused:
        times_of(b"5", b"x", b"P9D")
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [place for place, _ in refused.value.errors] == [1, 2]
