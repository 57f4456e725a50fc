"""Names and records with control characters for the terminal."""

from __future__ import annotations

import json
import sys

import pytest

from barnabas.cli.consume import Look
from barnabas.cli.line_format import LineFormat
from barnabas.cli.output import complain, show_json, show_table, show_text
from barnabas.client.consumer.record import ConsumerRecord, TimestampType

HOSTILE = "\x1b]0;PWNED\x07\x1b[31mgroup\nnext"
HARMLESS = r"\u001b]0;PWNED\u0007\u001b[31mgroup\nnext"


def record() -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(
        topic="t",
        partition=0,
        offset=5,
        timestamp_ms=7,
        timestamp_type=TimestampType.CREATE_TIME,
        key=b"\x1b[2J",
        value=b"a\x9b\x1b[31m\xc2\x9b\n\tb",
        headers=(("\x07", b"\x1bc"),),
    )


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_table_has_a_line_for_each_row(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    show_table(["group", "state"], [[HOSTILE, "Empty"], ["plain", "Stable"]])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split() == [HARMLESS, "Empty"]


def test_control_characters_are_escaped_in_output_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    show_text(f"deleted {HOSTILE}")
    complain(f"{HOSTILE}: not there")
    said = capsys.readouterr()
    assert said.out == "deleted \\u001b]0;PWNED\\u0007\\u001b[31mgroup\nnext\n"
    assert "\x1b" not in said.err


def test_json_output_keeps_names_readable_by_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({HOSTILE: "\x9b\u202e"})
    written = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\u202e"} & set(written)
    assert json.loads(written) == {HOSTILE: "\x9b\u202e"}


def test_a_terminal_is_shown_records_and_a_file_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert Look().shown()(record()) == record().value + b"\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert Look().shown()(record()) == b"a\\x9b\\u001b[31m\\u009b\n\tb\n"
    assert Look(key_separator=":").shown()(record()).startswith(b"\\u001b[2J:")
    assert Look(format=r"\x1b[1m%k %K %S %h").shown()(record()) == b"\x1b[1m\\u001b[2J 4 12 \\u0007=\\u001bc", (
        "the lengths are the records', and the format is the user's"
    )
    assert b"\x1b" not in Look(as_json=True).shown()(record())


def test_a_format_writes_bytes_as_they_are_unless_asked_otherwise() -> None:
    assert LineFormat.parse("-f", "%s")(record(), None, b"\x1b") == b"\x1b"
