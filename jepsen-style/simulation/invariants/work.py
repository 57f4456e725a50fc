"""The promise of every step: no request holds the event loop for long, whatever it asks for.

A step is the work between two turns of other connections. No clock runs within it in a simulation, so its work is
counted in calls.
"""

from __future__ import annotations

from simulation.findings import Findings

MOST_CALLS = 30_000
"""Calls that one step may make: about 20 ms."""

MOST_CALLS_OF_A_DECISION = 10 * MOST_CALLS
"""The same where the controller decides: its commands are not cut into steps yet, only the things that a request may
name are limited (`kraft/controller/limits.py`)."""

DECISIONS = frozenset(
    [
        "AlterConfigs",
        "AlterPartition",
        "AlterPartitionReassignments",
        "AssignReplicasToDirs",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "CreatePartitions",
        "CreateTopics",
        "DeleteTopics",
        "ElectLeaders",
        "Envelope",
        "IncrementalAlterConfigs",
        "UnregisterBroker",
    ]
)
"""APIs on which the controller decides in one step."""


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
        most = MOST_CALLS_OF_A_DECISION if name in DECISIONS else MOST_CALLS
        self._findings.check(calls <= most, lambda: f"one step of {name} makes {calls} calls, more than {most}")
