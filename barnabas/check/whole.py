"""A run from its options to the files that remain of it."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from barnabas.check.errors import CannotRun
from barnabas.check.journal import Journal
from barnabas.check.options import CheckOptions
from barnabas.check.report import write_report
from barnabas.check.run import check
from barnabas.check.story import story
from barnabas.check.verdict import Verdict

MARK = "check.json"
"""The file by which a directory is known as that of an earlier run."""
_STORIES = 3
"""Findings of each kind whose story is printed."""


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run."""

    verdict: Verdict
    lines: Sequence[str]
    """The verdict and the stories, for people."""


def run_check(options: CheckOptions, say: Callable[[str], None]) -> Result:
    """Run it; blocks. Raises `CannotRun`."""
    out = Path(options.directory)
    _prepare(out, options)
    logging.basicConfig(filename=out / "logs" / "check.log", level=logging.WARNING)
    outcome = trio.run(check, options, say)
    verdict, journal = outcome.verdict, outcome.journal
    _write(out, options, verdict, journal)
    page = write_report(out, verdict, journal, outcome.outputs, options.command)
    lines = [*_lines(verdict, journal), "", f"report: {page}"]
    if options.client is None:
        lines.append(f"decisions of the coordinator: barnabas why {options.names.group} --data {out / 'cluster'}")
    return Result(verdict, lines)


def _prepare(out: Path, options: CheckOptions) -> None:
    if out.exists() and not (out / MARK).exists() and (not out.is_dir() or any(out.iterdir())):
        raise CannotRun(f"--out {out} is not empty and not of an earlier check; name another directory")
    shutil.rmtree(out, ignore_errors=True)
    try:
        (out / "logs").mkdir(parents=True)
        (out / MARK).write_text(json.dumps({"seed": options.seed, "command": list(options.command)}) + "\n")
    except OSError as error:
        raise CannotRun(f"--out {out}: {error.strerror}") from None


def _lines(verdict: Verdict, journal: Journal) -> list[str]:
    lines = [verdict.line]
    for finding in verdict.chosen(_STORIES):
        lines += ["", f"{finding.kind}: {finding.text}"]
        lines += [f"  {line}" for line in story(finding, journal.events)]
    if verdict.notes or verdict.legal_counts:
        lines.append("")
    lines += [f"note: {note}" for note in verdict.notes]
    lines += [f"allowed by the promise: {count} {kind}" for kind, count in verdict.legal_counts.items()]
    return lines


def _write(out: Path, options: CheckOptions, verdict: Verdict, journal: Journal) -> None:
    with (out / "events.jsonl").open("w") as file:
        for event in journal.events:
            file.write(json.dumps(event.to_json()) + "\n")
    findings = [{"kind": it.kind, "text": it.text} for it in verdict.findings]
    (out / MARK).write_text(
        json.dumps(
            {
                "seed": options.seed,
                "command": list(options.command),
                "promise": str(options.promise),
                "holds": verdict.holds,
                "figures": dict(verdict.figures),
                "counts": dict(verdict.counts),
                "notes": list(verdict.notes),
                "findings": findings,
            },
            indent=1,
        )
        + "\n"
    )
