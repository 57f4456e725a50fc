"""Cost limits of attacks, and the table of their outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from attacks.scene import LIMIT_SECONDS, MOST_TIMES_P99, Outcome
from attacks.target import Latencies

MOST_GROWTH_MB = 100
MOST_TIMES_TWINS = 2
"""The producer's p99 may also be that many times what it is while other processes use as much CPU time."""
HEADINGS = (
    "attack",
    "bytes sent",
    "CPU s of the broker",
    "memory MB",
    "longest wait s",
    "p50/p99 before ms",
    "p50/p99/longest during ms",
    "p50/p99/longest with twins ms",
    "steps > 20 ms",
    "nodes that ended",
    "verdict",
)


def excesses(outcome: Outcome) -> Iterator[str]:
    """Each budget that the attack went beyond, in words."""
    if outcome.dead:
        yield f"ended {', '.join(outcome.dead)}"
    if outcome.over_limit:
        yield f"frozen > {LIMIT_SECONDS:.0f} s"
    if outcome.missing:
        yield f"{outcome.missing} acknowledged records are missing"
    elif outcome.missing is None and not outcome.over_limit:
        yield "the number of records is unknown"
    if outcome.grown_mb > MOST_GROWTH_MB:
        yield f"memory > +{MOST_GROWTH_MB} MB"
    if not outcome.before.count or not outcome.during.count:
        yield "the producer was not measured"
    twins_p99 = 0.0 if outcome.with_twins is None else outcome.with_twins.p99
    if outcome.during.p99 > max(MOST_TIMES_P99 * outcome.before.p99, MOST_TIMES_TWINS * twins_p99):
        yield f"p99 > {MOST_TIMES_P99} times"
    if (outcome.slow_steps or 0) > MOST_TIMES_TWINS * outcome.slow_steps_with_twins:
        yield f"{outcome.slow_steps} steps > 20 ms"
    yield from outcome.problems


def row(outcome: Outcome) -> tuple[str, ...]:
    """Under `HEADINGS`."""
    longest = f"{outcome.longest_wait_seconds:.1f}"
    return (
        outcome.name,
        f"{outcome.bytes_sent:,}",
        f"{outcome.cpu_seconds:.1f}",
        f"{outcome.grown_mb:+.0f}",
        f"> {LIMIT_SECONDS:.0f}" if outcome.over_limit else longest,
        _shown(outcome.before, with_longest=False),
        _shown(outcome.during, with_longest=True),
        "" if outcome.with_twins is None else _shown(outcome.with_twins, with_longest=True),
        "not counted" if outcome.slow_steps is None else str(outcome.slow_steps),
        ", ".join(outcome.dead) or "none",
        "; ".join(excesses(outcome)) or "within budget",
    )


def markdown(outcomes: Sequence[Outcome]) -> str:
    rows = [HEADINGS, ("---",) * len(HEADINGS), *map(row, outcomes)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def _shown(latencies: Latencies, *, with_longest: bool) -> str:
    values = (latencies.p50, latencies.p99, *((latencies.longest,) if with_longest else ()))
    return "/".join("?" if math.isnan(value) else f"{value:,.0f}" for value in values)
