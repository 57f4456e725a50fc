"""The hash by which keys are spread over partitions. Clients and brokers share it."""

from __future__ import annotations

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_MASK32 = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """The hash with which Kafka's clients spread keys: 32 bits with Kafka's seed, unsigned."""
    length = len(data)
    total = _SEED ^ length
    for position in range(0, length & ~3, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MIX & _MASK32
        word = (word ^ word >> 24) * _MIX & _MASK32
        total = total * _MIX & _MASK32 ^ word
    tail = data[length & ~3 :]
    if tail:
        total = (total ^ int.from_bytes(tail, "little")) * _MIX & _MASK32
    total = (total ^ total >> 13) * _MIX & _MASK32
    return total ^ total >> 15
