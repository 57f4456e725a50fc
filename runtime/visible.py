"""Core: text of clients as people may see it, in a log or on a terminal.

Control characters begin new lines, move the cursor or change the direction of writing, so that one line can look like
others. They are written as JSON and Python write them: `\\n`, `\\u001b`. All other characters stay.
"""

from __future__ import annotations

import re

_FORMATTING = "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
"""Other ends of lines, and what changes the direction of writing."""
_CONTROL = re.compile(f"[\\x00-\\x1f\\x7f-\\x9f{_FORMATTING}\ud800-\udfff]")
_CONTROL_BUT_LINES = re.compile(f"[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f{_FORMATTING}\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """One line that says what it says."""
    return _CONTROL.sub(_escape, text)


def visible_lines(text: str) -> str:
    """As `visible`, but line ends and tabs stay."""
    return _CONTROL_BUT_LINES.sub(_escape, text)


def visible_bytes(data: bytes) -> bytes:
    """As `visible_lines`; bytes that are not UTF-8 stay, unless an old terminal takes them for control characters."""
    text = data.decode(errors="surrogateescape")
    shown = _CONTROL_BUT_LINES.sub(_escape_byte, text)
    return data if shown is text else shown.encode(errors="surrogateescape")


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def _escape_byte(found: re.Match[str]) -> str:
    """A byte that is not UTF-8 is a surrogate here."""
    code = ord(found.group())
    if not 0xDC80 <= code <= 0xDCFF:
        return _escape(found)
    return f"\\x{code - 0xDC00:02x}" if code <= 0xDC9F else found.group()
