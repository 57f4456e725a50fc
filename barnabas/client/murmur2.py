"""The hash by which Kafka's clients spread keys over partitions: murmur2 of 32 bits with Kafka's seed."""

from __future__ import annotations

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_MASK32 = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """The hash as an unsigned number."""
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


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """The partition that every Kafka client chooses for `key`."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions_count
