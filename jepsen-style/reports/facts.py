"""Content of a report: the run's history in seconds, its verdict, its nodes' logs.

If a run was interrupted, the report leaves out what is missing and lists it in `missing`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from barnabas.reports.markup import plural
from histories.history import History
from histories.recorder import HistoryError
from reports import values
from reports.scales import Floats, Integers
from reports.values import Names, Values

FOREIGN = (
    "the nodes' own views, which are not read here: in-sync replicas, high watermarks, elections, faults, logs. "
    "If that cluster lost power or disks meanwhile, what they explain is an anomaly all the same"
)
"""Note about a cluster that this suite did not start."""

OUTCOMES = ("ok", "fail", "info")
OK = 0


class ReportError(Exception):
    """No report can be made; the reason in one line."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Operations of clients, in order of invocation: a row is one of `History.operations`."""

    f: Integers
    """Into `History.fs`."""
    outcome: Integers
    """Into OUTCOMES."""
    process: Integers
    start_s: Floats
    end_s: Floats
    """The end of the run, if it was never completed."""
    invoked: Integers
    """`i` of the line."""
    completed: Integers
    """-1: never."""
    shown_by: Integers
    """The `i` under which findings name it."""


@dataclass(frozen=True, slots=True)
class Facts:
    directory: Path
    history: History
    verdict: Mapping[str, Any] | None
    """None: the run was not checked."""
    coverage: Mapping[str, Any] | None
    calls: Calls
    sends: Values
    reads: Values
    names: Names
    """Names of the keys and values in both."""
    end_s: float
    wall_ms_at_start: float
    """Wall clock at time 0 of the run."""
    logs: Mapping[str, Path]
    missing: Sequence[str]

    @property
    def run(self) -> Mapping[str, Any]:
        return self.history.run

    def process(self, row: int) -> str:
        return self.process_name(int(self.calls.process[row]))

    def process_name(self, process: int) -> str:
        return self.history.process_names.get(process, str(process))

    def f(self, row: int) -> str:
        return self.history.fs[int(self.calls.f[row])]


def read(directory: Path, history: History | None = None) -> Facts:
    """`history`: of that directory, if it was loaded before. Raises ReportError if the directory is not that of a
    run."""
    try:
        history = History.load(directory) if history is None else history
    except HistoryError as error:
        raise ReportError(str(error)) from error
    missing: list[str] = []
    lines, views = history.lines, history.views
    ends = [int(lines.t_ns.max())] if len(lines) else []
    ends += [int(views.looked_ns.max())] if len(views.looked_ns) else []
    end_s = max(ends, default=0) / 1e9 or 1.0
    calls = _calls(history, end_s)
    unfinished = int((calls.completed < 0).sum())
    if unfinished:
        missing.append(f"how {plural(unfinished, 'operation')} ended: never completed")
    if not len(views.looked_ns):
        of_others = history.run.get("world") == "bootstrap"
        missing.append(FOREIGN if of_others else "no views of the nodes were recorded")
    sends, reads, names = values.of_history(history)
    logs = directory / "logs"
    return Facts(
        directory=directory,
        history=history,
        verdict=_object(directory / "verdict.json", missing),
        coverage=_object(directory / "coverage.json"),
        calls=calls,
        sends=sends,
        reads=reads,
        names=names,
        end_s=end_s,
        wall_ms_at_start=float(lines.wall_ms[0] - lines.t_ns[0] / 1e6) if len(lines) else 0.0,
        logs={path.stem: path for path in sorted(logs.glob("*.log"))} if logs.is_dir() else {},
        missing=missing,
    )


def _calls(history: History, end_s: float) -> Calls:
    operations, t_ns = history.operations, history.lines.t_ns
    if not len(operations):
        nothing, no_time = np.zeros(0, np.int64), np.zeros(0, np.float64)
        return Calls(nothing, nothing, nothing, no_time, no_time, nothing, nothing, nothing)
    done = operations.completed >= 0
    return Calls(
        operations.f,
        operations.outcome - 1,
        operations.process,
        t_ns[operations.invoked] / 1e9,
        np.where(done, t_ns[operations.completed] / 1e9, end_s),
        operations.invoked,
        operations.completed,
        operations.shown_by,
    )


def _object(path: Path, missing: list[str] | None = None) -> dict[str, Any] | None:
    """A JSON object from a file; None if it cannot be read, with the reason in `missing`."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        problem = f"there is no {path.name}"
    except (ValueError, OSError) as error:
        problem = f"{path.name} cannot be read: {error}"
    else:
        if isinstance(found, dict):
            return found
        problem = f"{path.name} is no JSON object"
    if missing is not None:
        missing.append(problem)
    return None
