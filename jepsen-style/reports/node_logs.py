"""Lines of the nodes' logs of some seconds, of all nodes in one order of time.

A line begins with its time in UTC (`2026-03-01T12:00:00.123Z`), after whatever a container engine puts before it; lines
without one belong to the line above them (tracebacks).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from barnabas.reports.markup import Markup, element, shorten
from reports.facts import Facts

MOST_LINES = 150
"""Log lines shown of one window; warnings and errors have precedence."""

MOST_READ = 20_000

_TIME = re.compile(r"^.{0,60}?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?Z?\s*(.*)$", re.DOTALL)


class Line(NamedTuple):
    t_s: float
    """Time by the run's clock."""
    node: str
    text: str
    times: int = 1
    """Number of times that the node logged it in this window."""


def lines(path: Path, node: str, wall_ms_at_start: float, start_s: float, end_s: float) -> Iterator[Line]:
    """Those of one node within the span."""
    t_s = -1e18
    with open(path, "rb") as file:
        for raw in file:
            text = raw.decode("utf-8", "replace").rstrip()
            found = _TIME.match(text)
            if found is not None:
                moment = _moment(found)
                if moment is not None:
                    t_s, text = moment - wall_ms_at_start / 1e3, found[4]
            if t_s > end_s + 60:
                return
            if start_s <= t_s <= end_s:
                yield Line(t_s, node, text)


def table(facts: Facts, start_s: float, end_s: float) -> Markup | None:
    if not facts.logs:
        return None
    every = [
        line
        for node, path in facts.logs.items()
        for line in islice(lines(path, node, facts.wall_ms_at_start, start_s, end_s), MOST_READ)
    ]
    every.sort(key=lambda line: line.t_s)
    if not every:
        return element("p", "The nodes' logs have no lines in this time.", class_="note")
    line_count = len(every)
    every = _once(every)
    shown = _most_important(every)
    body = (
        element(
            "tr",
            element("td", f"{line.t_s:.3f}", class_="n"),
            element("td", line.node),
            element("td", shorten(line.text, 300), element("i", f" ×{line.times}") if line.times > 1 else None),
            class_=_level(line.text),
        )
        for line in shown
    )
    left_out = line_count - sum(line.times for line in shown)
    return element(
        "figure",
        element(
            "figcaption",
            f"Log lines of the nodes from {start_s:.2f} s to {end_s:.2f} s",
            f" ({left_out} quiet lines left out)" if left_out else None,
        ),
        element(
            "div",
            element("table", element("tbody", body)),
            class_="wide tall",
            tabindex=0,
            role="region",
            aria_label="lines of the nodes' logs",
        ),
        class_="logs",
    )


def _once(every: list[Line]) -> list[Line]:
    """Merges repeated lines into the first of them."""
    counts = Counter((line.node, line.text) for line in every)
    first = {(line.node, line.text): line for line in reversed(every)}
    kept = [line._replace(times=counts[line.node, line.text]) for line in first.values()]
    return sorted(kept, key=lambda line: line.t_s)


def _moment(found: re.Match[str]) -> float | None:
    try:
        whole = datetime.fromisoformat(f"{found[1]}T{found[2]}").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return whole + float(f"0.{found[3] or 0}")


def _most_important(every: list[Line]) -> list[Line]:
    """Loud lines first, then an even choice of the others; in order of time."""
    if len(every) <= MOST_LINES:
        return every
    loud = [n for n, line in enumerate(every) if _level(line.text)][:MOST_LINES]
    room = MOST_LINES - len(loud)
    taken = set(loud)
    quiet = [n for n in range(len(every)) if n not in taken]
    step = -(-len(quiet) // room) if room else 0
    return [every[n] for n in sorted([*loud, *(quiet[::step] if step else ())])]


def _level(text: str) -> str | None:
    head = text[:40]
    if "ERROR" in head or "CRITICAL" in head or "Traceback" in head:
        return "error"
    return "warning" if "WARN" in head else None
