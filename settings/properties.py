"""Reads the `.properties` format of Java: keys and values with their lines. Knows no meaning of a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.settings.errors import SettingsError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_properties(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Key to (value, line number); of a repeated key the last one counts, as in Java.

    Lines that begin with `#` or `!` are comments, a backslash at the end joins the next line, and `=`, `:` or blanks
    separate key and value. `name` is the name of the file in errors. Raises `SettingsError` for a cut `\\uXXXX` escape.
    """
    found: dict[str, tuple[str, int]] = {}
    for line_number, line in _logical_lines(text):
        try:
            key, value = _split(line)
        except ValueError as error:
            raise SettingsError(str(error), source=name, line=line_number) from None
        found[key] = (value, line_number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, joined line) of all lines that are neither blank nor comments."""
    joined, first = "", 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = natural.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        first = first or number
        if _ends_in_open_backslash(line):
            joined += line[:-1]
            continue
        if joined + line:
            yield first, joined + line
        joined, first = "", 0
    if joined:
        yield first, joined


def _ends_in_open_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(key), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            out.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(f"\\u must be followed by four hexadecimal digits; got {digits!r}")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)


def render_properties(values: Mapping[str, str]) -> str:
    """One `key=value` per line, in a form that `parse_properties` reads back."""
    lines = []
    for key, value in values.items():
        name = "".join("\\" + each if each in _BLANKS + "=:#!\\" else each for each in key)
        text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        opening = "\\" if text[:1] and text[0] in _BLANKS else ""
        lines.append(f"{name}={opening}{text}\n")
    return "".join(lines)
