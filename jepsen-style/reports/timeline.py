"""Everything that has a time, on one axis: faults, nodes, latencies, throughput, what is unseen, lag, partitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from barnabas.reports.markup import Markup, element
from reports import bands, curves, lanes, partitions
from reports.bands import Band
from reports.curves import Curve
from reports.facts import OUTCOMES, Facts
from reports.plots import Key, area, dots, line, note, plot, spikes, time_labels
from reports.scales import LogScale, TimeAxis, duration, from_zero, number
from reports.thinning import stairs, thin_line, thin_points

MOST_POINTS = 9_000
"""Points of one outcome in one plot of latencies."""

MOST_PLOTS = 4
RARE = 0.04
"""Functions that have a plot of latencies of their own; the others share one, as do those of which there are few."""

ZOOMS = (1, 2, 4, 8)


def section(facts: Facts, faults: Sequence[Band], seen: Sequence[partitions.Seen], suspects: Sequence[str]) -> Markup:
    axis = TimeAxis(facts.end_s)
    rows = [
        lanes.faults(faults, axis),
        lanes.nodes(facts, axis),
        *_latencies(facts, axis),
        _throughput(facts, axis),
        _unseen(facts, axis),
        _lag(facts, axis),
        _elections(facts, seen, axis),
        partitions.section(seen, suspects, axis),
    ]
    if not any(rows):
        return element("section", element("h2", "Timeline"), note("Nothing happened in this run."), id="timeline")
    shown = element(
        "div",
        bands.shading(faults, axis),
        element("div", time_labels(axis), rows, time_labels(axis), class_="paper"),
        class_="timeline",
        tabindex=0,
        role="group",
        aria_label=f"Plots over {duration(facts.end_s)}; the arrow keys move the marker",
        data_end=f"{facts.end_s:.3f}",
    )
    return element("section", element("h2", "Timeline"), _controls(), shown, id="timeline")


def _controls() -> Markup:
    """Plain check boxes and radio buttons, which the style sheet looks at."""
    boxes = (
        element(
            "label",
            element("input", type="checkbox", checked=True, id=f"show-{outcome}"),
            element("i", class_=f"dot {outcome}"),
            outcome,
        )
        for outcome in OUTCOMES
    )
    zooms = (
        element("label", element("input", type="radio", name="zoom", checked=zoom == 1, id=f"zoom-{zoom}"), f"{zoom}×")
        for zoom in ZOOMS
    )
    shades = element("label", element("input", type="checkbox", checked=True, id="show-bands"), "fault bands")
    return element(
        "form",
        element("fieldset", element("legend", "Show"), boxes, shades),
        element("fieldset", element("legend", "Zoom"), zooms),
        element("output", aria_live="polite", id="moment"),
        class_="controls",
    )


def _latencies(facts: Facts, axis: TimeAxis) -> list[Markup]:
    calls = facts.calls
    done = calls.completed >= 0
    if not done.any():
        return []
    took = np.maximum(calls.end_s - calls.start_s, 1e-6)
    scale = LogScale.over(took[done])
    counts = np.bincount(calls.f[done], minlength=len(facts.history.fs))
    ranked = sorted((f for f in range(len(counts)) if counts[f]), key=lambda f: (-counts[f], facts.history.fs[f]))
    alone = [f for f in ranked if counts[f] >= RARE * counts.sum()][:MOST_PLOTS]
    groups = [(facts.history.fs[f], [f]) for f in alone]
    if len(ranked) > len(alone):
        rest = ranked[len(alone) :]
        groups.append((", ".join(facts.history.fs[f] for f in rest), rest))
    plots = []
    for name, members in groups:
        layers, legend = [], []
        often = counts[members].sum() >= counts.sum() / 8
        of_it = done & np.isin(calls.f, members)
        for code, outcome in reversed(list(enumerate(OUTCOMES))):
            rows = np.flatnonzero(of_it & (calls.outcome == code))
            if not len(rows):
                continue
            x, y = axis.places(calls.end_s[rows]), scale.places(took[rows])
            layers.append(dots(*thin_points(x, y, MOST_POINTS), outcome))
            legend.append(Key(f"dot {outcome}", f"{outcome} {number(len(rows))}"))
        # What is rare is drawn last, over the rest.
        layers.sort(key=len, reverse=True)
        plots.append(plot(f"Latency of {name}", layers, scale, axis, legend[::-1], tall="high" if often else ""))
    return plots


def _throughput(facts: Facts, axis: TimeAxis) -> Markup | None:
    by_outcome = curves.throughput(facts.calls, facts.end_s)
    if not any(curve.value.any() for curve in by_outcome.values()):
        return None
    scale = from_zero([float(curve.value.max()) for curve in by_outcome.values()])
    layers, legend = [], []
    for outcome, curve in by_outcome.items():
        if curve.value.any():
            x, y = axis.places(curve.t_s), scale.places(curve.value)
            layers += [area(x, y, outcome), line(x, y, outcome)]
            legend.append(Key(f"stroke {outcome}", outcome))
    return plot("Completions per second", layers, scale, axis, legend)


def _unseen(facts: Facts, axis: TimeAxis) -> Markup | None:
    curve = curves.unseen(facts)
    if curve is None:
        return None
    last = int(curve.value[-1])
    title = "Acknowledged and not yet polled by anyone" + (f"; {number(last)} never were" if last else "")
    return _area_plot(title, curve, "unseen", axis)


def _lag(facts: Facts, axis: TimeAxis) -> Markup | None:
    lag = curves.lag(facts)
    if lag is None:
        return None
    scale = from_zero(lag.worst_s, " s")
    x = axis.places(lag.t_s)
    layers = [
        spikes(x, scale.places(lag.worst_s), "worst"),
        dots(x, scale.places(lag.median_s), "median"),
    ]
    legend = [Key("stroke worst", "worst"), Key("dot median", "median of polls")]
    return plot("Consumer lag: how long something newer had been there", layers, scale, axis, legend)


def _elections(facts: Facts, seen: Sequence[partitions.Seen], axis: TimeAxis) -> Markup | None:
    views = facts.history.views
    if not len(views.looked_ns):
        return None
    leaders = partitions.leader_changes(seen)
    controllers = np.array([t_s for t_s, _ in lanes.elections(views)[1:]])
    width = curves.bucket_s(facts.end_s)
    edges = np.arange(0, facts.end_s + width, width)
    counts = np.histogram(leaders, edges)[0]
    scale = from_zero([float(counts.max()) if len(counts) else 0.0])
    some = np.flatnonzero(counts)
    layers = [spikes(axis.places(edges[some]), scale.places(counts[some].astype(np.float64)), "leaders")]
    if len(controllers):
        layers.append(dots(axis.places(controllers), scale.places(np.zeros(len(controllers))) - 60, "controllers"))
    legend = [
        Key("stroke leaders", f"leader changes ({len(leaders)})"),
        Key("dot controllers", f"controller elections ({len(controllers)})"),
    ]
    return plot("Leader changes and controller elections", layers, scale, axis, legend, tall="low")


def _area_plot(title: str, curve: Curve, ink: str, axis: TimeAxis) -> Markup:
    scale = from_zero(curve.value)
    x, y = thin_line(*stairs(axis.places(curve.t_s), scale.places(curve.value)), 2_000)
    return plot(title, [area(x, y, ink), line(x, y, ink)], scale, axis)
