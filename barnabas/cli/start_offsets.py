"""Where reading begins and ends, as it is typed: beginning, end, an offset, -N from the end, s@TIME, e@TIME.

A core: it says what has to be asked, and does not ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from barnabas.cli.times import parse_time
from barnabas.cluster.errors import WrongArgument


class Place(Enum):
    """A kind of place in a partition."""

    BEGINNING = auto()
    END = auto()
    OFFSET = auto()
    FROM_END = auto()
    """So many records before the end."""
    TIME = auto()
    """The first record that is not older."""
    STORED = auto()
    """Where the group is."""


@dataclass(frozen=True, slots=True)
class Span:
    """What part of the partitions is read."""

    start: Place
    value: int = 0
    """Offset, number of records, or milliseconds since 1970."""
    until_ms: int | None = None
    """Records from then on are not read; None: there is no such time."""


_NAMES = {
    "beginning": Place.BEGINNING,
    "earliest": Place.BEGINNING,
    "end": Place.END,
    "latest": Place.END,
    "stored": Place.STORED,
}


def parse_span(texts: Sequence[str], default: Place) -> Span:
    """The span of all `--offset` options together: at most one start, and at most one `e@TIME`. Raises
    `WrongArgument`.
    """
    starts: list[Span] = []
    untils: list[int] = []
    for text in texts:
        if text.startswith("e@"):
            untils.append(parse_time("--offset", text[2:]))
        else:
            starts.append(_parse_start(text))
    if len(starts) > 1 or len(untils) > 1:
        raise WrongArgument(f"--offset {texts[-1]}: only one start and one end")
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
    raise WrongArgument(f"--offset {text}: there are beginning, end, stored, N, -N, s@TIME, e@TIME")
