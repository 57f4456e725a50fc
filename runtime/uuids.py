"""Core: random ids for clusters, directories and nodes."""

from __future__ import annotations

from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.world import Chance

_RESERVED_IDS = 100
"""Ids below this number have meanings of their own in Kafka, such as "lost directory" (KIP-858)."""


def random_uuid(chance: Chance) -> bytes:
    """A random id that is not reserved, and whose text cannot be taken for a command-line option."""
    while True:
        drawn = bytearray(chance.randbytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        uuid = bytes(drawn)
        if int.from_bytes(uuid, "big") >= _RESERVED_IDS and not uuid_to_string(uuid).startswith("-"):
            return uuid
