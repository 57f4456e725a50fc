"""Core: reads the elements of DER (X.690)."""

from __future__ import annotations

from collections.abc import Iterator


def elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(tag, whole, content) of each element. Raises ValueError."""
    position = 0
    while position < len(data):
        if position + 2 > len(data):
            raise ValueError("it ends too early")
        tag, size, start = data[position], data[position + 1], position + 2
        if size & 0x80:
            width = size & 0x7F
            size = int.from_bytes(data[start : start + width], "big")
            start += width
        if start + size > len(data):
            raise ValueError("it ends too early")
        yield tag, data[position : start + size], data[start : start + size]
        position = start + size
