"""The demo's picture: flights per hour, read back from the lake, and the lag while processes were killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

INK = "#1f2933"
FAINT = "#8896a5"
LOADED = "#2f7ebc"
LAG = "#d1495b"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
FIRST_DAYS = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


@dataclass(frozen=True, slots=True)
class Sample:
    """Progress at one moment."""

    seconds: float
    loaded: int
    """Committed records in the topic."""
    exported: int
    """Records whose offsets the stream has committed to its group."""

    @property
    def lag(self) -> int:
        return self.loaded - self.exported


@dataclass(frozen=True, slots=True)
class Mark:
    """An event at one moment."""

    seconds: float
    text: str


def draw(hours: Any, samples: Sequence[Sample], marks: Sequence[Mark], title: str, path: Path) -> None:
    """`hours` is an array of 365 days by 24 hours with the number of flights."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    style = {"font.size": 9, "axes.edgecolor": FAINT, "axes.labelcolor": INK, "text.color": INK}
    ticks = {"xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False}
    with pyplot.rc_context({**style, **ticks}):
        figure, (year, lag) = pyplot.subplots(2, 1, figsize=(9.6, 6.6), height_ratios=(1, 1.15), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        _draw_hours(figure, year, np.asarray(hours))
        _draw_lag(lag, samples, marks)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)


def _draw_hours(figure: Any, axes: Any, hours: Any) -> None:
    shown = axes.pcolormesh(np.arange(366), np.arange(25), hours.T, cmap="YlGnBu", vmin=0, rasterized=True)
    axes.set_title("Flights an hour, read back from the lake", loc="left", fontsize=9)
    axes.set_xticks(FIRST_DAYS, MONTHS, ha="left")
    axes.set_yticks((0, 6, 12, 18, 24), ("0 h", "6 h", "12 h", "18 h", "24 h"))
    axes.tick_params(length=2)
    bar = figure.colorbar(shown, ax=axes, pad=0.01, aspect=18)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)


def _draw_lag(axes: Any, samples: Sequence[Sample], marks: Sequence[Mark]) -> None:
    seconds = [each.seconds for each in samples]
    axes.set_title("Records in the topic and in the lake, while processes are killed", loc="left", fontsize=9)
    axes.plot(seconds, [each.loaded for each in samples], color=LOADED, lw=1.6, label="loaded into the topic")
    axes.plot(seconds, [each.exported for each in samples], color=INK, lw=1.6, label="exported to the lake")
    axes.fill_between(seconds, [each.lag for each in samples], color=LAG, alpha=0.28, lw=0)
    axes.plot(seconds, [each.lag for each in samples], color=LAG, lw=1.2, label="lag")
    top = max([each.loaded for each in samples], default=1) or 1
    axes.set_ylim(0, top * 1.32)
    end = max([*seconds, *(mark.seconds for mark in marks)], default=1) or 1
    for number, mark in enumerate(marks):
        axes.axvline(mark.seconds, color=FAINT, lw=0.8, ls=(0, (3, 3)), zorder=0)
        height = top * (1.25 - 0.075 * (number % 3))
        side = "right" if mark.seconds > 0.85 * end else "left"
        axes.text(mark.seconds, height, f" {mark.text} ", fontsize=8, color=INK, va="center", ha=side)
    axes.set_xlim(0, end)
    axes.set_xlabel("seconds")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f} k" if value else "0")
    axes.grid(axis="y", color=FAINT, alpha=0.2)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.98), ncols=3, fontsize=8)
