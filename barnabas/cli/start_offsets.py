"""Core: start and end of a read on the command line: beginning, end, an offset, -N from the end, s@TIME, e@TIME.

It returns which offsets are needed and sends no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from barnabas.cli.times import parse_time
from barnabas.cluster.errors import WrongArgument


class Place(Enum):
    """The kinds of start position."""

    BEGINNING = auto()
    END = auto()
    OFFSET = auto()
    FROM_END = auto()
    """N records before the end."""
    TIME = auto()
    """The first record at or after the time."""
    STORED = auto()
    """The group's committed offset."""


@dataclass(frozen=True, slots=True)
class Span:
    """The range to read from each partition."""

    start: Place
    value: int = 0
    """An offset, a number of records, or milliseconds since 1970."""
    until_ms: int | None = None
    """Stop at the first record at or after this time; None for no limit."""


_NAMES = {
    "beginning": Place.BEGINNING,
    "earliest": Place.BEGINNING,
    "end": Place.END,
    "latest": Place.END,
    "stored": Place.STORED,
}


def parse_span(texts: Sequence[str], default: Place) -> Span:
    """Combines all `--offset` options: at most one start and one `e@TIME`. Raises `WrongArgument`."""
    starts: list[Span] = []
    untils: list[int] = []
    for text in texts:
        if text.startswith("e@"):
            untils.append(parse_time("--offset", text[2:]))
        else:
            starts.append(_parse_start(text))
    if len(starts) > 1 or len(untils) > 1:
        raise WrongArgument(f"--offset {texts[-1]}: only one start and one end are allowed")
    start = starts[0] if starts else Span(default)
    return Span(start.start, start.value, untils[0] if untils else None)


def _parse_start(text: str) -> Span:
    if text in _NAMES:
        return Span(_NAMES[text])
    if text.startswith("s@"):
        return Span(Place.TIME, parse_time("--offset", text[2:]))
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        return Span(Place.FROM_END if text.startswith("-") else Place.OFFSET, int(digits))
    raise WrongArgument(f"--offset {text}: must be beginning, end, stored, N, -N, s@TIME or e@TIME")
