"""From what a run recorded to its verdict: the workload's checkers, and what a simulation found by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from checkers.all_checkers import check_one, of_every_run, of_workload
from checkers.conclusion import conclude, of_promises
from checkers.verdict import Verdict
from histories import promises
from histories.history import History
from histories.recorder import RUN, HistoryError
from histories.whole import write_whole

VERDICT = "verdict.json"


def judge(directory: Path, history: History | None = None) -> Verdict:
    """The verdict on the directory of a run; `history` if it was loaded before. Raises HistoryError if there is none
    that can be judged."""
    history = History.load(directory) if history is None else history
    run = history.run
    try:
        checkers = [*of_workload(run), *of_every_run(run)]
    except ValueError as error:
        raise HistoryError(f"{directory / RUN} has no valid workload: {error}") from error
    verdicts = {checker.name: check_one(checker, history) for checker in checkers}
    found = promises.load(directory)
    if found is not None:
        verdicts["promises"] = of_promises(run, found)
    return conclude(run, verdicts)


def write(directory: Path, verdict: Verdict) -> None:
    """Writes `verdict.json`. Raises OSError."""
    write_whole(directory / VERDICT, json.dumps(asdict(verdict), indent=1, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    """Numbers of arrays, as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
