"""The nodes' views of one partition around a finding: leader, epoch, in-sync replicas and offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from barnabas.reports.markup import Markup, element
from reports.partitions import Seen

MOST_ROWS = 12


def table(found: Sequence[Seen], where: str, start_s: float, end_s: float) -> Markup | None:
    """The last look before, those at which leader, epoch or replicas in sync were others than before, and the first
    one after. None where nobody looked, or `where` is no partition."""
    seen = next((each for each in found if str(each.place) == where), None)
    if seen is None or not len(seen.t_s):
        return None
    rows = _rows(seen, start_s, end_s)
    heads = ("at", "leader", "epoch", "in sync", *seen.logs)
    body = (
        element(
            "tr",
            element("td", f"{seen.t_s[row]:.2f} s", class_="n"),
            element("td", seen.leader[row] if seen.leader[row] >= 0 else "none"),
            element("td", seen.leader_epoch[row]),
            element("td", ", ".join(map(str, seen.members[row])) or "none"),
            (element("td", _ends(seen, node, float(seen.t_s[row])), class_="short") for node in seen.logs),
        )
        for row in rows[:MOST_ROWS]
    )
    left_out = len(rows) - MOST_ROWS
    return element(
        "figure",
        element(
            "figcaption",
            f"Views of {where} at that time, with each node's high watermark and log end",
            f" ({left_out} more changes are left out)" if left_out > 0 else "",
        ),
        element(
            "div",
            element("table", element("thead", element("tr", (element("th", name) for name in heads))), body),
            class_="wide",
            tabindex=0,
            role="region",
            aria_label=f"replicas of {where}",
        ),
        class_="replicas",
    )


def _rows(seen: Seen, start_s: float, end_s: float) -> list[int]:
    first = max(int(np.searchsorted(seen.t_s, start_s, side="right")) - 1, 0)
    last = min(int(np.searchsorted(seen.t_s, end_s)), len(seen.t_s) - 1)
    states = [(seen.leader[row], seen.leader_epoch[row], seen.members[row]) for row in range(first, last + 1)]
    changed = [first + n for n in range(1, len(states)) if states[n] != states[n - 1]]
    return sorted({first, *changed, last})


def _ends(seen: Seen, node: str, t_s: float) -> str:
    """High watermark and log end of one node; empty if it reported nothing in that sample."""
    log = seen.logs[node]
    row = int(np.searchsorted(log.t_s, t_s))
    if row >= len(log.t_s) or log.t_s[row] != t_s:
        return ""
    return f"{log.high_watermark[row]} / {log.log_end_offset[row]}"
