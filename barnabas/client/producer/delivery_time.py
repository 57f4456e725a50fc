"""Core: the header of a record that is delivered later, for topics with `barnabas.delayed.delivery.enable`."""

from __future__ import annotations

from datetime import datetime, timedelta

from barnabas.protocol.records.delivery_time import DELIVER_AFTER, DELIVER_AT

_MILLISECOND = timedelta(milliseconds=1)


def delivery_header(
    *, deliver_at: datetime | int | None = None, deliver_after: timedelta | int | None = None
) -> tuple[str, bytes]:
    """The header for one of them: a time with a zone, or in milliseconds since the epoch; or a span, or milliseconds.

    Other brokers than Barnabas deliver the record at once. ValueError for a negative value, a time without a zone, or
    if not exactly one is given.
    """
    if (deliver_at is None) == (deliver_after is None):
        raise ValueError("a record has either deliver_at or deliver_after")
    if deliver_at is not None:
        return _header(DELIVER_AT, _time_ms(deliver_at) if isinstance(deliver_at, datetime) else deliver_at)
    span = deliver_after // _MILLISECOND if isinstance(deliver_after, timedelta) else deliver_after
    assert span is not None
    return _header(DELIVER_AFTER, span)


def _time_ms(time: datetime) -> int:
    if time.tzinfo is None:
        raise ValueError(f"deliver_at must have a time zone; got {time}")
    return (time - datetime.fromtimestamp(0, time.tzinfo)) // _MILLISECOND


def _header(name: str, value_ms: int) -> tuple[str, bytes]:
    if value_ms < 0:
        raise ValueError(f"{name} must not be negative; got {value_ms} ms")
    return name, str(value_ms).encode()
