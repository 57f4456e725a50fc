"""Tables of a report: availability at each fault, coverage of states by faults, what is legal, checkers' figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from barnabas.reports.markup import Child, Markup, element, shorten
from checkers import legality
from checkers.availability import Availability
from reports.bands import Band, hue
from reports.facts import Facts
from reports.findings import Found
from reports.scales import duration, number

MOST_FAULTS = 300
MOST_FIGURES = 60


class Felt(NamedTuple):
    """Effect of one fault on clients, as the availability checker measures it."""

    band: Band
    gap_s: float
    """The longest time without an acknowledged write."""
    recovered_s: float | None
    """From its end to the next one; None: it had no end, or there was none."""


def availability(facts: Facts, faults: Sequence[Band]) -> list[Felt]:
    """Measured again, so that a run which was not checked has it, too. Empty: nothing was ever acknowledged."""
    measured = Availability().check(facts.history).figures.get("faults", ())
    bands = {band.number: band for band in faults}
    return [Felt(bands[each["number"]], each["gap"], each["recovery"]) for each in measured if each["number"] in bands]


def availability_table(facts: Facts, faults: Sequence[Band]) -> Markup | None:
    if not faults:
        return None
    rows = availability(facts, faults)
    if not rows:
        nothing = element("p", "Nothing was acknowledged in this run.", class_="note")
        return _section("availability", "Availability", nothing)
    worst = max(row.gap_s for row in rows)
    lines = (
        element(
            "tr",
            element(
                "td", element("i", class_="hue", style=f"--hue:{hue(row.band.kind)}"), row.band.kind, class_="short"
            ),
            element("td", shorten(row.band.label, 120)),
            element("td", f"{row.band.start_s:.1f} s", class_="n"),
            element("td", duration(row.band.end_s - row.band.start_s) + ("" if row.band.ended else " →"), class_="n"),
            element("td", _meter(row.gap_s, worst), duration(row.gap_s), class_="n meter"),
            element("td", "—" if row.recovered_s is None else duration(row.recovered_s), class_="n"),
            element("td", shorten(row.band.text, 160), class_="said"),
        )
        for row in rows[:MOST_FAULTS]
    )
    heads = ("fault", "of", "at", "for", "longest without an ok write", "recovered in", "said")
    note = (
        "Longest without an acknowledged write: of the gaps that touch the time from the fault to the next one. "
        "Recovered: from the end of the fault to the next acknowledged write."
    )
    return _section(
        "availability", "Availability", _table(heads, lines, (2, 3, 4, 5)), element("p", note, class_="note")
    )


def _meter(value: float, most: float) -> Markup:
    return element("u", style=f"width:{100 * value / most if most else 0:.1f}%")


def coverage_table(coverage: Mapping[str, Any] | None) -> Markup | None:
    """State by fault; what never met is marked. Faults that this run did not have are named, and have no column."""
    coverage = coverage or {}
    match coverage:
        case {"faults": list(known), "cells": Mapping() as cells}:
            counts = {str(state): {str(f): _count(row, f) for f in known} for state, row in cells.items()}
        case {"states": list(states), "faults": list(known), "counts": list(rows)}:
            counts = {
                str(state): {str(f): _count(row, n) for n, f in enumerate(known)}
                for state, row in zip(states, rows, strict=False)
            }
        case _:
            return None
    struck = coverage.get("struck")
    faults = [str(f) for f in known if not isinstance(struck, Mapping) or struck.get(f)]
    if not counts or not faults:
        return None
    most = max(row[f] for row in counts.values() for f in faults)
    never = sum(row[f] == 0 for row in counts.values() for f in faults)
    lines = (
        element("tr", element("th", state), (_covered(row[fault], most, state, fault) for fault in faults))
        for state, row in counts.items()
    )
    head = element("thead", element("tr", element("th", "state"), (element("th", fault) for fault in faults)))
    text = f"How often each fault met each state. {never} of {len(counts) * len(faults)} cells never happened."
    absent = [str(f) for f in known if str(f) not in faults]
    if absent:
        text += f" Not in this run at all: {', '.join(absent)}."
    return _section(
        "coverage",
        "Coverage",
        element("p", text, class_="note"),
        element(
            "div",
            element("table", head, element("tbody", lines), class_="heat"),
            class_="wide tall",
            tabindex=0,
            role="region",
            aria_label="state by fault",
        ),
        _points(coverage.get("points")),
    )


def _points(points: Any) -> Markup | None:
    if not isinstance(points, Mapping) or not points:
        return None
    items = (element("li", element("b", name), " ", number(_count(points, name))) for name in points)
    return element(
        "details",
        element("summary", f"{len(points)} fault points were passed"),
        element("ul", items, class_="pairs"),
        class_="more",
    )


def _count(counts: Any, place: Any) -> int:
    try:
        value = counts[place]
    except (IndexError, TypeError, KeyError):
        return 0
    return value if isinstance(value, int) else 0


def _covered(count: int, most: int, state: str, fault: str) -> Markup:
    if not count:
        return element("td", "never", class_="never", title=f"{fault} never met {state}")
    share = np.log1p(count) / np.log1p(most)
    return element("td", number(count), class_="met", style=f"--share:{share:.2f}", title=f"{fault} met {state}")


def legality_table(facts: Facts, findings: Sequence[Found]) -> Markup:
    """Each anomaly, whether this run allows it, and how often it was found."""
    of_run = legality.Conditions.of_run(facts.run)
    counts: dict[str, int] = {}
    for each in findings:
        counts[each.anomaly] = counts.get(each.anomaly, 0) + 1
    others = [anomaly for anomaly in counts if anomaly not in legality.ANOMALIES]
    lines = [
        element(
            "tr",
            element("td", element("code", anomaly)),
            element("td", rule.meaning),
            element("td", _legal(anomaly, rule, of_run)),
            element("td", counts.get(anomaly, 0) or "", class_="n"),
            class_=_row_class(anomaly, counts, findings),
        )
        for anomaly, rule in legality.ANOMALIES.items()
    ]
    lines += [
        element(
            "tr",
            element("td", element("code", anomaly)),
            element("td", "of this workload"),
            element("td", "never"),
            element("td", counts[anomaly], class_="n"),
            class_=_row_class(anomaly, counts, findings),
        )
        for anomaly in others
    ]
    applied = (
        f"This run: consumers {of_run.via}, {of_run.isolation}, idempotence {'on' if of_run.idempotence else 'off'}."
    )
    full = element(
        "details", element("summary", "The whole table"), element("pre", legality.printed(), tabindex=0), class_="more"
    )
    return _section(
        "legality",
        "What is legal",
        element("p", applied, class_="note"),
        _table(("anomaly", "is", "legal in this run", "found"), lines, (3,)),
        full,
    )


def _legal(anomaly: str, rule: legality.Rule, of_run: legality.Conditions) -> Child:
    without, with_ww = (legality.is_legal(anomaly, of_run._replace(ww=ww)) for ww in (False, True))
    if not rule.legal_when or not (without or with_ww):
        return "no"
    if not without:
        return f"with ww edges: {rule.why}"
    whose = "yes" if legality.is_legal(anomaly, of_run._replace(via="assign")) else "of consumers that subscribe"
    return f"{whose}: {rule.why}"


def _row_class(anomaly: str, counts: Mapping[str, int], findings: Sequence[Found]) -> str | None:
    if anomaly not in counts:
        return None
    return "legal" if all(each.legal for each in findings if each.anomaly == anomaly) else "illegal"


def checkers_table(verdict: Mapping[str, Any] | None) -> Markup | None:
    """Figures of the checkers."""
    figures = (verdict or {}).get("figures")
    if not isinstance(figures, Mapping) or not figures:
        return None
    lines = [
        element("tr", element("td", element("code", checker)), element("td", _figures(each)))
        for checker, each in figures.items()
    ]
    return _section("checkers", "Checkers", _table(("checker", "counted"), lines, ()))


def _figures(value: Any) -> Child:
    if not isinstance(value, Mapping):
        return shorten(_json(value), 300)
    plain = {key: each for key, each in value.items() if not isinstance(each, Mapping | list)}
    nested = {key: each for key, each in value.items() if key not in plain}
    shown = [
        element("span", element("b", _figure(each)), f" {key}", class_="figure")
        for key, each in list(plain.items())[:MOST_FIGURES]
    ]
    folded = [
        element("details", element("summary", key), element("pre", shorten(_json(each, indent=1), 6_000), tabindex=0))
        for key, each in list(nested.items())[:MOST_FIGURES]
        if each
    ]
    return [*shown, *folded] or "nothing"


def _figure(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "—"}[value]
    return number(value) if isinstance(value, int | float) and abs(value) < 1e15 else shorten(value, 80)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)


def _section(id_: str, title: str, *children: Child) -> Markup:
    return element("section", element("h2", title), children, id=id_)


def _table(heads: Sequence[str], lines: Child, numbers: Sequence[int]) -> Markup:
    head = (element("th", name, class_="n" if n in numbers else None) for n, name in enumerate(heads))
    return _wide(element("table", element("thead", element("tr", head)), element("tbody", lines)), heads[0])


def _wide(table: Markup, name: str) -> Markup:
    """Scrolls by itself where the page is narrow, with the keyboard, too."""
    return element("div", table, class_="wide", tabindex=0, role="region", aria_label=name)
