"""Times, spans, partitions and formats on the command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.line_format import LineFormat, unescape
from barnabas.cli.partition_choice import PartitionChoice
from barnabas.cli.start_offsets import Place, Span, parse_span
from barnabas.cli.times import iso_time, parse_duration, parse_time
from barnabas.client.consumer.record import ConsumerRecord, TimestampType
from barnabas.cluster.errors import WrongArgument

NOON_MS = 1_785_585_600_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1785585600000", NOON_MS),
        ("2026-08-01T12:00:00", NOON_MS),
        ("2026-08-01T12:00:00.250Z", NOON_MS + 250),
        ("2026-08-01T14:00:00+02:00", NOON_MS),
        ("2026-08-01", NOON_MS - 12 * 3_600_000),
    ],
)
def test_a_time_without_zone_is_utc(text: str, ms: int) -> None:
    assert parse_time("--to", text) == ms


@pytest.mark.parametrize("text", ["", "noon", "-5", "2026-13-01"])
def test_text_that_is_not_a_time(text: str) -> None:
    with pytest.raises(WrongArgument, match=r"--to .*not a time"):
        parse_time("--to", text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT0.5S", 86_400_500),
        ("P2D", 172_800_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration("--by", text) == ms


@pytest.mark.parametrize("text", ["", "5", "P", "PT", "P1DT", "1y", "s", "1h 5m", "-1h"])
def test_text_that_is_not_a_duration(text: str) -> None:
    with pytest.raises(WrongArgument, match=r"--by .*not a duration"):
        parse_duration("--by", text)


def test_printed_times_can_be_typed_again() -> None:
    assert iso_time(NOON_MS + 7) == "2026-08-01T12:00:00.007Z"
    assert iso_time(-1) == "-"
    assert iso_time(2**62) == str(2**62)


@given(st.integers(0, 253_402_300_799_999))
def test_shown_and_read_again_is_the_same(ms: int) -> None:
    assert parse_time("--to", iso_time(ms)) == ms


@pytest.mark.parametrize(
    ("texts", "span"),
    [
        ([], Span(Place.END)),
        (["beginning"], Span(Place.BEGINNING)),
        (["7"], Span(Place.OFFSET, 7)),
        (["-7"], Span(Place.FROM_END, 7)),
        ([f"s@{NOON_MS}"], Span(Place.TIME, NOON_MS)),
        (["e@2026-08-01T12:00:00", "beginning"], Span(Place.BEGINNING, 0, NOON_MS)),
    ],
)
def test_start_and_end_of_a_read(texts: list[str], span: Span) -> None:
    assert parse_span(texts, Place.END) == span


@pytest.mark.parametrize("texts", [["7", "8"], ["e@1", "e@2"], ["middle"], ["--7"], ["s@"], [""]])
def test_malformed_starts_are_refused(texts: list[str]) -> None:
    with pytest.raises(WrongArgument, match="--offset"):
        parse_span(texts, Place.END)


def test_partitions_by_number_and_range() -> None:
    assert PartitionChoice.parse("--topic", "flights") == PartitionChoice("flights", None)
    assert PartitionChoice.parse("--topic", "flights:0,2-4,3") == PartitionChoice("flights", (0, 2, 3, 4))


@pytest.mark.parametrize("text", ["", ":1", "t:", "t:x", "t:3-1", "t:1,", "t:0-999999999", "t:-1"])
def test_text_that_is_not_a_choice_of_partitions(text: str) -> None:
    with pytest.raises(WrongArgument, match="--topic"):
        PartitionChoice.parse("--topic", text)


RECORD = ConsumerRecord("flights", 2, 7, NOON_MS, TimestampType.CREATE_TIME, b"k", b"value", (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (r"%t/%p@%o %T\n", b"flights/2@7 1785585600000\n"),
        (r"%k(%K)=%s(%S)", b"k(1)=value(5)"),
        (r"%h %% \t\x41\\", b"a=1,b=NULL % \tA\\"),
        ("%R", b"\0\0\0\x05"),
        ("", b""),
    ],
)
def test_the_letters_of_a_format(text: str, line: bytes) -> None:
    assert LineFormat.parse("-f", text)(RECORD, b"k", b"value") == line


def test_null_has_the_length_minus_one() -> None:
    line = LineFormat.parse("-f", "%k %K %s %S %R", null=b"NULL")(RECORD, None, None)
    assert line == b"NULL -1 NULL -1 \xff\xff\xff\xff"


@pytest.mark.parametrize("text", ["%x", "%", "\\q", "a\\"])
def test_unknown_letters_are_refused(text: str) -> None:
    with pytest.raises(WrongArgument, match=r"-f: .*allowed are"):
        LineFormat.parse("-f", text)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\\%")))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert LineFormat.parse("-f", text)(RECORD, None, None) == text.encode()
    assert unescape("-D", text) == text.encode()


def test_arguments_that_are_not_utf_8_keep_their_bytes() -> None:
    assert unescape("-D", "a\udcff") == b"a\xff"
