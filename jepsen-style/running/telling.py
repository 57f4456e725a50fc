"""A verdict in the terminal."""

from __future__ import annotations

from collections import Counter

import typer

from checkers.verdict import Verdict

MOST_OF_A_KIND = 5


def tell(verdict: Verdict) -> None:
    """What is wrong, the first few of each kind; what is legal, by number."""
    counts: Counter[str] = Counter()
    legal: Counter[str] = Counter()
    for finding in verdict.findings:
        if finding.legal:
            legal[finding.anomaly] += 1
            continue
        counts[finding.anomaly] += 1
        if counts[finding.anomaly] <= MOST_OF_A_KIND:
            typer.echo(f"{finding.anomaly} {finding.where}: {finding.told}")
    for anomaly, count in counts.items():
        if count > MOST_OF_A_KIND:
            typer.echo(f"{anomaly}: {count} in all")
    if legal:
        typer.echo(f"legal here: {', '.join(f'{count} {anomaly}' for anomaly, count in legal.items())}")
