"""Names chosen by clients can neither forge a log line nor control a terminal."""

from __future__ import annotations

import json
import logging
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime.process import OneLine
from barnabas.runtime.visible import visible, visible_bytes, visible_lines

FORGED = "x\n2026-01-01T00:00:00.000Z ERROR   broker.node: FORGED LINE"
TERMINAL = "\x1b]0;PWNED\x07\x1b[31mred\x9b0m\r\u202egnp.exe\u2028next"
BEGINS_A_LINE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", re.MULTILINE)


def test_control_characters_are_written_out() -> None:
    assert visible("a\tb\r\nc") == r"a\tb\r\nc"
    assert visible(TERMINAL) == r"\u001b]0;PWNED\u0007\u001b[31mred\u009b0m\r\u202egnp.exe\u2028next"
    assert visible_lines("a\tb\n\x1b[1m") == "a\tb\n\\u001b[1m"
    assert visible("Grüße, 世界 🦆, back\\slash") == "Grüße, 世界 🦆, back\\slash"


@given(st.text(st.characters()))
def test_any_text_becomes_one_line_that_can_be_encoded(text: str) -> None:
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert all(unicodedata.category(character) not in ("Cc", "Cs") for character in shown)
    shown.encode()


@given(st.dictionaries(st.text(), st.text()))
def test_json_stays_the_same_json(value: dict[str, str]) -> None:
    assert json.loads(visible(json.dumps(value, ensure_ascii=False))) == value


@given(st.binary())
def test_bytes_that_are_no_text_stay(data: bytes) -> None:
    shown = visible_bytes(data)
    assert not any(byte < 0x20 and byte not in b"\t\n" for byte in shown)
    if all(0x20 <= byte < 0x7F for byte in data):
        assert shown == data
    assert visible_bytes(b"\xff\xfe\x1b") == b"\xff\xfe\\u001b"


def formatted(text: str, error: Exception | None = None, stack: str | None = None) -> str:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("broker.groups", logging.INFO, "here", 1, "group %s", (text,), info)
    record.stack_info = stack
    return OneLine().format(record)


@pytest.mark.parametrize("text", [FORGED, TERMINAL])
def test_a_message_is_one_line_of_the_log(text: str) -> None:
    line = formatted(text)
    assert len(line.splitlines()) == 1
    assert line.endswith(f"INFO    broker.groups: group {visible(text)}")


def test_a_traceback_has_lines_and_none_of_them_looks_like_a_message() -> None:
    try:
        raise ValueError(FORGED + TERMINAL)
    except ValueError as error:
        text = formatted("g", error, stack="Stack (most recent call last):\n" + FORGED)
    assert len(BEGINS_A_LINE.findall(text)) == 1
    first, *rest = text.split("\n")
    assert first.endswith("group g")
    assert all(line.startswith("    ") for line in rest)
    assert "    Traceback (most recent call last):" in rest
    assert "\x1b" not in text
