"""Core: map from each key to the offset of its last record, with 24 bytes per key.

An entry is the MD5 of the key and an offset. All entries are in one bytearray with open addressing: first the slots
given by parts of the hash are tried, then the slots after the last of them. Keys are not kept, so two keys with the
same MD5 would be mixed up.
"""

from __future__ import annotations

import struct
from hashlib import md5

ENTRY_BYTES = 24
_HASH_BYTES = 16
_NOTHING = bytes(_HASH_BYTES)
_OFFSET = struct.Struct(">q")
_LAST_NUMBER = _HASH_BYTES - 4


class OffsetMap:
    """Records must be added in the order of their offsets; a later record replaces an earlier one with the same key."""

    __slots__ = ("_capacity", "_slots", "_table", "entries", "latest_offset")

    def __init__(self, memory_bytes: int, keys: int, load_factor: float) -> None:
        """Takes the memory for `keys` keys, but at most `memory_bytes`.

        The system allocates pages as they are touched, so few keys cost little. ValueError if not even one key fits.
        """
        load_factor = min(max(load_factor, 0.01), 1.0)
        wanted = int(max(keys, 1) / load_factor) + 1
        self._slots = min(memory_bytes // ENTRY_BYTES, wanted)
        # One slot stays free; otherwise the search for a missing key would not end.
        self._capacity = min(int(self._slots * load_factor), self._slots - 1)
        if self._capacity < 1:
            raise ValueError(
                f"{memory_bytes} bytes are too few for a single key: raise log.cleaner.dedupe.buffer.size or lower "
                "log.cleaner.threads"
            )
        self._table = bytearray(self._slots * ENTRY_BYTES)
        self.entries = 0
        self.latest_offset = -1
        """Everything up to this offset is in the map."""

    @property
    def is_full(self) -> bool:
        """True if no new key will be accepted; known keys can still be updated."""
        return self.entries >= self._capacity

    @property
    def utilization(self) -> float:
        return self.entries / self._slots

    @property
    def size_bytes(self) -> int:
        return len(self._table)

    def put(self, key: bytes, offset: int) -> None:
        """Must not be called when it is full."""
        digest = md5(key, usedforsecurity=False).digest()
        table = self._table
        at = int.from_bytes(digest[:4], "big") % self._slots * ENTRY_BYTES
        found = table[at : at + _HASH_BYTES]
        if found not in (digest, _NOTHING):
            at = self._probe(digest)
            found = table[at : at + _HASH_BYTES]
        if found == _NOTHING:
            table[at : at + _HASH_BYTES] = digest
            self.entries += 1
        _OFFSET.pack_into(table, at + _HASH_BYTES, offset)
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """Offset of the key's last record; -1 if it has none."""
        digest = md5(key, usedforsecurity=False).digest()
        table = self._table
        at = int.from_bytes(digest[:4], "big") % self._slots * ENTRY_BYTES
        found = table[at : at + _HASH_BYTES]
        if found not in (digest, _NOTHING):
            at = self._probe(digest)
            found = table[at : at + _HASH_BYTES]
        if found == _NOTHING:
            return -1
        offset: int = _OFFSET.unpack_from(table, at + _HASH_BYTES)[0]
        return offset

    def _probe(self, digest: bytes) -> int:
        """Slot of `digest`, or the free slot for it; the table is never full, so there is one."""
        table, slots = self._table, self._slots
        slot = 0
        for start in range(1, _LAST_NUMBER + 1):
            slot = int.from_bytes(digest[start : start + 4], "big") % slots
            at = slot * ENTRY_BYTES
            found = table[at : at + _HASH_BYTES]
            if found in (digest, _NOTHING):
                return at
        while True:
            slot = (slot + 1) % slots
            at = slot * ENTRY_BYTES
            found = table[at : at + _HASH_BYTES]
            if found in (digest, _NOTHING):
                return at
