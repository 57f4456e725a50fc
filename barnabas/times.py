"""Core: times of records and decisions as text, in ISO 8601 and UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def moment_ms(text: str) -> int | None:
    """Milliseconds since 1970 of a date or time, in UTC unless it names a zone; None if it is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def time_text(time_ms: int) -> str | None:
    """`2026-08-01T12:00:00.000Z`; None for a time that has no such form."""
    if time_ms < 0:
        return None
    try:
        moment = _EPOCH + time_ms * _MILLISECOND
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_text(time_ms: int) -> str:
    """The time of day, `12:00:00.000`."""
    return (_EPOCH + time_ms * _MILLISECOND).strftime("%H:%M:%S.%f")[:-3]
