"""Core: times and durations on the command line."""

from __future__ import annotations

import re

from barnabas.cluster.errors import WrongArgument
from barnabas.times import moment_ms, time_text

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_ISO_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_PARTS = re.compile(r"(\d+)(ms|s|m|h|d|w)")


def parse_time(option: str, text: str) -> int:
    """Milliseconds since 1970 from `2026-08-01T12:00:00` with optional fraction and zone (default UTC), from a date,
    or from a number of milliseconds. Raises `WrongArgument`.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    time_ms = moment_ms(text)
    if time_ms is None:
        raise WrongArgument(f"{option} {text}: not a time, e.g. 2026-08-01T12:00:00 or 1785585600000")
    return time_ms


def parse_duration(option: str, text: str) -> int:
    """Milliseconds from `90s`, `1h30m`, `2d`, `500ms` or an ISO 8601 duration such as `PT1H30M`. Raises
    `WrongArgument`.
    """
    if (found := _ISO_DURATION.fullmatch(text)) and any(found.groups()) and not text.upper().endswith("T"):
        return round(sum(float(number) * _UNITS_MS[unit] for unit, number in found.groupdict().items() if number))
    parts = _PARTS.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
    raise WrongArgument(f"{option} {text}: not a duration, e.g. 90s, 1h30m, 2d or PT1H30M")


def iso_time(timestamp_ms: int) -> str:
    """`2026-08-01T12:00:00.000Z`, or `-` for a negative timestamp."""
    return "-" if timestamp_ms < 0 else time_text(timestamp_ms) or str(timestamp_ms)
