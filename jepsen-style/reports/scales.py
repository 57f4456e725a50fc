"""From values to places on paper: the one time axis of a report, and the axes upwards.

Every plot has the same viewBox, WIDTH by HEIGHT, and is stretched to whatever the page gives it; so all of them share
the time axis, and the shaded bands are drawn once for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

WIDTH = 4_000
HEIGHT = 1_000


class Tick(NamedTuple):
    fraction: float
    """Fraction of the axis, from its lower end."""
    label: str


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Seconds since the run began."""

    end_s: float

    def fraction(self, t_s: float) -> float:
        return min(max(t_s / self.end_s, 0.0), 1.0)

    def places(self, t_s: Floats) -> Integers:
        return np.clip(np.rint(t_s * (WIDTH / self.end_s)), 0, WIDTH).astype(np.int64)

    def ticks(self) -> list[Tick]:
        step = next((each for each in _TIME_STEPS if self.end_s / each <= 13), _round_step(self.end_s / 13))
        count = int(self.end_s / step + 1e-9)
        return [Tick(self.fraction(n * step), clock(n * step, step)) for n in range(count + 1)]


_TIME_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200)


def clock(t_s: float, step: float = 1.0) -> str:
    """`42 s`, `1:30`, `2:00:00`."""
    if step < 1:
        return f"{t_s:.1f} s"
    whole = round(t_s)
    if whole < 60:
        return f"{whole} s"
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


@dataclass(frozen=True, slots=True)
class LinearScale:
    low: float
    high: float
    unit: str = ""

    def places(self, values: Floats) -> Integers:
        span = (self.high - self.low) or 1.0
        return np.clip(np.rint(HEIGHT * (1 - (values - self.low) / span)), 0, HEIGHT).astype(np.int64)

    def ticks(self) -> list[Tick]:
        span = self.high - self.low
        step = _round_step(span / 3)
        if float(self.high).is_integer() and float(self.low).is_integer():
            step = max(1.0, step)
        first = math.ceil(self.low / step - 1e-9)
        values = [n * step for n in range(first, int(self.high / step + 1e-9) + 1)]
        return [Tick((value - self.low) / span, f"{number(value)}{self.unit}") for value in values]


@dataclass(frozen=True, slots=True)
class LogScale:
    """Logarithmic scale of seconds, with ticks at whole decades."""

    low_exponent: float
    high_exponent: float

    @classmethod
    def over(cls, seconds: Floats) -> LogScale:
        """At least two decades, and never below a microsecond. The quickest few are drawn at the bottom: what took no
        time at all would else take most of the room."""
        above = seconds[seconds > 0]
        if not len(above):
            return cls(-3.0, 0.0)
        low = max(-6.0, math.floor(math.log10(float(np.quantile(above, 0.03))) * 2 + 1e-9) / 2 - 0.5)
        return cls(low, max(low + 2, math.log10(float(above.max())) + 0.1))

    def places(self, values: Floats) -> Integers:
        exponents = np.log10(np.maximum(values, 10.0**self.low_exponent))
        down: Floats = (self.high_exponent - exponents) / (self.high_exponent - self.low_exponent)
        return np.clip(np.rint(HEIGHT * down), 0, HEIGHT).astype(np.int64)

    def ticks(self) -> list[Tick]:
        span = self.high_exponent - self.low_exponent
        exponents = range(math.ceil(self.low_exponent), math.floor(self.high_exponent) + 1, 1 if span <= 6 else 2)
        return [Tick((each - self.low_exponent) / span, _decade(each)) for each in exponents]


def _decade(exponent: int) -> str:
    return f"{10**exponent} s" if exponent >= 0 else duration(10.0**exponent)


Scale = LinearScale | LogScale


def from_zero(values: Sequence[float] | Floats, unit: str = "") -> LinearScale:
    """Up to a round number at or above all of them."""
    highest = max((float(value) for value in values), default=0.0)
    step = _round_step(max(highest, 1.0) / 3)
    return LinearScale(0.0, max(1.0, math.ceil(highest / step - 1e-9) * step), unit)


def duration(seconds: float) -> str:
    """`3.2 ms`, `1.4 s`, `2 min 5 s`: two or three digits that matter."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if 0 < seconds < 1e-3:
        return f"{_digits(seconds * 1e6)} µs"
    if 0 < seconds < 1:
        return f"{_digits(seconds * 1e3)} ms"
    if seconds < 60:
        return f"{_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def number(value: float) -> str:
    """With a thin space between thousands; no needless zeros."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.3g}".replace(",", "\u202f") if abs(value) < 1000 else f"{value:,.0f}".replace(",", "\u202f")
    return f"{int(value):,}".replace(",", "\u202f")


def _digits(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, at least so much."""
    magnitude = 10.0 ** math.floor(math.log10(max(least, 1e-9)) + 1e-9)
    return next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= least * (1 - 1e-9))
