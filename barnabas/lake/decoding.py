"""Core: the records in one partition of a Fetch response, as pieces for the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from barnabas.lake.pieces import Piece
from barnabas.pipeline.columns import Columns, Progress, Window, decode_columns
from barnabas.protocol.records.batch import iterate_batches

Convert = Callable[[int, Columns], tuple[Any, Any]]
"""(partition, records) to (rows, dead letters), pyarrow Tables or None. Runs in a worker thread."""


def decoded(
    convert: Convert, partition: int, begin: int, records: Any, aborted: Sequence[tuple[int, int]]
) -> tuple[list[Piece], int]:
    """The pieces of one response, and the offset after it. CorruptBatch."""
    progress = Progress(begin)
    pieces = []
    epoch = None
    for _, header in iterate_batches(records):
        epoch = header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
    window = Window(from_offset=begin)
    for columns in decode_columns(records, window, aborted=aborted, include_headers=True, progress=progress):
        rows, dead_letters = convert(partition, columns)
        # Several pieces may be of one group of batches: a piece ends with its last record.
        pieces.append(Piece(partition, int(columns.offsets[-1]) + 1, rows, dead_letters))
    if not pieces or pieces[-1].next_offset < progress.next_offset:
        # Markers, aborted records, and offsets that compaction removed.
        pieces.append(Piece(partition, progress.next_offset))
    # Only the last piece ends where the last batch ends.
    pieces[-1] = replace(pieces[-1], leader_epoch=epoch)
    return pieces, progress.next_offset
