"""Finds the first record of a batch with some timestamp or a later one, without making records of the others.

Logs also contain batches from before leaders checked them, so a search is bounded.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.records import scan
from barnabas.protocol.records.batch import BatchHeader, CorruptBatch
from barnabas.protocol.records.compression import UnfoldsTooFar
from barnabas.protocol.records.record import payload_of

MOST_RECORDS: Final = 50_000
MOST_BYTES: Final = 4 << 20
"""Limits of one unfolded batch: more cannot be searched in one step of the event loop."""

_AFTER_ALL: Final = 1 << 64


class TooLargeToSearch(Exception):
    """The batch unfolds to more bytes, or claims more records, than are searched."""


def first_record_at(batch: bytes, header: BatchHeader, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record from `from_offset` on with this timestamp or a later one.

    Raises `TooLargeToSearch`, and `CorruptBatch` if the batch is malformed up to there.
    """
    view = memoryview(batch)
    if header.magic != 2:
        from barnabas.protocol.records.legacy import decode_legacy

        try:
            records = decode_legacy(view, header, MOST_BYTES)
        except UnfoldsTooFar:
            raise TooLargeToSearch from None
        places = ((offset, found) for offset, found, *_ in records)
        return next((each for each in places if each[0] >= from_offset and each[1] >= timestamp), None)
    if header.records_count > MOST_RECORDS:
        raise TooLargeToSearch
    try:
        data = payload_of(view, header, 0, max(MOST_BYTES, len(batch)))
    except UnfoldsTooFar:
        raise TooLargeToSearch from None
    append_time = header.max_timestamp if header.is_log_append_time else None
    if append_time is not None and append_time < timestamp:
        return None
    # With the broker's time every record has that: the first one behind the offset is looked for.
    latest = timestamp - 1 - header.base_timestamp if append_time is None else -_AFTER_ALL
    position = passed = 0
    while passed < header.records_count:
        left = header.records_count - passed
        try:
            more, position, offset_delta, delta, _ = scan.seek(data, position, left, -_AFTER_ALL, latest, False)
        except IndexError:
            raise CorruptBatch(f"the records of the batch at offset {header.base_offset} end too soon") from None
        passed += more
        if offset_delta >= 0 and header.base_offset + offset_delta >= from_offset:
            found = header.base_timestamp + delta if append_time is None else append_time
            return header.base_offset + offset_delta, found
    return None
