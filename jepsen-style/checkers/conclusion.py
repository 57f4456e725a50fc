"""One verdict: of all checkers, of a simulation's own invariants, and whether the run was complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from checkers.verdict import Finding, Verdict, merge

OF_LOSS = (
    *("is in ISR or ELR and ends at", "should have all below", "had all below", "committed is up to"),
    *("is committed", "what is committed has", "the high watermark of leader"),
    "nobody is left who may lead and has lost nothing",
)
"""In promises of a simulation that records are kept which were committed."""


def conclude(run: Mapping[str, Any], verdicts: Mapping[str, Verdict]) -> Verdict:
    """The verdict of a run with this `run.json`."""
    verdict = merge(verdicts)
    if verdict.valid == "true" and not run.get("final_done", True):
        return replace(verdict, valid="unknown", unknown_because="the run ended before everything was read to its end")
    return verdict


def of_promises(run: Mapping[str, Any], promises: Mapping[str, Any]) -> Verdict:
    """`promises` is the content of `promises.json`."""
    findings = []
    for each in promises["broken"]:
        # A run beyond the budget destroys all copies of committed records.
        lost = bool(run.get("beyond_budget")) and any(part in each for part in OF_LOSS)
        findings.append(Finding("broken-promise", "simulation", [], each, lost))
    figures = {name: value for name, value in promises.items() if name not in ("broken", "counts")}
    return Verdict("true" if all(finding.legal for finding in findings) else "false", findings, figures)
