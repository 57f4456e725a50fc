"""One plot: a title, a scale upwards, layers of ink over the shaded bands of faults.

Plots are stretched by the page (`preserveAspectRatio="none"`), so no text and no circle is in their SVG: labels are
HTML beside it, and a point is a line without length and with round ends, whose stroke does not scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from barnabas.reports.markup import Child, Markup, element
from reports.scales import HEIGHT, WIDTH, Integers, Scale, Tick, TimeAxis


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    ink: str
    """The class that colours it."""
    label: str


def dots(x: Integers, y: Integers, ink: str) -> Markup:
    return _path("".join(f"M{a} {b}h0" for a, b in _pairs(x, y)), f"dots {ink}")


def line(x: Integers, y: Integers, ink: str) -> Markup:
    return _path(_polyline(x, y), f"line {ink}")


def steps(x: Integers, y: Integers, ink: str, until: int = WIDTH) -> Markup:
    """Each value holds until the next one comes."""
    if not len(x):
        return Markup()
    moves = "".join(f"H{a}V{b}" for a, b in _pairs(x[1:], y[1:]))
    return _path(f"M{x[0]} {y[0]}{moves}H{max(until, int(x[-1]))}", f"line {ink}")


def area(x: Integers, y: Integers, ink: str) -> Markup:
    """Down to the floor of the plot."""
    if not len(x):
        return Markup()
    return _path(f"M{x[0]} {HEIGHT}L{_polyline(x, y)[1:]}L{x[-1]} {HEIGHT}Z", f"area {ink}")


def spikes(x: Integers, y: Integers, ink: str) -> Markup:
    """Upright lines from the floor."""
    return _path("".join(f"M{a} {HEIGHT}V{b}" for a, b in _pairs(x, y)), f"spikes {ink}")


def blocks(spans: Iterable[tuple[float, float]], ink: str, axis: TimeAxis) -> Markup:
    """A lane's states: bars between two times."""
    low, high = HEIGHT // 4, HEIGHT * 3 // 4
    edges = ((round(WIDTH * axis.fraction(start)), round(WIDTH * axis.fraction(end))) for start, end in spans)
    return _path("".join(f"M{a} {low}H{max(b, a + 4)}V{high}H{a}Z" for a, b in edges), f"block {ink}")


def plot(
    title: str, layers: Sequence[Markup], scale: Scale, axis: TimeAxis, legend: Sequence[Key] = (), *, tall: str = ""
) -> Markup:
    """`tall`: `low` or `high`; nothing is the usual height."""
    ticks = scale.ticks()
    return element(
        "section",
        element("header", element("h3", title), keys(legend), class_="stay"),
        element("div", (_label(tick) for tick in ticks), class_="gutter"),
        element("div", canvas(layers, axis, ticks), class_="plot"),
        class_=f"row {tall}".strip(),
    )


def canvas(layers: Sequence[Markup], axis: TimeAxis, ticks: Sequence[Tick] = ()) -> Markup:
    grid = "".join(f"M0 {round(HEIGHT * (1 - tick.fraction))}H{WIDTH}" for tick in ticks)
    grid += "".join(f"M{round(WIDTH * tick.fraction)} 0V{HEIGHT}" for tick in axis.ticks())
    return element(
        "svg",
        element("use", href="#bands"),
        _path(grid, "grid"),
        layers,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def keys(legend: Sequence[Key]) -> Markup | None:
    if not legend:
        return None
    return element("ul", (element("li", element("i", class_=key.ink), key.label) for key in legend), class_="keys")


def percent(fraction: float) -> str:
    return f"{100 * fraction:.3f}".rstrip("0").rstrip(".") + "%"


def span(fraction: float, until: float) -> str:
    """A style that lays something on the time axis."""
    return f"left:{percent(fraction)};width:{percent(max(until - fraction, 0.0))}"


def time_labels(axis: TimeAxis) -> Markup:
    labels = (element("span", tick.label, style=f"left:{percent(tick.fraction)}") for tick in axis.ticks())
    return element("div", labels, class_="times", aria_hidden="true")


def note(*children: Child) -> Markup:
    return element("p", children, class_="note")


def _label(tick: Tick) -> Markup:
    return element("span", tick.label, style=f"bottom:{percent(tick.fraction)}")


def _path(d: str, ink: str) -> Markup:
    return element("path", d=d, class_=ink) if d else Markup()


def _polyline(x: Integers, y: Integers) -> str:
    return "M" + "L".join(f"{a} {b}" for a, b in _pairs(x, y)) if len(x) else ""


def _pairs(x: Integers, y: Integers) -> Iterable[tuple[int, int]]:
    return zip(np.asarray(x).tolist(), np.asarray(y).tolist(), strict=True)
