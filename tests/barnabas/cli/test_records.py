"""Options of `produce` and `consume`: parsing of input into records, formatting of records."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cli.consume import Extent, Look
from barnabas.cli.produce import Input
from barnabas.cli.record_text import Outgoing, WrongText
from barnabas.cli.start_offsets import Place, Span
from barnabas.cli.stdin import pieces
from barnabas.client.consumer.record import ConsumerRecord, TimestampType
from barnabas.cluster.errors import WrongArgument


@pytest.mark.parametrize(
    ("source", "line", "record"),
    [
        (Input(), b"v", Outgoing(None, b"v")),
        (Input(), b"", Outgoing(None, b"")),
        (Input(empty_is_null=True), b"", Outgoing(None, None)),
        (Input(key_separator="::"), b"k::v::w", Outgoing(b"k", b"v::w")),
        (Input(key_separator="\\t", empty_is_null=True), b"\tv", Outgoing(None, b"v")),
        (Input(key="k", header=["a=1", "b="]), b"v", Outgoing(b"k", b"v", (("a", b"1"), ("b", b"")))),
        (Input(deliver_after="1m30s"), b"v", Outgoing(None, b"v", (("deliver-after", b"90000"),))),
        (
            Input(header=["a=1"], deliver_at="1970-01-01T00:00:02"),
            b"v",
            Outgoing(None, b"v", (("a", b"1"), ("deliver-at", b"2000"))),
        ),
        (Input(key_separator=":", key_serializer="int", value_serializer="json"), b"7:[1]", Outgoing(7, [1])),
        (
            Input(as_json=True, header=["a=1"]),
            b'{"value": "v", "partition": 2, "headers": [["b", null]]}',
            Outgoing(None, b"v", (("a", b"1"), ("b", None)), 2),
        ),
    ],
)
def test_a_line_becomes_a_record(source: Input, line: bytes, record: Outgoing) -> None:
    assert source.parser()(line) == record


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Input(key_separator=""), "--key-separator cannot be empty"),
        (Input(key_separator=":", key="k"), "--key and --key-separator exclude each other"),
        (Input(as_json=True, key="k"), "--json excludes --key"),
        (Input(deliver_at="5", deliver_after="5s"), "--deliver-at and --deliver-after exclude each other"),
        (Input(deliver_after="soon"), "--deliver-after soon: not a duration"),
        (Input(header=["a"]), "--header must be NAME=VALUE; got 'a'"),
        (Input(value_serializer="xml"), "--value-serializer must be one of bytes, "),
        (Input(key="x", key_serializer="int"), "key: not of kind int: x"),
    ],
)
def test_contradictory_input_options_are_refused(source: Input, message: str) -> None:
    with pytest.raises(WrongArgument, match=message):
        source.parser()


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        (Input(key_separator=":"), b"v", "has no ':' between key and value"),
        (Input(value_serializer="int"), b"v", "value: not of kind int: v"),
        (Input(as_json=True), b"v", "invalid JSON"),
    ],
)
def test_lines_that_are_not_records(source: Input, line: bytes, message: str) -> None:
    with pytest.raises(WrongText, match=message):
        source.parser()(line)


def read_all(chunks: list[bytes], delimiter: bytes, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Reads from a real pipe, one chunk at a time."""
    reading, writing = os.pipe()

    async def read() -> list[bytes]:
        found = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            async for piece in pieces(delimiter):
                found.append(piece)
        return found

    async def write() -> None:
        for chunk in chunks:
            os.write(writing, chunk)
            await trio.testing.wait_all_tasks_blocked(0.005)
        os.close(writing)

    with open(reading, "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
        return trio.run(read)


@pytest.mark.parametrize(
    ("chunks", "delimiter", "found"),
    [
        ([], b"\n", []),
        ([b"a\nb", b"c\r\n\nd"], b"\n", [b"a", b"bc", b"", b"d"]),
        ([b"a-", b"-b--", b"c-"], b"--", [b"a", b"b", b"c-"]),
        ([b"a\r\n;b"], b";", [b"a\r\n", b"b"]),
    ],
)
def test_input_is_split_at_delimiters_whatever_the_chunks(
    chunks: list[bytes], delimiter: bytes, found: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_all(chunks, delimiter, monkeypatch) == found


@pytest.mark.parametrize(
    ("extent", "span"),
    [
        (Extent(), Span(Place.END)),
        (Extent(from_beginning=True, offset=["e@5"]), Span(Place.BEGINNING, 0, 5)),
        (Extent(group="g"), Span(Place.STORED)),
        (Extent(group="g", offset=["latest"]), Span(Place.END)),
    ],
)
def test_the_span_to_read(extent: Extent, span: Span) -> None:
    assert extent.span() == span


@pytest.mark.parametrize(
    ("extent", "message"),
    [
        (Extent(offset=["stored"]), "--offset stored needs --group"),
        (Extent(group="g", offset=["7"]), "--offset must be beginning or end with --group"),
        (Extent(group="g", partition=[1]), "--partition cannot be used with --group"),
        (Extent(from_beginning=True, offset=["7"]), "only one start"),
    ],
)
def test_spans_that_are_refused(extent: Extent, message: str) -> None:
    with pytest.raises(WrongArgument, match=message):
        extent.span()


def a_record(key: Any, value: Any) -> ConsumerRecord:
    return ConsumerRecord("t", 1, 7, 1000, TimestampType.CREATE_TIME, key, value)


@pytest.mark.parametrize(
    ("look", "line"),
    [
        (Look(), b"null\n"),
        (Look(null="", delimiter="\\0"), b"\0"),
        (Look(key_separator="\\t"), b"k\tnull\n"),
        (Look(format="%k %s %S|", null="NULL"), b"k NULL -1|"),
        (
            Look(as_json=True),
            b'{"topic": "t", "partition": 1, "offset": 7, "timestamp": 1000, '
            b'"key": "k", "value": null, "headers": []}\n',
        ),
    ],
)
def test_a_tombstone_becomes_a_line(look: Look, line: bytes) -> None:
    assert look.shown()(a_record(b"k", None)) == line


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (Look(as_json=True, format="%s"), "--format, --json and --key-separator exclude each other"),
        (Look(key_deserializer="xml"), "--key-deserializer must be one of"),
        (Look(format="%y"), "--format: unknown letter %y"),
    ],
)
def test_contradictory_output_options_are_refused(look: Look, message: str) -> None:
    with pytest.raises(WrongArgument, match=message):
        look.shown()
