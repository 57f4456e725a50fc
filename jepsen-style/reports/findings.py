"""A section for each finding: its operations, the order around it, other processes at that time, the nodes' logs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barnabas.reports.markup import Markup, element, shorten
from checkers.gathering import counts_of
from operations import Operation
from reports import node_logs, order, replicas
from reports.bands import Band, hue
from reports.facts import OUTCOMES, Facts
from reports.naming import named, named_note
from reports.partitions import Seen
from reports.plots import span
from reports.scales import duration, number

MOST_OF_A_KIND = 5
"""Findings of one anomaly that get a section; the others are in a list."""

MOST_LEGAL_OF_A_KIND = 2
MOST_SECTIONS = 36
MOST_LISTED = 200
MOST_OPERATIONS = 16
"""Operations that are shown of one finding: from both ends of its list."""

MOST_CHARACTERS = 1_500_000
"""Size of all sections together above which processes and logs are left out."""

LONGEST_LINE = 90
LONGEST_VALUE = 4_000
"""Characters of an operation's value."""

AROUND_S = 2.0
MOST_WINDOWS = 3
MOST_BARS = 160
"""Operations in one window of the timeline of processes."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding of `verdict.json`, whatever it looks like there."""

    number: int
    anomaly: str
    where: str
    operations: tuple[int, ...]
    description: str
    legal: bool


@dataclass(frozen=True, slots=True)
class Window:
    """Seconds around what matters."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Around:
    """Other events at that time."""

    faults: Sequence[Band]
    partitions: Sequence[Seen]


def found(verdict: Mapping[str, Any] | None) -> list[Found]:
    """In the checkers' order."""
    listed = (verdict or {}).get("findings", ())
    return [
        Found(
            number,
            str(each.get("anomaly", "?")),
            str(each.get("where", "")),
            tuple(i for i in each.get("operations", ()) if isinstance(i, int)),
            str(each.get("description", "")),
            bool(each.get("legal", False)),
        )
        for number, each in enumerate(listed if isinstance(listed, list) else (), 1)
        if isinstance(each, Mapping)
    ]


def section(facts: Facts, findings: Sequence[Found], around: Around) -> Markup | None:
    """Findings that make the run invalid."""
    wrong = [each for each in findings if not each.legal]
    if not wrong:
        return None
    shown, others = chosen(wrong, MOST_OF_A_KIND)
    articles = _articles(facts, shown, around, unfolded=shown[0])
    return element("section", element("h2", "Findings"), _summary(facts, wrong), articles, _list(others), id="findings")


def legal_section(facts: Facts, findings: Sequence[Found], around: Around) -> Markup | None:
    """Findings that Kafka allows under this run's options, collapsed."""
    legal = [each for each in findings if each.legal]
    if not legal:
        return None
    shown, others = chosen(legal, MOST_LEGAL_OF_A_KIND)
    articles = _articles(facts, shown, around, unfolded=None)
    return element(
        "section",
        element("h2", "Found, and legal here"),
        _summary(facts, legal),
        element("details", element("summary", "Show them"), articles, _list(others), class_="legal-ones"),
        id="legal",
    )


def chosen(findings: Sequence[Found], most_of_a_kind: int) -> tuple[list[Found], list[Found]]:
    """The first few of each anomaly, and the others."""
    taken: Counter[str] = Counter()
    shown: list[Found] = []
    others: list[Found] = []
    for each in findings:
        taken[each.anomaly] += 1
        fits = taken[each.anomaly] <= most_of_a_kind and len(shown) < MOST_SECTIONS
        (shown if fits else others).append(each)
    return shown, others


def involved(finding: Found) -> tuple[int, ...]:
    half = MOST_OPERATIONS // 2
    every = finding.operations
    return every if len(every) <= MOST_OPERATIONS else (*every[:half], *every[-half:])


def rows_of(facts: Facts, numbers: Sequence[int]) -> list[int]:
    """Rows of Calls whose invocation or completion is one of these operations, each once."""
    calls = facts.calls
    wanted = np.array(sorted(set(numbers)), np.int64)
    rows = np.flatnonzero(np.isin(calls.completed, wanted) | np.isin(calls.invoked, wanted))
    return [int(row) for row in rows]


def windows(spans: Sequence[tuple[float, float]], end_s: float) -> list[Window]:
    """Around each span, those that touch as one. A long operation has a window at each of its ends."""
    edges: list[tuple[float, float]] = []
    for start_s, stop_s in spans:
        if stop_s - start_s > 6 * AROUND_S:
            edges += [(start_s, start_s), (stop_s, stop_s)]
        else:
            edges.append((start_s, stop_s))
    merged: list[Window] = []
    for start_s, stop_s in sorted(edges):
        low, high = max(start_s - AROUND_S, 0.0), min(stop_s + AROUND_S, max(end_s, stop_s))
        if merged and low <= merged[-1].end_s:
            merged[-1] = Window(merged[-1].start_s, max(merged[-1].end_s, high))
        else:
            merged.append(Window(low, high))
    return merged


def counted(verdict: Mapping[str, Any] | None, findings: Sequence[Found]) -> Mapping[tuple[str, bool], int]:
    """By (anomaly, whether it is legal), with those of which only the number was kept."""
    figures = (verdict or {}).get("figures")
    return counts_of(((each.anomaly, each.legal) for each in findings), figures if isinstance(figures, Mapping) else {})


def _summary(facts: Facts, findings: Sequence[Found]) -> Markup:
    counts = counted(facts.verdict, findings)
    return element(
        "ul",
        (
            element("li", element("b", number(count)), f" {anomaly}", class_=_severity(legal))
            for (anomaly, legal), count in counts.items()
        ),
        class_="chips",
    )


def _severity(legal: bool) -> str:
    return "legal" if legal else "illegal"


def _articles(facts: Facts, shown: Sequence[Found], around: Around, *, unfolded: Found | None) -> Iterator[Markup]:
    """Findings with their surroundings, as long as there is room."""
    room = MOST_CHARACTERS
    for each in shown:
        article = _article(facts, each, around, room > 0, unfolded=each is unfolded)
        room -= len(article)
        yield article


def _article(facts: Facts, finding: Found, around: Around, has_room: bool, *, unfolded: bool) -> Markup:
    calls = facts.calls
    numbers = [i for i in involved(finding) if 0 <= i < len(facts.history)]
    rows = rows_of(facts, numbers)
    shown_by = [int(calls.shown_by[row]) for row in rows]
    covered = {*shown_by, *(int(calls.invoked[row]) for row in rows)}
    alone = [i for i in numbers if i not in covered]
    listed = [facts.history.operation(i) for i in sorted({*shown_by, *alone})]
    spans = [(float(calls.start_s[row]), float(calls.end_s[row])) for row in rows]
    spans += [(moment, moment) for moment in (facts.history.lines.t_ns[alone] / 1e9).tolist()]
    moments = windows(spans, facts.end_s)
    left_out = len(finding.operations) - len(involved(finding))
    return element(
        "article",
        element(
            "header",
            element("a", f"#{finding.number}", href=f"#finding-{finding.number}"),
            element("h3", finding.anomaly),
            element("span", "legal here" if finding.legal else "anomaly", class_="badge"),
            element("code", finding.where) if finding.where else None,
        ),
        element("p", shorten(finding.description, 1_200), class_="description"),
        element(
            "details",
            element("summary", "Operations, order" + (", processes and nodes' logs" if moments and has_room else "")),
            _operations(facts, listed, rows),
            element("p", f"{left_out} more operations show it.", class_="note") if left_out > 0 else None,
            order.view(facts, finding.where, rows),
            _replicas(around, finding.where, moments) if has_room else None,
            _around(facts, moments, rows, around.faults) if has_room else None,
            open=unfolded,
        ),
        id=f"finding-{finding.number}",
        class_=f"finding {_severity(finding.legal)}",
    )


def _replicas(around: Around, where: str, moments: Sequence[Window]) -> Markup | None:
    """From the first moment to the last one."""
    return replicas.table(around.partitions, where, moments[0].start_s, moments[-1].end_s) if moments else None


def _around(
    facts: Facts, moments: Sequence[Window], rows: Sequence[int], faults: Sequence[Band]
) -> list[Markup | None]:
    """Operations of every process at that time, and the nodes' log lines."""
    beyond = len(moments) - MOST_WINDOWS
    return [
        *(each for window in moments[:MOST_WINDOWS] for each in _window(facts, window, rows, faults)),
        element("p", f"{beyond} more moments are left out.", class_="note") if beyond > 0 else None,
    ]


def _operations(facts: Facts, listed: Sequence[Operation], rows: Sequence[int]) -> Markup | None:
    if not listed:
        return element("p", "It names no operations of this history.", class_="note")
    started = {int(facts.calls.shown_by[row]): float(facts.calls.start_s[row]) for row in rows}
    heads = ("i", "process", "f", "outcome", "began", "took", "value", "error and notes", "client", "node")
    by_key = facts.names.values is None
    lines = []
    for operation in listed:
        end_s = operation.t_ns / 1e9
        start_s = started.get(operation.i, end_s)
        lines = [": ".join(map(str, operation.error))] if operation.error else []
        lines += [
            f"{key}: {_json(named_note(key, value) if by_key else value)}" for key, value in operation.note.items()
        ]
        cells = (
            element("td", operation.i, class_="n"),
            element("td", operation.process, class_="n"),
            element("td", operation.f),
            element("td", element("span", operation.type, class_=f"outcome {operation.type}")),
            element("td", f"{start_s:.3f} s", class_="n"),
            element("td", duration(end_s - start_s), class_="n"),
            element("td", _value(named(operation.f, operation.value) if by_key else operation.value), class_="long"),
            element("td", shorten("; ".join(lines)), class_="long"),
            element("td", operation.client, class_="short"),
            element("td", operation.node, class_="short"),
        )
        lines.append(element("tr", cells))
    head = element("thead", element("tr", (element("th", name) for name in heads)))
    return element(
        "div",
        element("table", head, element("tbody", lines)),
        class_="wide",
        tabindex=0,
        role="region",
        aria_label="operations involved",
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _value(value: Any) -> Markup:
    """Long ones open on demand."""
    text = _json(value)
    if len(text) <= LONGEST_LINE:
        return element("code", text)
    whole = element("code", shorten(text, LONGEST_VALUE))
    return element("details", element("summary", element("code", text[:LONGEST_LINE], "…")), whole)


def _window(facts: Facts, window: Window, rows: Sequence[int], faults: Sequence[Band]) -> list[Markup | None]:
    return [_processes(facts, window, rows, faults), node_logs.table(facts, window.start_s, window.end_s)]


def _processes(facts: Facts, window: Window, rows: Sequence[int], faults: Sequence[Band]) -> Markup | None:
    calls = facts.calls
    within = np.flatnonzero((calls.end_s >= window.start_s) & (calls.start_s <= window.end_s))
    important = set(rows)
    if len(within) > MOST_BARS:
        every = -(-len(within) // MOST_BARS)
        within = np.unique(np.append(within[::every], [row for row in rows if row in set(within.tolist())]))
    shown = [int(row) for row in within]
    if not shown:
        return None
    length = max(window.end_s - window.start_s, 1e-9)

    def lies(start_s: float, end_s: float) -> str:
        places = (min(max((t_s - window.start_s) / length, 0.0), 1.0) for t_s in (start_s, end_s))
        return span(*places)

    lanes: dict[int, list[Markup]] = {process: [] for process in sorted({int(calls.process[row]) for row in shown})}
    for row in shown:
        start_s, end_s = float(calls.start_s[row]), float(calls.end_s[row])
        outcome, f = OUTCOMES[calls.outcome[row]], facts.f(row)
        title = f"{f} {outcome}, i {calls.shown_by[row]}, {start_s:.3f} s, took {duration(end_s - start_s)}"
        lanes[int(calls.process[row])].append(
            element(
                "b",
                f,
                class_=f"call {outcome}" + (" involved" if row in important else ""),
                title=title,
                style=lies(start_s, end_s),
            )
        )
    on = [band for band in faults if band.start_s <= window.end_s and band.end_s >= window.start_s]
    shades = [element("u", style=f"--hue:{hue(band.kind)};{lies(band.start_s, band.end_s)}") for band in on]
    body = (
        element(
            "div",
            element("span", facts.process_name(process), class_="who"),
            element("div", shades, bars, class_="doing"),
            class_="of",
        )
        for process, bars in lanes.items()
    )
    names = ", ".join(dict.fromkeys(f"{band.kind} {band.label}" for band in on))
    return element(
        "figure",
        element(
            "figcaption",
            f"Processes from {window.start_s:.2f} s to {window.end_s:.2f} s",
            f"; faults: {shorten(names, 200)}" if names else "; no fault",
        ),
        body,
        class_="processes",
    )


def _list(others: Sequence[Found]) -> Markup | None:
    if not others:
        return None
    items = (
        element("li", element("b", each.anomaly), " ", element("code", each.where), " ", shorten(each.description, 240))
        for each in others[:MOST_LISTED]
    )
    beyond = len(others) - MOST_LISTED
    return element(
        "details",
        element("summary", f"{len(others)} more"),
        element("ol", items),
        element("p", f"and {beyond} more, in verdict.json", class_="note") if beyond > 0 else None,
        class_="more",
    )
