"""The order of one key around a finding: rows are operations, columns are offsets of its log, cells the values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from barnabas.reports.markup import Markup, element, shorten
from reports.facts import OUTCOMES, Facts

AROUND = 3
"""Offsets on both sides of one that matters."""

MOST_COLUMNS = 26
MOST_ROWS = 28


def view(facts: Facts, where: str, rows: Sequence[int]) -> Markup | None:
    """None where the operations have no key in common with the finding, or no offset is known."""
    key = _key(facts, where, rows)
    if key is None:
        return None
    matters = _offsets(facts, key, rows)
    if not matters:
        return None
    place, columns = facts.names.place(key), _columns(matters)
    cells = _cells(facts, key, columns)
    shown = _rows(facts, cells, rows)
    values = defaultdict(set)
    places = defaultdict(set)
    for row in cells:
        for offset, (value, _) in cells[row].items():
            values[offset].add(value)
            places[value].add(offset)
    wrong = {offset for offset in columns if len(values[offset]) > 1}
    wrong |= {offset for each in places.values() if len(each) > 1 for offset in each}
    return element(
        "figure",
        element("figcaption", f"Order of {place}: operations by when they began, offsets of its log"),
        element(
            "div",
            element(
                "table",
                _head(columns, wrong),
                element("tbody", (_line(facts, row, cells[row], columns, wrong, row in set(rows)) for row in shown)),
            ),
            class_="wide tall",
            tabindex=0,
            role="region",
            aria_label=f"order of {place}",
        ),
        class_="order",
    )


def _key(facts: Facts, where: str, rows: Sequence[int]) -> int | None:
    """The one that `where` names, else the most frequent of the operations."""
    wanted = np.array(rows, np.int64)
    counts: Counter[int] = Counter(
        facts.sends.key[np.isin(facts.sends.call, wanted)].tolist()
        + np.unique(np.stack([facts.reads.call, facts.reads.key])[:, np.isin(facts.reads.call, wanted)], axis=1)[
            1
        ].tolist()
    )
    named: list[int] = [key for key in counts if facts.names.place(key) == where]
    if named:
        return named[0]
    return min(counts, key=lambda each: (-counts[each], each)) if counts else None


def _offsets(facts: Facts, key: int, rows: Sequence[int]) -> list[int]:
    """Offsets of interest: the values that the operations sent, and the ends of what they read."""
    wanted = np.array(rows, np.int64)
    sends, reads = facts.sends, facts.reads
    sent = np.isin(sends.call, wanted) & (sends.key == key)
    of_key = reads.key == key
    offsets = set(sends.offset[sent & (sends.offset >= 0)].tolist())
    offsets |= set(reads.offset[of_key & np.isin(reads.value, sends.value[sent])].tolist())
    read = np.flatnonzero(of_key & np.isin(reads.call, wanted))
    if len(read) <= 12 or not offsets:
        offsets |= set(reads.offset[read].tolist()[:6] + reads.offset[read].tolist()[-6:])
    # A value that was read at several offsets, or an offset with several values.
    many = np.flatnonzero(of_key)
    by_value = many[np.lexsort((reads.offset[many], reads.value[many]))]
    again = np.flatnonzero((np.diff(reads.value[by_value]) == 0) & (np.diff(reads.offset[by_value]) != 0))
    suspects = np.isin(reads.call[by_value[again]], wanted) | np.isin(reads.call[by_value[again + 1]], wanted)
    twice = again[suspects][:4]
    offsets |= set(reads.offset[by_value[twice]].tolist()) | set(reads.offset[by_value[twice + 1]].tolist())
    return sorted(offsets)


def _columns(matters: Sequence[int]) -> list[int]:
    """Everything between them where that is not too much, else their neighbourhoods."""
    around = AROUND
    if matters[-1] - matters[0] + 2 * around < MOST_COLUMNS:
        return list(range(max(matters[0] - around, 0), matters[-1] + around + 1))
    few = matters if len(matters) <= 6 else [*matters[:3], *matters[-3:]]
    around = max(1, min(AROUND, MOST_COLUMNS // len(few) // 2))
    return sorted({offset for each in few for offset in range(max(each - around, 0), each + around + 1)})


def _cells(facts: Facts, key: int, columns: Sequence[int]) -> dict[int, dict[int, tuple[int, str]]]:
    """For each row of Calls that touches them: offset to value and kind."""
    wanted = np.array(columns, np.int64)
    cells: dict[int, dict[int, tuple[int, str]]] = {}
    for kind, micro in (("read", facts.reads), ("sent", facts.sends)):
        rows = np.flatnonzero((micro.key == key) & np.isin(micro.offset, wanted))
        for call, offset, value in zip(
            micro.call[rows].tolist(), micro.offset[rows].tolist(), micro.value[rows].tolist(), strict=True
        ):
            cells.setdefault(call, {})[offset] = (value, kind)
    # A send without a known offset is shown where its value was read.
    untold = np.flatnonzero((facts.sends.key == key) & (facts.sends.offset < 0))
    found = {value: offset for row in cells.values() for offset, (value, _) in row.items()}
    for call, value in zip(facts.sends.call[untold].tolist(), facts.sends.value[untold].tolist(), strict=True):
        if value in found:
            cells.setdefault(call, {})[found[value]] = (value, "sent")
    return cells


def _rows(facts: Facts, cells: dict[int, dict[int, tuple[int, str]]], involved: Sequence[int]) -> list[int]:
    """The involved ones, and of the others those nearest in time to one of them."""
    calls = facts.calls
    ours = [row for row in involved if row in cells]
    moments = calls.start_s[np.array(ours or list(involved) or [0], np.int64)]
    distance = {row: float(np.abs(moments - calls.start_s[row]).min()) for row in cells if row not in set(ours)}
    others = sorted(distance, key=lambda row: (distance[row], row))[: max(MOST_ROWS - len(ours), 0)]
    return sorted([*ours, *others], key=lambda row: (float(calls.start_s[row]), row))


def _head(columns: Sequence[int], wrong: set[int]) -> Markup:
    names = (
        element("th", offset, class_=_column(columns, n, wrong), title=f"offset {offset}")
        for n, offset in enumerate(columns)
    )
    return element("thead", element("tr", element("th", "operation"), names))


def _line(
    facts: Facts,
    row: int,
    cells: dict[int, tuple[int, str]],
    columns: Sequence[int],
    wrong: set[int],
    involved: bool,
) -> Markup:
    calls = facts.calls
    outcome = OUTCOMES[calls.outcome[row]]
    what = element(
        "th",
        element("i", class_=f"dot {outcome}", title=outcome),
        f"{calls.shown_by[row]} · {facts.f(row)} · process {facts.process(row)} · ",
        f"{calls.start_s[row]:.2f} s",
    )
    places = []
    for n, offset in enumerate(columns):
        value, kind = cells.get(offset, (None, ""))
        place = f"{kind} {_column(columns, n, wrong) or ''}".strip() or None
        text = None if value is None else shorten(facts.names.value(value), 24)
        places.append(element("td", text, class_=place, title=kind or None))
    return element("tr", what, places, class_="involved" if involved else None)


def _column(columns: Sequence[int], n: int, wrong: set[int]) -> str | None:
    apart = n > 0 and columns[n] != columns[n - 1] + 1
    return " ".join([*(["apart"] if apart else []), *(["wrong"] if columns[n] in wrong else [])]) or None
