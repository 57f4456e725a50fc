"""Core: a reader hands on pieces: rows of one partition, and the offset after them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.lake.progress import Ranges


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one partition in the order of their offsets."""

    partition: int
    next_offset: int
    """The offset after all that was read, records or not."""
    rows: Any | None = None
    """A pyarrow Table in the schema of the table; None without records."""
    dead_letters: Any | None = None
    """A pyarrow Table of records that do not fit (`dead_letters.SCHEMA`); None without any."""
    skipped: tuple[int, int] | None = None
    """A range that was lost, and skipped on request."""
    leader_epoch: int | None = None
    """Leader epoch of the last record; None: unknown."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The pieces of one commit."""

    offsets: Mapping[int, int]
    """Next offsets of the partitions that moved on."""
    rows: tuple[Any, ...] = ()
    """pyarrow Tables: by partition, and in the order of offsets within each."""
    dead_letters: tuple[Any, ...] = ()
    skipped: Mapping[int, Ranges] = field(default_factory=dict)
    leader_epochs: Mapping[int, int | None] = field(default_factory=dict)
    """Leader epoch before the next offset; None: unknown."""


def batch_of(pieces: Iterable[Piece]) -> Batch:
    """Pieces of any partitions, each partition's in order, as one batch."""
    by_partition: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_partition.setdefault(piece.partition, []).append(piece)
    ordered = [piece for _, each in sorted(by_partition.items()) for piece in each]
    skipped = {
        partition: tuple(piece.skipped for piece in each if piece.skipped is not None)
        for partition, each in by_partition.items()
    }
    return Batch(
        {partition: each[-1].next_offset for partition, each in sorted(by_partition.items())},
        tuple(piece.rows for piece in ordered if piece.rows is not None),
        tuple(piece.dead_letters for piece in ordered if piece.dead_letters is not None),
        {partition: ranges for partition, ranges in sorted(skipped.items()) if ranges},
        {partition: each[-1].leader_epoch for partition, each in by_partition.items()},
    )


def size_bytes(pieces: Sequence[Piece]) -> int:
    """Memory of the rows and dead letters."""
    return sum(rows.nbytes for each in pieces for rows in (each.rows, each.dead_letters) if rows is not None)
