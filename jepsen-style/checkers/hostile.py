"""Forbidden responses that hostile clients of the nemesis got, and nodes that ended meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkers.verdict import Finding, Verdict
from histories.history import History

KIND = "hostile"


@dataclass(frozen=True)
class HostileClients:
    """Reads the nemesis's lines: each of its hostile clients reports its findings at its end."""

    name: str = "hostile clients"

    def check(self, history: History) -> Verdict:
        findings, requests = [], 0
        for fault in history.faults:
            if fault.kind == KIND:
                requests += int(fault.value.get("requests", 0))
                problems: Any = fault.value.get("problems", ())
                where = f"hostile client {fault.number}"
                findings += [Finding("hostile", where, fault.operations, str(problem)) for problem in problems]
        return Verdict("false" if findings else "true", findings, {"requests": requests})
