"""Options of `produce` and `consume`: what comes in as records, what goes out as lines."""

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
from barnabas.cli.source import pieces
from barnabas.cli.start_offsets import Place, Span
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
    ("source", "told"),
    [
        (Input(key_separator=""), "--key-separator: cannot be empty"),
        (Input(key_separator=":", key="k"), "--key and --key-separator: one of them"),
        (Input(as_json=True, key="k"), "--json: the objects say the keys"),
        (Input(header=["a"]), "--header a: not NAME=VALUE"),
        (Input(value_serializer="xml"), "--value-serializer xml: there are bytes, "),
        (Input(key="x", key_serializer="int"), "key: x is no int"),
    ],
)
def test_inputs_that_cannot_be_meant(source: Input, told: str) -> None:
    with pytest.raises(WrongArgument, match=told):
        source.parser()


@pytest.mark.parametrize(
    ("source", "line", "told"),
    [
        (Input(key_separator=":"), b"v", "has no ':' between key and value"),
        (Input(value_serializer="int"), b"v", "value: v is no int"),
        (Input(as_json=True), b"v", "no JSON"),
    ],
)
def test_lines_that_are_no_records(source: Input, line: bytes, told: str) -> None:
    with pytest.raises(WrongText, match=told):
        source.parser()(line)


def read_all(chunks: list[bytes], delimiter: bytes, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Through a real pipe, which gives one chunk at a time."""
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
def test_pieces_of_input_however_it_comes(
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
def test_what_is_read(extent: Extent, span: Span) -> None:
    assert extent.span() == span


@pytest.mark.parametrize(
    ("extent", "told"),
    [
        (Extent(offset=["stored"]), "--offset stored: of which --group"),
        (Extent(group="g", offset=["7"]), "--offset: `barnabas groups reset-offsets` moves a group"),
        (Extent(group="g", partition=[1]), "--partition: in a group the coordinator says"),
        (Extent(from_beginning=True, offset=["7"]), "only one start"),
    ],
)
def test_what_cannot_be_read(extent: Extent, told: str) -> None:
    with pytest.raises(WrongArgument, match=told):
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
    ("look", "told"),
    [
        (Look(as_json=True, format="%s"), "--format, --json and --key-separator: one of them"),
        (Look(key_deserializer="xml"), "--key-deserializer xml: there are"),
        (Look(format="%y"), "--format: %y"),
    ],
)
def test_looks_that_cannot_be_meant(look: Look, told: str) -> None:
    with pytest.raises(WrongArgument, match=told):
        look.shown()
