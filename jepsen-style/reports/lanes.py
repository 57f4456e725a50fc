"""Lanes on the time axis: which faults were on, and how each node was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from barnabas.reports.markup import Markup, element, plural
from histories.views import Views
from reports.bands import Band, hue
from reports.facts import Facts
from reports.plots import Key, blocks, canvas, keys, span
from reports.scales import TimeAxis, duration

T = TypeVar("T")

MOST_BARS = 1_500
MOST_ROWS = 4
"""For faults of one kind that held at the same time."""


def faults(found: Sequence[Band], axis: TimeAxis) -> Markup | None:
    """A lane for each kind; in it, who was hit."""
    if not found:
        return None
    kinds = list(dict.fromkeys(band.kind for band in found))
    shown = found[:MOST_BARS]
    lanes = [
        _lane(kind if n == 0 else "", [_bar(band, axis) for band in row], axis, f"--hue:{hue(kind)}")
        for kind in kinds
        for n, row in enumerate(apart([band for band in shown if band.kind == kind], MOST_ROWS))
    ]
    left_out = f" (the first {MOST_BARS} of {len(found)})" if len(found) > MOST_BARS else ""
    return element(
        "section", element("header", element("h3", f"Faults{left_out}"), class_="stay"), lanes, class_="lanes"
    )


def apart(found: Sequence[Band], most: int) -> list[list[Band]]:
    """In rows in which none hides another, as far as there are rows."""
    rows: list[list[Band]] = []
    for band in found:
        free = next((row for row in rows if row[-1].end_s <= band.start_s), None)
        if free is None and len(rows) < most:
            rows.append([band])
        else:
            (rows[-1] if free is None else free).append(band)
    return rows


def nodes(facts: Facts, axis: TimeAxis) -> Markup | None:
    """State of each node in each second, and the active controller."""
    views, times = facts.history.views, (facts.history.views.looked_ns / 1e9).tolist()
    names = sorted({str(name) for states in views.states for name in states}, key=_by_number)
    if not names:
        return None
    lanes = []
    for name in names:
        states = [_state(views, look, name) for look in range(len(times))]
        by_state = grouped(times, states, axis.end_s)
        shapes = [blocks(spans, str(state), axis) for state, spans in by_state.items() if state is not None]
        lanes.append(_lane(name, (), axis, layers=shapes))
    changes = elections(views)
    title = f"Nodes; {plural(max(len(changes) - 1, 0), 'controller election')}" if changes else "Nodes"
    legend = [
        Key("state running", "runs"),
        Key("state active", "active controller"),
        Key("state paused", "paused"),
        Key("state dead", "dead"),
    ]
    return element(
        "section", element("header", element("h3", title), keys(legend), class_="stay"), lanes, class_="lanes"
    )


def elections(views: Views) -> list[tuple[float, str]]:
    """Time at which each controller was first seen as the active one."""
    found: list[tuple[float, str]] = []
    for looked_ns, controller in zip(views.looked_ns.tolist(), views.controllers, strict=True):
        if controller is not None and (not found or found[-1][1] != controller):
            found.append((looked_ns / 1e9, str(controller)))
    return found


def stretches(times: Sequence[float], values: Sequence[T], end_s: float) -> list[tuple[T, float, float]]:
    """Neighbours that are equal, as one, each to the beginning of the next."""
    found: list[tuple[T, float, float]] = []
    for t_s, value in zip(times, values, strict=True):
        if found and found[-1][0] == value:
            continue
        if found:
            found[-1] = (found[-1][0], found[-1][1], t_s)
        found.append((value, t_s, end_s))
    return found


def grouped(times: Sequence[float], values: Sequence[T], end_s: float) -> dict[T, list[tuple[float, float]]]:
    """The stretches of each value."""
    found: dict[T, list[tuple[float, float]]] = {}
    for value, start_s, until_s in stretches(times, values, end_s):
        found.setdefault(value, []).append((start_s, until_s))
    return found


def _state(views: Views, look: int, name: str) -> str | None:
    state = views.states[look].get(name)
    if state == "running" and views.controllers[look] == name:
        return "active"
    return state if state in ("running", "paused", "dead", None) else "dead"


def _lane(
    name: str, bars: Sequence[Markup], axis: TimeAxis, style: str | None = None, layers: Sequence[Markup] = ()
) -> Markup:
    return element(
        "div",
        element("div", element("span", element("bdi", name)), class_="name", title=name or None),
        element("div", canvas(layers, axis), bars, class_="lane"),
        class_="of",
        style=style,
    )


def _bar(band: Band, axis: TimeAxis) -> Markup:
    length = duration(band.end_s - band.start_s)
    lasted = f"{band.start_s:.2f} s, for {length}" + ("" if band.ended else ", not taken back")
    classes = "fault" + ("" if band.ended else " open") + (" refused" if band.refused else "")
    return element(
        "b",
        band.label,
        class_=classes,
        title=f"{band.kind} {band.label} at {lasted}. {band.text}".strip(),
        style=span(*_fractions(axis, band.start_s, band.end_s)),
    )


def _fractions(axis: TimeAxis, start_s: float, end_s: float) -> tuple[float, float]:
    return axis.fraction(start_s), axis.fraction(end_s)


def _by_number(name: str) -> tuple[str, int]:
    """controller-2 before controller-10."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdecimal() and len(tail) < 9 else (name, 0)
