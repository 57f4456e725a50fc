"""Faults as spans of time: what was done to whom, from when to when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.reports.markup import Markup, element, join
from histories.faults import EVERYTHING, Fault
from histories.history import History
from reports.scales import HEIGHT, WIDTH, TimeAxis

HUES = {
    "kill": 2,
    "kill-at": 338,
    "stop": 18,
    "pause": 36,
    "pause-at": 44,
    "membership": 52,
    "partition": 262,
    "cut-off": 248,
    "half-open": 286,
    "slow": 228,
    "lossy": 206,
    "message": 312,
    "clock": 176,
    "power": 350,
    "disk-full": 92,
    "flip": 122,
    "truncate": 146,
    "wipe": 72,
}
"""Processes are red to yellow, links blue to violet, disks green."""

HOW = ("shape", "action", "api", "direction", "point")
MOST_NAMED = 3

MOMENTS = frozenset({"flip", "truncate", "wipe"})
"""Acts that are over when they are done; nothing takes them back."""


@dataclass(frozen=True, slots=True)
class Band:
    number: int
    kind: str
    targets: tuple[str, ...]
    start_s: float
    end_s: float
    ended: bool
    """It was taken back; else it lasts to the end of the run."""
    refused: bool
    """The world could not do it."""
    how: str
    """Details that distinguish it from others of its kind: a partition's shape, the message, the fault point."""
    text: str
    """The rest of its value, or the error of it."""

    @property
    def label(self) -> str:
        """Short, for a bar."""
        if len(self.targets) > MOST_NAMED:
            return " ".join(filter(None, (self.how, f"{len(self.targets)} nodes")))
        return " ".join(filter(None, (self.how, ", ".join(self.targets)))) or self.kind


def hue(kind: str) -> int:
    """Hue of a kind; for unknown kinds it depends on the name alone."""
    return HUES.get(kind, sum(kind.encode()) * 47 % 360)


def bands(history: History, end_s: float) -> list[Band]:
    """In order of their beginnings; the last heal of everything is none."""
    return [_band(history, fault, end_s) for fault in history.faults if fault.number != EVERYTHING]


def _band(history: History, fault: Fault, end_s: float) -> Band:
    errors = [": ".join(error) for error in (history.operation(i).error for i in fault.operations) if error]
    start_s = fault.began_ns / 1e9
    moment = fault.number < 0 or fault.kind in MOMENTS
    if fault.ended_ns is not None:
        end_s = fault.ended_ns / 1e9
    elif (errors or moment) and fault.acted_ns is not None:
        end_s = fault.acted_ns / 1e9
    return Band(
        number=fault.number,
        kind=fault.kind,
        targets=_targets(fault.value),
        start_s=start_s,
        end_s=max(end_s, start_s),
        ended=fault.ended_ns is not None or moment,
        refused=bool(errors),
        how=" ".join(str(fault.value[name]) for name in HOW if fault.value.get(name)),
        text="; ".join(errors) or _text(fault.value),
    )


def _targets(value: Mapping[str, Any]) -> tuple[str, ...]:
    targets = value.get("targets", ())
    if isinstance(targets, str):
        return (targets,)
    return tuple(map(_as_text, targets)) if isinstance(targets, Sequence) else ()


def _as_text(value: Any) -> str:
    """A link is a pair of nodes, or `one>another`."""
    if isinstance(value, str):
        return value.replace(">", " → ")
    return " → ".join(map(_as_text, value)) if isinstance(value, list | tuple) else str(value)


def _text(value: Mapping[str, Any]) -> str:
    parts = []
    for name, each in value.items():
        if name in ("number", "targets", "kind", *HOW):
            continue
        words = ", ".join(map(_as_text, each)) if isinstance(each, list | tuple) else str(each)
        parts.append(f"{name} {words}")
    return "; ".join(parts)


def shading(found: Sequence[Band], axis: TimeAxis) -> Markup:
    """Drawn once; every plot uses it."""
    rects = (
        element(
            "rect",
            x=round(WIDTH * axis.fraction(band.start_s)),
            width=max(6, round(WIDTH * (axis.fraction(band.end_s) - axis.fraction(band.start_s)))),
            y=0,
            height=HEIGHT,
            style=f"--hue:{hue(band.kind)}",
        )
        for band in found
    )
    return element("svg", element("defs", element("g", join(rects), id="bands")), class_="nowhere", aria_hidden="true")
