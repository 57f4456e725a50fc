"""Core: the delivery time that a producer gives a record, in one of two headers. Kafka has no such thing.

`deliver-at` is a time in milliseconds since the epoch, `deliver-after` a span from the arrival of the batch: in
milliseconds, or a duration of ISO 8601 (`PT1M30S`, `P1D`). A number is decimal text, or 8 bytes, big endian.
"""

from __future__ import annotations

import re
import struct
from array import array
from typing import Final

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.layout import Headers, walk
from barnabas.protocol.records.record_check import MOST_RECORD_ERRORS, RecordsRefused

DELIVER_AT: Final = "deliver-at"
DELIVER_AFTER: Final = "deliver-after"
HEADER_HINT: Final = b"deliver-a"
"""Records without these bytes have neither header."""
AT_ONCE: Final = -1
"""The delivery time of a record without one."""

_INT64 = struct.Struct(">q")
_DIGITS = re.compile(rb"\d{1,18}")
_DURATION = re.compile(
    rb"P(?=.)(?:(\d{1,9})D)?(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:[.,](\d{1,9}))?S)?)?", re.IGNORECASE
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def delivery_time_ms(headers: Headers, now_ms: int, most_ms: int) -> int:
    """Milliseconds since the epoch; `AT_ONCE` without such a header, or if the time is not after `now_ms`.

    `most_ms` is the longest delay that the topic allows. ValueError says what is wrong.
    """
    found = [(name, value) for name, value in headers if name in (DELIVER_AT, DELIVER_AFTER)]
    if not found:
        return AT_ONCE
    if len(found) > 1:
        raise ValueError(f"a record has one header {DELIVER_AT} or {DELIVER_AFTER} at most; got {len(found)}")
    name, value = found[0]
    time_ms = _number(value)
    if name == DELIVER_AFTER:
        if time_ms is None:
            time_ms = _duration_ms(value)
        if time_ms is None:
            raise ValueError(
                f"{DELIVER_AFTER} must be milliseconds (decimal text or 8 bytes) or a duration such as PT5S; "
                f"got {_shown(value)}"
            )
        time_ms += now_ms
    elif time_ms is None:
        raise ValueError(
            f"{DELIVER_AT} must be milliseconds since the epoch (decimal text or 8 bytes); got {_shown(value)}"
        )
    if time_ms - now_ms > most_ms:
        raise ValueError(
            f"{name} asks for a delay of {time_ms - now_ms} ms; "
            f"at most {most_ms} are allowed (barnabas.delayed.delivery.max.ms)"
        )
    return time_ms if time_ms > now_ms else AT_ONCE


def _number(value: bytes | None) -> int | None:
    """None if it is neither decimal text nor 8 bytes of a number that is not negative."""
    if value is None:
        return None
    if _DIGITS.fullmatch(value):
        return int(value)
    if len(value) != _INT64.size:
        return None
    number: int = _INT64.unpack(value)[0]
    # Text of 8 letters is no number: it would be beyond any time.
    return number if 0 <= number < 1 << 60 else None


def _duration_ms(value: bytes | None) -> int | None:
    match = None if value is None else _DURATION.fullmatch(value)
    if match is None:
        return None
    *wholes, part = match.groups()
    total = sum(int(whole) * unit for whole, unit in zip(wholes, _UNITS_MS, strict=True) if whole is not None)
    return total if part is None else total + int((part + b"000")[:3])


def _shown(value: bytes | None) -> str:
    return "null" if value is None else repr(value[:40])


def delivery_times(
    payload: bytes, records_count: int, base_timestamp: int, now_ms: int, most_ms: int
) -> array[int] | None:
    """The delivery time of each record of a batch, by its records without compression; None if all of them are due.

    Raises `RecordsRefused` (INVALID_RECORD), which names the records with a wrong header.
    """
    if HEADER_HINT not in payload:
        return None
    fields, _ = walk(payload, 0, records_count, 0, base_timestamp)
    times: array[int] = array("q")
    errors: list[tuple[int, str]] = []
    count = 0
    for place, record in enumerate(fields):
        try:
            times.append(delivery_time_ms(record[4], now_ms, most_ms) if record[4] else AT_ONCE)
        except ValueError as error:
            count += 1
            if len(errors) < MOST_RECORD_ERRORS:
                errors.append((place, str(error)))
    if errors:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD, f"{count} records have a wrong delivery time, first: {errors[0][1]}", errors
        )
    return times if any(time != AT_ONCE for time in times) else None


def refuse_transactional() -> KafkaError:
    """Its end would have to be known at the delivery, which may be days later."""
    return KafkaError(
        ErrorCode.INVALID_RECORD, f"a record of a transaction cannot have a header {DELIVER_AT} or {DELIVER_AFTER}"
    )
