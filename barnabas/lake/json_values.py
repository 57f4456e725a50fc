"""Core: JSON values that fit the columns of a table, or the reason why one does not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

Check = Callable[[Any, str], Any]
"""(value, its place) to the value for pyarrow. `Misfit`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 60


class Misfit(Exception):
    """A value does not fit; the message is one line with the place, what is expected and the value."""


def reader_of(fields: Iterable[Any]) -> Callable[[bytes], dict[str, Any]]:
    """A function from the bytes of an object to the values of these pyarrow fields. It raises `Misfit`.

    Fields that the object lacks are null; fields that the table does not have are left out.
    """
    check = _struct(list(fields))

    def read(data: bytes) -> dict[str, Any]:
        try:
            value = json.loads(data, parse_float=Decimal, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Misfit(f"no JSON: {error}") from None
        if not isinstance(value, dict):
            raise Misfit(f"expected a JSON object; got {_shown(value)}")
        found: dict[str, Any] = check(value, "")
        return found

    return read


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _check_of(kind: Any) -> Check:
    for is_it, make in _CHECKS:
        if is_it(kind):
            return make(kind)
    raise TypeError(f"no JSON value has the type {kind}")


def _nullable(check: Check) -> Check:
    return lambda value, place: None if value is None else check(value, place)


def _struct(fields: list[Any]) -> Check:
    checks = [(field.name, _nullable(_check_of(field.type))) for field in fields]

    def check(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit(place, "an object", value)
        return {name: inner(value.get(name), f"{place}.{name}" if place else name) for name, inner in checks}

    return check


def _list(kind: Any) -> Check:
    inner = _nullable(_check_of(kind.value_type))

    def check(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise _misfit(place, "a list", value)
        return [inner(each, f"{place}[{index}]") for index, each in enumerate(value)]

    return check


def _integer(kind: Any) -> Check:
    limit = 1 << (kind.bit_width - 1)

    def check(value: Any, place: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
            raise _misfit(place, f"a whole number of {kind.bit_width} bits", value)
        return value

    return check


def _real(kind: Any) -> Check:
    def check(value: Any, place: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise _misfit(place, "a number", value)
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if math.isinf(found):
            raise _misfit(place, "a number of 64 bits", value)
        return found

    return check


def _decimal(kind: Any) -> Check:
    step, limit = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def check(value: Any, place: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | Decimal) or not abs(Decimal(value)) < limit:
            raise _misfit(place, f"a decimal({kind.precision},{kind.scale})", value)
        number = Decimal(value)
        exponent = number.normalize().as_tuple().exponent
        if not isinstance(exponent, int) or -exponent > kind.scale:
            raise _misfit(place, f"a decimal({kind.precision},{kind.scale})", value)
        return number.quantize(step)

    return check


def _plain(kind: type, expected: str) -> Callable[[Any], Check]:
    def check(value: Any, place: str) -> Any:
        if not isinstance(value, kind):
            raise _misfit(place, expected, value)
        return value

    return lambda _: check


def _string(_: Any) -> Check:
    def check(value: Any, place: str) -> Any:
        if not isinstance(value, str):
            raise _misfit(place, "a string", value)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _misfit(place, "a string of whole characters", value) from None
        return value

    return check


def _date(_: Any) -> Check:
    def check(value: Any, place: str) -> Any:
        try:
            return date.fromisoformat(value)
        except (ValueError, TypeError):
            raise _misfit(place, 'a date such as "2026-08-01"', value) from None

    return check


def _timestamp(kind: Any) -> Check:
    has_zone = kind.tz is not None
    expected = (
        'a time with a zone such as "2026-08-01T12:00:00Z", or milliseconds since 1970'
        if has_zone
        else 'a time without a zone such as "2026-08-01T12:00:00", or milliseconds since 1970'
    )

    def check(value: Any, place: str) -> Any:
        try:
            if isinstance(value, int) and not isinstance(value, bool):
                moment = _EPOCH + timedelta(milliseconds=value)
                return moment if has_zone else moment.replace(tzinfo=None)
            found = datetime.fromisoformat(value)
        except (ValueError, TypeError, OverflowError):
            raise _misfit(place, expected, value) from None
        if (found.tzinfo is not None) is not has_zone:
            raise _misfit(place, expected, value)
        return found

    return check


_CHECKS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Check]], ...] = (
    (pa.types.is_boolean, _plain(bool, "true or false")),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _real),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _string),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_list, _list),
    (pa.types.is_struct, lambda kind: _struct(list(kind))),
)


def _misfit(place: str, expected: str, value: Any) -> Misfit:
    return Misfit(f"{place}: expected {expected}; got {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(str(value) if isinstance(value, Decimal) else value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
