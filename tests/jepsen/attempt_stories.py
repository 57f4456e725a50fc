"""Short histories of the workloads whose operations have values of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checkers.verdict import Checker, Verdict
from histories.history import History
from histories.views import Views
from operations import NEMESIS, Operation, Outcome, Place

STEP_NS = 1_000_000


class Story:
    """Line by line; `did` is an invocation with its completion at once."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.run: dict[str, Any] = {}
        self.looks: list[Mapping[str, Any]] = []
        self.now_ns = 0
        self._asked: dict[int, tuple[str, Any]] = {}

    def begins(self, process: int, f: str, asked: Any) -> None:
        self._asked[process] = f, asked
        self._line(process, "invoke", f, asked)

    def ends(self, process: int, type_: Outcome = "ok", value: Any = None, **more: Any) -> None:
        f, asked = self._asked.pop(process)
        self._line(process, type_, f, asked if value is None else value, **more)

    def did(self, process: int, f: str, asked: Any, type_: Outcome = "ok", value: Any = None, **more: Any) -> None:
        self.begins(process, f, asked)
        self.ends(process, type_, value, **more)

    def read(
        self, parts: Mapping[tuple[str, int], Sequence[tuple[int, Any]]], *, process: int = 90, **more: Any
    ) -> None:
        """From the start; `more`: final, isolation, `ends` by partition, and `named` ones where the reader came no
        further than to what was given."""
        self.read_from(dict.fromkeys(parts, 0), parts, process=process, **more)

    def read_from(  # noqa: PLR0913 - a reading as it is
        self,
        starts: Mapping[tuple[str, int], int],
        parts: Mapping[tuple[str, int], Sequence[tuple[int, Any]]],
        *,
        process: int = 90,
        final: bool = False,
        isolation: str = "read_committed",
        ends: Mapping[tuple[str, int], int] | None = None,
        named: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        given = {place: max([starts[place], *(offset + 1 for offset, _ in found)]) for place, found in parts.items()}
        reached = {place: (ends or {}).get(place, given[place]) for place in parts}
        value = {
            "parts": [
                [*place, starts[place], reached[place], [list(record) for record in found]]
                for place, found in parts.items()
            ],
            "ends": [[*place, end] for place, end in (reached | dict(named or {})).items()],
            "end": "quiet" if named else True,
        }
        self.did(process, "read", {"final": final, "isolation": isolation}, "ok", value)

    def passes(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def look(self, place: Place, isr: Sequence[int]) -> None:
        """Broker 1 leads it."""
        self.now_ns += STEP_NS
        views = [["broker-1", *place, 9, 9, 3, 1, list(isr)]]
        self.looks.append({"t_ns": self.now_ns, "views": views, "states": {}, "controller": None})

    def fault(self, f: str, *targets: str) -> None:
        for type_ in ("invoke", "info"):
            self._line(NEMESIS, type_, f, {"number": 1, "kind": f, "targets": list(targets)})

    def history(self) -> History:
        return History.of(self.operations, self.run, Views.of(self.looks))

    def judged_by(self, checker: Checker) -> Verdict:
        return checker.check(self.history())

    def _line(self, process: int | str, type_: Any, f: str, value: Any, **more: Any) -> None:
        self.now_ns += STEP_NS
        error = (more["error"], "told") if more.get("error") else None
        self.operations.append(
            Operation(
                len(self.operations),
                process,
                type_,
                f,
                value,
                self.now_ns,
                self.now_ns // 1_000_000,
                "fake",
                more.get("node"),
                error,
                more.get("note") or {},
            )
        )


def bugs(verdict: Verdict) -> set[str]:
    return {finding.anomaly for finding in verdict.findings if not finding.legal}


def legal(verdict: Verdict) -> set[str]:
    return {finding.anomaly for finding in verdict.findings if finding.legal}
