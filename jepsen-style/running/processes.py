"""Runs of this suite as processes of their own, by the very command that a user would give."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running.children import CHILDREN, Interrupted

HOME = Path(__file__).resolve().parent.parent
VALID, ANOMALY, COULD_NOT_RUN = 0, 1, 2
TIMEOUT_SECONDS = 1_800.0
"""Timeout of one command, however long its own time is."""
NO_FAULT = 0
"""The number of the heal at the end of a run."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one command."""

    words: tuple[str, ...]
    exit_code: int
    lines: tuple[str, ...]
    """Its lines, those of stderr last."""
    seconds: float
    directory: Path | None = None
    """Directory of the run, if it was one and was made."""

    @property
    def found_something(self) -> bool:
        """The run printed INVALID: one that was interrupted may just not have come to its end."""
        return self.exit_code == ANOMALY and any(line.startswith("INVALID") for line in self.lines)

    @property
    def last_line(self) -> str:
        return self.lines[-1] if self.lines else "it printed nothing"


@dataclass(frozen=True, slots=True)
class Story:
    """Results in the directory of a run."""

    anomalies: tuple[str, ...] = ()
    last_seconds: float | None = None
    faults: tuple[int, ...] = ()
    operations: int = 0
    thought_of: int = 0
    """Operations of its main phase, with those that were left out."""
    figures: Mapping[str, Any] = field(default_factory=dict)


def do(words: Sequence[str], store: Path | None = None) -> Done:
    """`python jepsen-style WORDS`. With `store`, a folder of its own, the run's directory is found in there."""
    if store is not None:
        store.mkdir(parents=True, exist_ok=True)
        words = [*words, "--store", str(store)]
    before = set() if store is None else set(store.iterdir())
    began = time.monotonic()
    command = [sys.executable, str(HOME), *words]
    try:
        ended = CHILDREN.run(command, TIMEOUT_SECONDS)
    except Interrupted:
        return Done(tuple(words), COULD_NOT_RUN, ("interrupted before it began",), 0.0)
    except subprocess.TimeoutExpired:
        reason = f"it did not end within {TIMEOUT_SECONDS:.0f} s"
        return Done(tuple(words), COULD_NOT_RUN, (reason,), time.monotonic() - began)
    made = [] if store is None else sorted(set(store.iterdir()) - before)
    lines = [line for line in (*ended.stdout.splitlines(), *ended.stderr.splitlines()) if line.strip()]
    code = ended.returncode if ended.returncode in (VALID, ANOMALY) else COULD_NOT_RUN
    return Done(tuple(words), code, tuple(lines), time.monotonic() - began, made[-1] if made else None)


def story_of(directory: Path) -> Story | None:
    """None if it was not judged."""
    try:
        verdict = json.loads((directory / "verdict.json").read_text(encoding="utf-8"))
        lines = (directory / "history.jsonl").read_text(encoding="utf-8").splitlines()
        run = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    bad = [finding for finding in verdict.get("findings", ()) if not finding.get("legal")]
    shown = {i for finding in bad for i in finding.get("operations", ())}
    last_ns, faults, operations = None, dict[int, None](), 0
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            break  # the last one, torn
        if line["process"] == "nemesis":
            number = (line.get("value") or {}).get("number", NO_FAULT)
            if number != NO_FAULT:
                faults[number] = None
        elif line["type"] == "invoke":
            operations += 1
        if line["i"] in shown:
            last_ns = line["t_ns"]
    names = dict.fromkeys(finding["anomaly"] for finding in bad)
    last_seconds = None if last_ns is None else last_ns / 1e9
    thought_of = int(run.get("thought_of", operations))
    return Story(tuple(names), last_seconds, tuple(faults), operations, thought_of, verdict.get("figures", {}))
