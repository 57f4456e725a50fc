"""Damage to the files of a node that does not run.

In data logs only what the node had not made durable is hit: below its recovery point nobody looks again for what the
disk had promised to keep, here as in Kafka, and no replication mends it. Of each partition the newest segment is cut
only, as any crash may do. Nor are the offsets and epochs in the heads of batches hit: no checksum covers them, here as
in Kafka, and a reader believes another one there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from barnabas.protocol.records.batch import OFFSET_AND_SIZE_BYTES, BatchHeader, CorruptBatch, iterate_batches
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.world import Chance
from barnabas.storage.checkpoints import RECOVERY_POINT_CHECKPOINT, MalformedCheckpoint, read_offsets
from nemeses.choosing import happens
from worlds.cluster import Damage

_BASE_OFFSET_BYTES = 8
_HEAD_BYTES = 16
"""Base offset, size, leader epoch."""


def damage_files(directory: Path, damage: Damage, chance: Chance) -> list[str]:
    """Damages the files of a node; returns a line for each. `directory` is its log directory."""
    damaged = []
    for path in _newest(sorted(directory.glob(damage.pattern))):
        size = path.stat().st_size
        if damage.kind == "truncate" and size:
            with path.open("r+b") as file:
                file.truncate(max(0, size - damage.bytes_))
            damaged.append(f"{path.relative_to(directory)}: {size} bytes, now {max(0, size - damage.bytes_)}")
        elif damage.kind == "flip":
            start = _durable_bytes(directory, path)
            places = _flip(path, start, damage.probability, chance)
            if places:
                where = f"a bit of each of {len(places)} bytes, the first at {places[0]}"
                damaged.append(f"{path.relative_to(directory)}: {where}")
    return damaged


def _newest(paths: Sequence[Path]) -> Iterator[Path]:
    """The last of each kind in each directory: segments are named by their first offsets."""
    last: dict[tuple[Path, str], Path] = {}
    for path in paths:
        if path.is_file():
            last[path.parent, path.suffix] = path
    yield from last.values()


def _flip(path: Path, start: int, probability: float, chance: Chance) -> list[int]:
    data = bytearray(path.read_bytes())
    places = [place for place in covered_places(bytes(data), start) if happens(chance, probability)]
    for place in places:
        data[place] ^= 1 << chance.randrange(0, 8)
    if places:
        path.write_bytes(data)
    return places


def _durable_bytes(directory: Path, path: Path) -> int:
    """Bytes of a segment below the recovery point of its partition; 0 for any other file."""
    topic, dash, index = path.parent.name.rpartition("-")
    if path.suffix != ".log" or not dash or not index.isdigit():
        return 0
    try:
        points = read_offsets(RealDisk(), str(directory / RECOVERY_POINT_CHECKPOINT))
    except (OSError, MalformedCheckpoint):
        return 0
    recovery_point = points.get((topic, int(index)), 0)
    return bytes_below(path.read_bytes(), recovery_point)


def bytes_below(data: bytes, offset: int) -> int:
    """Bytes of a segment that hold the records below an offset."""
    end = 0
    for position, header in _readable_batches(data):
        if header.base_offset >= offset:
            break
        end = position + header.batch_length + OFFSET_AND_SIZE_BYTES
    return end


def _readable_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Stops at the first byte that is no batch, after a power cut or other damage: recovery cuts the log there."""
    with suppress(CorruptBatch):
        yield from iterate_batches(data)


def covered_places(data: bytes, start: int) -> Iterator[int]:
    """The bytes of a file from `start` on that a checksum covers, or whose change is seen without one."""
    heads = [position for position, _ in _readable_batches(data)]
    following = 0
    for place in range(start, len(data)):
        while following < len(heads) and heads[following] <= place:
            following += 1
        inside = place - heads[following - 1] if following else _HEAD_BYTES
        if not (inside < _BASE_OFFSET_BYTES or _BASE_OFFSET_BYTES + 4 <= inside < _HEAD_BYTES):
            yield place
