"""The promise of every step: no request holds the event loop for long, whatever it asks for.

A step is the work between two turns of other connections. No clock runs within it in a simulation, so its work is
counted in calls.
"""

from __future__ import annotations

from simulation.findings import Findings

MOST_CALLS = 30_000
"""Calls that one step may make: about 20 ms."""


class Work:
    """Checks the work of one run."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.largest: dict[str, int] = {}
        """The calls of the largest step so far, by API."""

    def took(self, name: str, calls: int) -> None:
        """A step of a request of this API made this number of calls."""
        if calls > self.largest.get(name, 0):
            self.largest[name] = calls
        self._findings.check(
            calls <= MOST_CALLS, lambda: f"one step of {name} makes {calls} calls, more than {MOST_CALLS}"
        )
