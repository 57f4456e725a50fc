"""Checkpoint files: what is written is read, and damage is named with its line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.primitives import uuid_to_string
from barnabas.storage.checkpoints import (
    MalformedCheckpoint,
    format_epochs,
    format_numbers,
    format_offsets,
    format_topic_ids,
    parse_epochs,
    parse_numbers,
    parse_offsets,
    parse_topic_ids,
)
from barnabas.storage.names import directory_name, marked_directory_name, parse_directory_name, parse_offset_file_name

NUMBER = st.integers(0, 1 << 40)
KEY = st.tuples(st.from_regex(r"\A[a-zA-Z0-9._-]{1,9}\Z"), st.integers(0, 99))


class Kind(NamedTuple):
    entries: st.SearchStrategy[Any]
    format: Callable[[Any], bytes]
    parse: Callable[[bytes, str], Any]
    columns: int
    numbers: tuple[int, ...]
    """Columns that must be numbers."""


KINDS = {
    "offsets": Kind(st.dictionaries(KEY, NUMBER, max_size=4), format_offsets, parse_offsets, 3, (1, 2)),
    "epochs": Kind(st.lists(st.tuples(NUMBER, NUMBER), max_size=4), format_epochs, parse_epochs, 2, (0, 1)),
    "numbers": Kind(
        st.lists(st.lists(NUMBER, min_size=5, max_size=5), max_size=4),
        format_numbers,
        lambda data, name: parse_numbers(data, name, 5),
        5,
        (0, 1, 2, 3, 4),
    ),
    "topic ids": Kind(
        st.dictionaries(KEY, st.binary(min_size=16, max_size=16), max_size=4),
        format_topic_ids,
        parse_topic_ids,
        3,
        (1,),
    ),
}


@pytest.mark.feature("ST-11")
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_a_checkpoint_is_read_as_it_was_written_or_refused(name: str, data: st.DataObject) -> None:
    kind, draw = KINDS[name], data.draw
    entries = draw(kind.entries)
    written = kind.format(entries)
    assert kind.parse(written, "file") == entries
    assert kind.parse(b"", "file") == kind.parse(b"0\n", "file") == type(entries)()
    lines = written.decode().splitlines()
    assert lines[:2] == ["0", str(len(entries))] and len(lines) == len(entries) + 2

    def refused(changed: list[str], problem: str) -> None:
        with pytest.raises(MalformedCheckpoint) as error:
            kind.parse("\n".join(changed).encode(), "file")
        assert str(error.value).startswith(problem), error.value

    refused(["1", *lines[1:]], "file: version 1, expected 0")
    refused(["x", *lines[1:]], "file line 1: not a number: 'x'")
    refused(["0", "x", *lines[2:]], "file line 2: not a number: 'x'")
    wrong = len(entries) + draw(st.sampled_from([-1, 1]))
    refused(["0", str(wrong), *lines[2:]], f"file: {len(entries)} entries; the header says {wrong}")
    if not entries:
        return
    place = draw(st.integers(2, len(lines) - 1))
    fields = lines[place].split()
    refused([*lines[:place], *lines[place + 1 :]], f"file: {len(entries) - 1} entries; ")
    for other in (fields[:-1], [*fields, "1"]):
        changed = [*lines[:place], " ".join(other), *lines[place + 1 :]]
        refused(changed, f"file line {place + 1}: expected {kind.columns} fields: ")
    for column in kind.numbers:
        other = [*fields[:column], "x", *fields[column + 1 :]]
        refused([*lines[:place], " ".join(other), *lines[place + 1 :]], f"file line {place + 1}: not a number: 'x'")
    if name == "topic ids":
        changed = [*lines[:place], f"{fields[0]} {fields[1]} {uuid_to_string(bytes(16))}x", *lines[place + 1 :]]
        refused(changed, f"file line {place + 1}: not a topic id: ")


@pytest.mark.feature("ST-01")
@given(KEY, st.sampled_from(["delete", "stray", "future", "current"]))
def test_the_name_of_a_directory_says_what_it_holds(key: tuple[str, int], kind: str) -> None:
    if kind == "current":
        name = directory_name(*key)
    else:
        name = marked_directory_name(*key, "0123456789abcdef" * 2, f"-{kind}")
    assert parse_directory_name(name) == (*key, kind)
    long = marked_directory_name("t" * 249, key[1], "0123456789abcdef" * 2, f"-{kind}")
    assert len(long) == 255 and long.startswith("t" * 100)


@pytest.mark.feature("ST-01")
@pytest.mark.parametrize("name", ["", "-", "-1", "orders", "orders-", "orders-x", "orders-\u0663", "orders-delete"])
def test_names_of_no_partition(name: str) -> None:
    assert parse_directory_name(name) is None


@pytest.mark.feature("ST-01")
@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042.log", (42, ".log")),
        ("00000000000000000042.log.deleted", (42, ".log.deleted")),
        ("00000000000000000042.", (42, ".")),
        ("00000000000000000042", None),
        ("0000000000000000042.log", None),
        ("000000000000000000042.log", None),
        ("0000000000000000004x.log", None),
        ("\u0663" * 20 + ".log", None),
        (".log", None),
    ],
)
def test_names_with_an_offset(name: str, parsed: tuple[int, str] | None) -> None:
    assert parse_offset_file_name(name) == parsed
