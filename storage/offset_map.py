"""Which offset holds the last record of each key, in as little memory as can be had: 24 bytes a key. A core.

An entry is the MD5 of the key and an offset. All of them lie in one bytearray, found by open addressing:
first the numbers that the hash itself holds are tried, then the places after the last of those. Keys are
never kept; two keys of the same MD5 would be taken for one.
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
    """Give it the records in the order of their offsets; the later of two of one key wins."""

    __slots__ = ("_capacity", "_slots", "_table", "entries", "latest_offset")

    def __init__(self, memory_bytes: int, keys: int, load_factor: float) -> None:
        """Takes what `keys` keys need at most, but never more than `memory_bytes`.

        The system gives the memory page by page as it is touched, so few keys cost little. ValueError if not
        one key fits.
        """
        load_factor = min(max(load_factor, 0.01), 1.0)
        wanted = int(max(keys, 1) / load_factor) + 1
        self._slots = min(memory_bytes // ENTRY_BYTES, wanted)
        # One place stays free, or a search for a key that is not there would never end.
        self._capacity = min(int(self._slots * load_factor), self._slots - 1)
        if self._capacity < 1:
            raise ValueError(
                f"{memory_bytes} bytes hold no key: raise log.cleaner.dedupe.buffer.size or lower log.cleaner.threads"
            )
        self._table = bytearray(self._slots * ENTRY_BYTES)
        self.entries = 0
        self.latest_offset = -1
        """Everything up to here is in the map."""

    @property
    def is_full(self) -> bool:
        """Whether no other key will be taken; those that are known may still move on."""
        return self.entries >= self._capacity

    @property
    def utilization(self) -> float:
        return self.entries / self._slots

    @property
    def size_bytes(self) -> int:
        return len(self._table)

    def put(self, key: bytes, offset: int) -> None:
        """Only while it is not full."""
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
        """The offset of the key's last record; -1 if it has none here."""
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
        """Where the entry of `digest` is, or would be; the table is never full, so there is such a place."""
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
