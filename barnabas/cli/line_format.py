"""Output format of records, with the letters of kcat.

%t topic · %p partition · %o offset · %T timestamp in ms · %k key · %K key length · %s value · %S value length ·
%R value length as four bytes · %h headers · %% · and \\n \\r \\t \\0 \\xNN \\\\. The length of null is -1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.cluster.errors import WrongArgument

_TOKEN = re.compile(r"%(?P<letter>.?)|\\(?P<escape>x[0-9a-fA-F]{2}|.?)|(?P<plain>[^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


class Showable(Protocol):
    """Fields of a record that the formats need."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


Show = Callable[[bytes], bytes]
"""Filter for keys, values and headers, such as one that escapes control characters."""

Piece = Callable[[Showable, bytes | None, bytes | None], bytes]
"""Formats one part of the line from the record, its key and its value."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """A parsed format."""

    pieces: tuple[Piece, ...]

    @classmethod
    def parse(cls, option: str, text: str, null: bytes = b"", show: Show = bytes) -> LineFormat:
        """`null` is printed for a null key or value; others pass through `show`. Raises `WrongArgument`."""
        letters = _letters(null, show)
        pieces: list[Piece] = []
        for found in _TOKEN.finditer(text):
            letter, escape, plain = found.group("letter", "escape", "plain")
            if plain is not None:
                pieces.append(_constant(raw(plain)))
            elif escape is not None:
                pieces.append(_constant(unescape(option, "\\" + escape)))
            elif letter in letters:
                pieces.append(letters[letter])
            else:
                raise WrongArgument(
                    f"{option}: unknown letter %{letter}; allowed are {' '.join('%' + each for each in letters)}"
                )
        return cls(tuple(pieces))

    def __call__(self, record: Showable, key: bytes | None, value: bytes | None) -> bytes:
        return b"".join([piece(record, key, value) for piece in self.pieces])


def unescape(option: str, text: str) -> bytes:
    r"""Replaces escapes such as `\n`, `\t` and `\x00`. Raises `WrongArgument`."""
    parts = []
    for found in re.finditer(r"\\(x[0-9a-fA-F]{2}|.?)|([^\\]+)", text, re.DOTALL):
        escape, plain = found.groups()
        if plain is not None:
            parts.append(raw(plain))
        elif escape.startswith("x") and len(escape) == 3:
            parts.append(bytes([int(escape[1:], 16)]))
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        else:
            raise WrongArgument(f"{option}: unknown escape \\{escape}; allowed are \\n \\r \\t \\0 \\xNN \\\\")
    return b"".join(parts)


def _letters(null: bytes, show: Show) -> dict[str, Piece]:
    def shown(data: bytes | None) -> bytes:
        return null if data is None else show(data)

    return {
        "t": lambda record, key, value: record.topic.encode(),
        "p": lambda record, key, value: b"%d" % record.partition,
        "o": lambda record, key, value: b"%d" % record.offset,
        "T": lambda record, key, value: b"%d" % record.timestamp_ms,
        "k": lambda record, key, value: shown(key),
        "K": lambda record, key, value: b"%d" % _length(key),
        "s": lambda record, key, value: shown(value),
        "S": lambda record, key, value: b"%d" % _length(value),
        "R": lambda record, key, value: _length(value).to_bytes(4, "big", signed=True),
        "h": lambda record, key, value: b",".join(
            show(name.encode()) + b"=" + (b"NULL" if data is None else show(data)) for name, data in record.headers
        ),
        "%": _constant(b"%"),
    }


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _constant(data: bytes) -> Piece:
    return lambda record, key, value: data


def raw(text: str) -> bytes:
    """The bytes of a command-line argument, which need not be UTF-8."""
    return text.encode(errors="surrogateescape")
