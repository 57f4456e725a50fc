"""Core: batches as rows for an audit, one row for each batch of a log.

All columns come from the batch header, except for the digest of all bytes: replicas with equal digests hold the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.pipeline.log_files import Chunk
from barnabas.pipeline.log_transactions import AbortedBatches
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.control import read_end_txn

COMMIT, ABORT, OTHER_CONTROL = "commit", "abort", "control"

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("node", pa.int32()),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("records", pa.int32()),
        pa.field("size_bytes", pa.int32()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int32()),
        pa.field("base_sequence", pa.int32()),
        pa.field("last_sequence", pa.int32()),
        pa.field("max_timestamp", pa.int64()),
        pa.field("compression", pa.int32()),
        pa.field("transactional", pa.bool_()),
        pa.field("marker", pa.string()),
        pa.field("aborted", pa.bool_()),
        pa.field("digest", pa.int64()),
    ]
)
SPARK_SCHEMA = (
    "topic string, partition int, node int, base_offset long, last_offset long, records int, size_bytes int,"
    " leader_epoch int, producer_id long, producer_epoch int, base_sequence int, last_sequence int,"
    " max_timestamp long, compression int, transactional boolean, marker string, aborted boolean, digest long"
)


class LogIdentity(NamedTuple):
    """One replica's log."""

    topic: str
    partition: int
    node_id: int


def batch_rows(
    log: LogIdentity, chunks: Iterable[Chunk], aborted: AbortedBatches, wanted: Callable[[BatchHeader], bool]
) -> Iterator[Any]:
    """pyarrow RecordBatches of SCHEMA with the batches that are `wanted`, one for each chunk."""
    for chunk in chunks:
        rows = [
            _row(log, chunk.data, batch.position, batch.header, aborted)
            for batch in chunk.batches
            if wanted(batch.header)
        ]
        if rows:
            columns = list(zip(*rows, strict=True))
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _row(
    log: LogIdentity, data: memoryview, position: int, header: BatchHeader, aborted: AbortedBatches
) -> tuple[Any, ...]:
    marker = None
    if header.is_control:
        end = read_end_txn(data, position)
        marker = OTHER_CONTROL if end is None else COMMIT if end.committed else ABORT
    whole = data[position : position + header.size_bytes]
    return (
        *log,
        header.base_offset,
        header.last_offset,
        header.records_count,
        header.size_bytes,
        header.partition_leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.max_timestamp,
        header.compression,
        header.is_transactional,
        marker,
        aborted.has(header),
        int.from_bytes(blake2b(whole, digest_size=8).digest(), "big", signed=True),
    )
