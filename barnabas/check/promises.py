"""Core: the promises of an application, and the kinds of findings that break them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """A way to break a promise."""

    LOST = "lost"
    """No output, although the application went past the input."""
    STUCK = "stuck"
    """No output for too long, without a fault."""
    UNREADABLE = "unreadable"
    """An output without an id."""
    INVENTED = "invented"
    """An output of no input."""
    ENDED = "ended by itself"
    """Instances end again and again without a fault."""
    DOUBLED = "doubled"
    ABORTED = "aborted"
    """An output of an input whose transaction was aborted."""
    REORDERED = "reordered"


ALWAYS = frozenset({Kind.LOST, Kind.STUCK, Kind.UNREADABLE, Kind.INVENTED, Kind.ENDED})
"""Findings that break every promise."""
AT_LEAST_ONCE, EXACTLY_ONCE, ORDERED = "at-least-once", "exactly-once", "ordered"
LEVELS = (AT_LEAST_ONCE, EXACTLY_ONCE, ORDERED)


class UnknownPromise(ValueError):
    """The message names the word and those that are allowed."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The promises of one application."""

    exactly_once: bool = False
    ordered: bool = False

    @classmethod
    def parse(cls, words: Iterable[str]) -> Promise:
        """`exactly-once`, `ordered`, `at-least-once`, or several with commas or one by one. Raises `UnknownPromise`."""
        given = [word.strip() for each in words for word in each.split(",")]
        for word in given:
            if word not in LEVELS:
                raise UnknownPromise(f"a promise is {', '.join(LEVELS[:-1])} or {LEVELS[-1]}; got {word!r}")
        if AT_LEAST_ONCE in given and EXACTLY_ONCE in given:
            raise UnknownPromise(f"{AT_LEAST_ONCE} and {EXACTLY_ONCE} exclude each other")
        return cls(EXACTLY_ONCE in given, ORDERED in given)

    @property
    def broken_by(self) -> frozenset[Kind]:
        more = {Kind.DOUBLED, Kind.ABORTED} if self.exactly_once else set()
        return ALWAYS | more | ({Kind.REORDERED} if self.ordered else set())

    def __str__(self) -> str:
        first = EXACTLY_ONCE if self.exactly_once else AT_LEAST_ONCE
        return f"{first}, {ORDERED}" if self.ordered else first
