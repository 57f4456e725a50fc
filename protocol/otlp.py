"""Core: the metrics that clients push, in OpenTelemetry's protobuf format (`MetricsData`, OTLP 1).

Only the kinds that KIP-714 uses: gauges and sums of single numbers. Others are ignored when read. Knows no clients.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

MAX_POINTS = 2_000
"""Most points in one push. Kafka's own clients send some hundreds."""

MAX_BYTES = 4 << 20
"""Most bytes of one push, decompressed. A point takes some hundreds."""

MAX_ATTRIBUTES = 64
"""Most attributes of one point. Kafka's own clients send at most four."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA, _CUMULATIVE = 1, 2
_NANOSECONDS_PER_MS = 1_000_000

Value = int | memoryview
"""The value of a field: a number, its eight or four bytes, or a length-delimited slice."""


class MalformedTelemetry(Exception):
    """The bytes are not valid metrics."""


class Point(NamedTuple):
    """One number of one metric."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool
    """True if `value` is to be added to the previous one."""


def read_metrics(data: bytes) -> list[Point]:
    """All points. Raises MalformedTelemetry."""
    points: list[Point] = []
    if len(data) > MAX_BYTES:
        raise MalformedTelemetry(f"more than {MAX_BYTES} bytes")
    try:
        for resource in _messages(memoryview(data), 1):
            for scope in _messages(resource, 2):
                for metric in _messages(scope, 2):
                    for point in _points_of(metric):
                        points.append(point)
                        if len(points) > MAX_POINTS:
                            raise MalformedTelemetry(f"more than {MAX_POINTS} points")
    except UnicodeDecodeError:
        raise MalformedTelemetry("a string is not UTF-8") from None
    return points


def _points_of(metric: memoryview) -> Iterator[Point]:
    name, gauges, sums = "", list[memoryview](), list[memoryview]()
    for number, value in _fields(metric):
        if isinstance(value, memoryview):
            if number == 1:
                name = bytes(value).decode()
            elif number == 5:
                gauges.append(value)
            elif number == 7:
                sums.append(value)
    for kind in gauges:
        yield from (_point(name, point, False) for point in _messages(kind, 1))
    for kind in sums:
        temporality = [value for number, value in _fields(kind) if number == 2]
        is_delta = temporality[-1:] == [_DELTA]
        yield from (_point(name, point, is_delta) for point in _messages(kind, 1))


def _point(name: str, data: memoryview, is_delta: bool) -> Point:
    value, attributes = 0.0, []
    for number, field in _fields(data):
        if number == 4 and isinstance(field, memoryview) and len(field) == 8:
            (value,) = struct.unpack("<d", field)
        elif number == 6 and isinstance(field, memoryview) and len(field) == 8:
            (value,) = struct.unpack("<q", field)
        elif number == 7 and isinstance(field, memoryview):
            attributes.append(_attribute(field))
            if len(attributes) > MAX_ATTRIBUTES:
                raise MalformedTelemetry(f"more than {MAX_ATTRIBUTES} attributes of a point")
    return Point(name, tuple(sorted(attributes)), value, is_delta)


def _attribute(data: memoryview) -> tuple[str, str]:
    key, text = "", ""
    for number, field in _fields(data):
        if number == 1 and isinstance(field, memoryview):
            key = bytes(field).decode()
        elif number == 2 and isinstance(field, memoryview):
            for kind, value in _fields(field):
                if kind == 1 and isinstance(value, memoryview):
                    text = bytes(value).decode()
                elif kind in (2, 3) and isinstance(value, int):
                    text = str(value)
    return key, text


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """The messages of a repeated field."""
    for number, value in _fields(data):
        if number == wanted and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise MalformedTelemetry(f"unknown wire type {kind}")
        if size > end - position:
            raise MalformedTelemetry("a field is longer than the message")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise MalformedTelemetry("a varint is incomplete")


# -- writing


class Sample(NamedTuple):
    """One number to be written."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_sum: bool = False
    """A monotonic sum; otherwise a gauge."""


def write_metrics(
    samples: Iterable[Sample],
    resource: Mapping[str, str],
    *,
    is_delta: bool,
    began_ms: int,
    now_ms: int,
) -> bytes:
    """`MetricsData`. `resource` describes the client; `is_delta`: sums count from `began_ms`, in wall time."""
    times = _fixed64(2, began_ms * _NANOSECONDS_PER_MS), _fixed64(3, now_ms * _NANOSECONDS_PER_MS)
    metrics = b"".join(_message(2, _metric(sample, times, is_delta)) for sample in samples)
    described = b"".join(_message(1, _key_value(key, text)) for key, text in resource.items())
    return _message(1, _message(1, described) + _message(2, metrics))


def _metric(sample: Sample, times: tuple[bytes, bytes], is_delta: bool) -> bytes:
    began, now = times
    attributes = b"".join(_message(7, _key_value(key, text)) for key, text in sample.attributes)
    point = now + _tag(4, _FIXED64) + struct.pack("<d", sample.value) + attributes
    name = _message(1, sample.name.encode())
    if not sample.is_sum:
        return name + _message(5, _message(1, point))
    temporality = _tag(2, _VARINT) + bytes([_DELTA if is_delta else _CUMULATIVE])
    is_monotonic = _tag(3, _VARINT) + b"\x01"
    return name + _message(7, _message(1, began + point) + temporality + is_monotonic)


def _key_value(key: str, text: str) -> bytes:
    return _message(1, key.encode()) + _message(2, _message(1, text.encode()))


def _message(number: int, data: bytes) -> bytes:
    return _tag(number, _BYTES) + _write_varint(len(data)) + data


def _fixed64(number: int, value: int) -> bytes:
    return _tag(number, _FIXED64) + struct.pack("<Q", value)


def _tag(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])


def _write_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
