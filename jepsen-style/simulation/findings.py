"""The results of a simulated run: broken promises, and counts of what happened.

A broken promise may be found deep inside of a call of a node, where an exception would pass for one of the node. So it
is noted here, and the run is cancelled from outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_FINDINGS = 10


@dataclass(slots=True)
class Findings:
    """The findings of one run."""

    now: Callable[[], float]
    """Seconds since the universe began."""
    broken: list[str] = field(default_factory=list)
    """The first few broken promises, with the moment each was seen."""
    counts: Counter[str] = field(default_factory=Counter)
    """Counts by name."""
    on_broken: Callable[[], None] | None = None
    """Called with every finding."""

    def report(self, promise: str) -> None:
        """A promise is broken."""
        if len(self.broken) < MAX_FINDINGS:
            self.broken.append(f"at {self.now():.3f} s: {promise}")
        if self.on_broken is not None:
            self.on_broken()

    def check(self, holds: bool, promise: Callable[[], str]) -> None:
        """Reports the text of `promise` unless it holds."""
        if not holds:
            self.report(promise())

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] += by
