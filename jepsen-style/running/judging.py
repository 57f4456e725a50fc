"""From what a run recorded to its verdict: the workload's checkers, and what a simulation found by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from checkers.all_checkers import check_all, of_every_run
from checkers.verdict import Finding, Verdict, merge
from histories.history import History
from histories.recorder import RUN, HistoryError
from workloads.catalogue import make_workload
from workloads.workload import WorkloadOptions

VERDICT = "verdict.json"
PROMISES = "promises.json"
"""What a simulated cluster broke while it ran."""
OF_LOSS = (
    *("is in ISR or ELR and ends at", "should have all below", "had all below", "committed is up to"),
    *("is committed", "what is committed has", "the high watermark of leader"),
)
"""In promises of a simulation that records are kept which were committed."""


def judge(directory: Path, history: History | None = None) -> Verdict:
    """Of a run's directory; `history` if it was loaded before. Raises HistoryError if there is none to be judged."""
    history = History.load(directory) if history is None else history
    run = history.run
    try:
        workload = make_workload(str(run["workload"]), WorkloadOptions(**run.get("options", {})))
    except (KeyError, TypeError, ValueError) as error:
        raise HistoryError(f"{directory / RUN} does not say which workload ran: {error}") from error
    verdict = check_all(history, [*workload.checkers(), *of_every_run(run)])
    promises = _promises(directory / PROMISES, run)
    if promises is not None:
        verdict = _with(verdict, promises)
    if verdict.valid == "true" and not run.get("final_done", True):
        return replace(verdict, valid="unknown", unknown_because="the run ended before everything was read to its end")
    return verdict


def _with(verdict: Verdict, promises: Verdict) -> Verdict:
    both = merge({"checkers": verdict, "promises": promises})
    return replace(both, figures={**verdict.figures, "promises": promises.figures})


def write(directory: Path, verdict: Verdict) -> None:
    """As `verdict.json`. Raises OSError."""
    path = directory / VERDICT
    written = directory / f"{VERDICT}.new"
    written.write_text(json.dumps(asdict(verdict), indent=1, default=_plain) + "\n", encoding="utf-8")
    written.replace(path)


def _plain(value: Any) -> Any:
    """Numbers of arrays, as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _promises(path: Path, run: Mapping[str, Any]) -> Verdict | None:
    if not path.exists():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    findings = []
    for each in told["broken"]:
        # Who was told to go beyond the budget takes committed records from all who have them.
        lost = bool(run.get("beyond_budget")) and any(part in each for part in OF_LOSS)
        findings.append(Finding("broken-promise", "simulation", [], each, lost))
    figures = {name: value for name, value in told.items() if name not in ("broken", "counts")}
    return Verdict("true" if all(finding.legal for finding in findings) else "false", findings, figures)
