"""Core: the records that a share group leaves in its dead-letter topic, with the headers of KIP-1191."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.broker.shares.share_partition import DeadLetters
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.builder import build_batch, record_size_bytes
from barnabas.protocol.records.record import SERVED_LIMIT_BYTES, Fields, decode_fields

REJECTED = b"Offset rejected by client."
DELIVERED_TOO_OFTEN = b"Offset delivery count exceeded the threshold."
"""The messages of Kafka."""


class Origin(NamedTuple):
    """The share partition that the records come from."""

    group_id: str
    topic: str
    partition: int


def source_records(stretches: Iterable[bytes], wanted: Sequence[DeadLetters]) -> dict[int, Fields]:
    """The wanted records by offset, from stretches of the log. Raises `CorruptBatch`."""
    first, last = wanted[0].first_offset, wanted[-1].last_offset
    found: dict[int, Fields] = {}
    for data in stretches:
        for position, header in iterate_batches(data):
            if header.is_control or header.last_offset < first or header.base_offset > last:
                continue
            for record in decode_fields(data, position, max(SERVED_LIMIT_BYTES, header.size_bytes)):
                if first <= record[0] <= last:
                    found[record[0]] = record
    return found


class Letters(NamedTuple):
    batch: bytes
    covered: list[DeadLetters]
    """The records that the batch stands for: the first of the wanted ones."""


def build_letters(
    origin: Origin, wanted: Sequence[DeadLetters], copies: Mapping[int, Fields] | None, limit_bytes: int, now_ms: int
) -> Letters:
    """A batch of at most `limit_bytes`, or of one record. Without `copies` the letters have neither key nor value; a
    record that is not in the log any more has none either."""
    records: list[Fields] = []
    covered: list[DeadLetters] = []
    size = 0
    for each in wanted:
        for offset in range(each.first_offset, each.last_offset + 1):
            record = _letter(origin, each, offset, copies, now_ms)
            size += record_size_bytes(record[2], record[3], record[4])
            if records and size > limit_bytes:
                if offset > each.first_offset:
                    covered.append(each._replace(last_offset=offset - 1))
                return Letters(build_batch(records), covered)
            records.append(record)
        covered.append(each)
    return Letters(build_batch(records), covered)


def _letter(
    origin: Origin, each: DeadLetters, offset: int, copies: Mapping[int, Fields] | None, now_ms: int
) -> Fields:
    copy = None if copies is None else copies.get(offset)
    key, value, headers = (None, None, ()) if copy is None else copy[2:]
    message = REJECTED if each.is_rejected else DELIVERED_TOO_OFTEN
    return (
        0,
        now_ms,
        key,
        value,
        (
            *headers,
            ("__dlq.errors.topic", origin.topic.encode()),
            ("__dlq.errors.partition", str(origin.partition).encode()),
            ("__dlq.errors.offset", str(offset).encode()),
            ("__dlq.errors.group", origin.group_id.encode("utf-8", "surrogateescape")),
            ("__dlq.errors.delivery.count", str(each.delivery_count).encode()),
            ("__dlq.errors.message", message),
        ),
    )
