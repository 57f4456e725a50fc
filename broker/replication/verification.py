"""Core: are the replicas of a partition equal? Offsets, bytes and CRC of every batch, up to the high
watermark.

Takes batches from wherever they come: logs on this machine, or fetches from several brokers. Above the high
watermark replicas may differ; below the log start of any of them there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from protocol.records.batch import BatchHeader, crc_is_valid, read_header


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which the replicas are not one."""

    offset: int
    what: str

    def __str__(self) -> str:
        return f"at offset {self.offset}: {self.what}"


def first_difference(
    replicas: Mapping[str, Iterable[bytes]], start_offset: int, high_watermark: int
) -> Difference | None:
    """None if all replicas hold the same from `start_offset` up to `high_watermark`.

    `replicas` gives for each name its batches in order; those that end at or before `start_offset` are passed
    over. Raises `CorruptBatch` if something is no batch at all.
    """
    readers = {name: _between(batches, start_offset, high_watermark) for name, batches in replicas.items()}
    reached = start_offset
    while True:
        heads = {name: next(reader, None) for name, reader in readers.items()}
        present = {name: head for name, head in heads.items() if head is not None}
        if not present:
            return None
        (first_name, first), *others = present.items()
        reached = max(reached, first[0].base_offset)
        missing = [name for name, head in heads.items() if head is None]
        if missing:
            return Difference(reached, f"{', '.join(missing)} ends, {first_name} goes on")
        for name, head in present.items():
            if not crc_is_valid(head[1], 0, head[0]):
                return Difference(head[0].base_offset, f"wrong CRC in {name}")
        for name, (header, data) in others:
            if (header.base_offset, header.last_offset) != (first[0].base_offset, first[0].last_offset):
                return Difference(
                    min(header.base_offset, first[0].base_offset),
                    f"{first_name} has offsets {first[0].base_offset} to {first[0].last_offset}, "
                    f"{name} has {header.base_offset} to {header.last_offset}",
                )
            if data != first[1]:
                return Difference(header.base_offset, f"other bytes in {first_name} than in {name}")


def _between(batches: Iterable[bytes], start: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    for data in batches:
        header = read_header(data, 0)
        if header.base_offset >= end:
            return
        if header.last_offset >= start:
            yield header, bytes(data)
