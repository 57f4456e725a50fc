"""Functions that generated readers and writers call in rare cases, and loops over varints and tagged fields."""

from __future__ import annotations

from typing import Any, NoReturn

from barnabas.protocol.errors import MalformedMessage, TooManyElements, UnsupportedFieldError

MOST_ELEMENTS = 1 << 18
"""Elements of arrays, and tagged fields, of all levels together that a message may have unless it is a response. An
element of two bytes on the wire takes a hundred in memory."""


def cut_short() -> NoReturn:
    raise MalformedMessage("a length reaches beyond the end of the message")


LONGEST_STRING_BYTES = 0x7FFF
"""Longest string in messages from outside, in any encoding: Kafka's own readers refuse longer ones, and records with
older encodings cannot carry them."""


def too_many(most: int) -> NoReturn:
    raise TooManyElements(f"more than {most} elements in one message")


def string_too_long(name: str, size_bytes: int) -> NoReturn:
    raise MalformedMessage(f"{name} is {size_bytes} bytes long, at most {LONGEST_STRING_BYTES} are allowed")


def null_not_allowed(name: str) -> NoReturn:
    raise MalformedMessage(f"{name} is null or has a negative length")


def wrong_marker(name: str) -> NoReturn:
    raise MalformedMessage(f"{name} has a wrong null marker")


def unsupported_field(name: str, version: int) -> NoReturn:
    raise UnsupportedFieldError(f"{name} cannot be carried by version {version}")


def wrong_uuid(name: str) -> NoReturn:
    raise TypeError(f"{name} is not 16 bytes long")


def long_varint(b: Any, p: int, n: int) -> tuple[int, int]:
    """The unsigned varint whose first byte, just before `p`, was `n` with its top bit set."""
    n &= 0x7F
    shift = 7
    while True:
        byte = b[p]
        p += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 or n > 0xFFFFFFFF:
                raise MalformedMessage("a varint is longer than its value needs, or too large")
            return n, p
        shift += 7
        if shift > 28:
            raise MalformedMessage("a varint does not end")


def long_length(b: Any, p: int, n: int) -> tuple[int, int]:
    """A compact length (one more than the size) whose first byte was not in 1..127."""
    if n == 0:
        raise MalformedMessage("a field that may not be null is null")
    return long_varint(b, p, n)


def read_varint(b: Any, p: int) -> tuple[int, int]:
    """An unsigned varint at `p`."""
    n = b[p]
    return (n, p + 1) if n < 0x80 else long_varint(b, p + 1, n)


def read_unknown_tags(b: Any, p: int, e: int, count: int) -> tuple[dict[int, bytes], int]:
    """The `count` tagged fields of a struct that knows none."""
    unknown: dict[int, bytes] = {}
    last = -1
    for _ in range(count):
        last, p, q = read_tag(b, p, e, last)
        unknown[last] = bytes(b[p:q])
        p = q
    return unknown, p


def read_tag(b: Any, p: int, e: int, last: int) -> tuple[int, int, int]:
    """(tag, start, end) of the tagged field at `p`; tags must rise from `last`."""
    tag, size = b[p], b[p + 1]
    if tag < 0x80 and size < 0x80:
        p += 2
    else:
        tag, p = read_varint(b, p)
        size, p = read_varint(b, p)
    if tag <= last:
        raise MalformedMessage("tagged fields are not in rising order")
    if size > e - p:
        cut_short()
    return tag, p, p + size


def tag_size_differs() -> NoReturn:
    raise MalformedMessage("the size of a tagged field does not match its content")


def put_varint(c: bytearray, p: int, n: int) -> int:
    """Write the unsigned varint `n` at `p`; returns the position after it."""
    while n > 127:
        c[p] = (n & 0x7F) | 0x80
        n >>= 7
        p += 1
    c[p] = n
    return p + 1


def put_tags(c: bytearray, p: int, known: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> int:
    """Write count and tagged fields in rising order."""
    if unknown:
        known = sorted([*known, *unknown.items()])
    p = put_varint(c, p, len(known))
    for tag, data in known:
        size = len(data)
        if tag < 128 and size < 128:
            c[p], c[p + 1] = tag, size
            p += 2
        else:
            p = put_varint(c, put_varint(c, p, tag), size)
        c[p : p + size] = data
        p += size
    return p
