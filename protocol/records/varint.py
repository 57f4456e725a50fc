"""Zigzag varints of record format v2: 1-5 bytes for an int32, 1-10 for an int64; small numbers of either sign
take few.

The loops over records read and write the short ones in line and come here for the rest.
"""

from __future__ import annotations

from protocol.records.batch import CorruptBatch

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it). `CorruptBatch` if wider than 32 bits, IndexError if `data` ends within."""
    return _read(data, position, MAX_VARINT_BYTES, 32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it). `CorruptBatch` if wider than 64 bits, IndexError if `data` ends within."""
    return _read(data, position, MAX_VARLONG_BYTES, 64)


def _read(data: bytes, position: int, max_bytes: int, width: int) -> tuple[int, int]:
    raw = 0
    for index in range(max_bytes):
        byte = data[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if raw >> width:
                break
            return (raw >> 1) ^ -(raw & 1), position + index + 1
    raise CorruptBatch(f"a varint wider than {width} bits")


def encode_varint(value: int) -> bytes:
    """Any integer of at most 64 bits, signed."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    if raw < 0x80:
        return bytes((raw,))
    if raw < 0x4000:
        return bytes((raw & 0x7F | 0x80, raw >> 7))
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def varint_size(value: int) -> int:
    """Bytes that `encode_varint` gives."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    return max(1, (raw.bit_length() + 6) // 7)
