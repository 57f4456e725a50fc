"""A verdict in the terminal."""

from __future__ import annotations

from collections import Counter

import typer

from checkers.gathering import counts_of
from checkers.verdict import Verdict

MOST_OF_A_KIND = 5


def print_verdict(verdict: Verdict) -> None:
    """Prints the first few anomalies of each kind, and counts of those that are legal."""
    printed: Counter[str] = Counter()
    for finding in verdict.findings:
        printed[finding.anomaly] += not finding.legal
        if not finding.legal and printed[finding.anomaly] <= MOST_OF_A_KIND:
            typer.echo(f"{finding.anomaly} {finding.where}: {finding.description}")
    counts = counts_of(((finding.anomaly, finding.legal) for finding in verdict.findings), verdict.figures)
    for (anomaly, legal), count in counts.items():
        if count > MOST_OF_A_KIND and not legal:
            typer.echo(f"{anomaly}: {count} in all")
    allowed = [f"{count} {anomaly}" for (anomaly, legal), count in counts.items() if legal]
    if allowed:
        typer.echo(f"legal here: {', '.join(allowed)}")
