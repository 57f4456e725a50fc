"""Core: text of clients for people, in a log or on a terminal.

Control characters begin new lines, move the cursor or change the direction of writing, so that one line can look like
others. They are escaped as in JSON and Python: `\\n`, `\\u001b`. All other characters stay.
"""

from __future__ import annotations

import re

_FORMATTING = "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
"""Other line ends, and characters that change the direction of writing."""
_CONTROL = re.compile(f"[\\x00-\\x1f\\x7f-\\x9f{_FORMATTING}\ud800-\udfff]")
_CONTROL_BUT_LINES = re.compile(f"[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f{_FORMATTING}\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """The text on one line, without hidden characters."""
    return _CONTROL.sub(_escape, text)


def visible_lines(text: str) -> str:
    """The text without hidden characters; line ends and tabs stay."""
    return _CONTROL_BUT_LINES.sub(_escape, text)


def visible_bytes(data: bytes) -> bytes:
    """`visible_lines` for bytes; those that are not UTF-8 stay, unless an old terminal takes them for control
    characters."""
    text = data.decode(errors="surrogateescape")
    shown = _CONTROL_BUT_LINES.sub(_escape_byte, text)
    return data if shown is text else shown.encode(errors="surrogateescape")


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def _escape_byte(found: re.Match[str]) -> str:
    """Escape one character; a byte that is not UTF-8 arrives as a surrogate."""
    code = ord(found.group())
    if not 0xDC80 <= code <= 0xDCFF:
        return _escape(found)
    return f"\\x{code - 0xDC00:02x}" if code <= 0xDC9F else found.group()
