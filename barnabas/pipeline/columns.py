"""Core: record batches to Arrow columns for Spark, without an object for each record.

Python handles each batch and finds the positions of its records (`record_positions`). numpy reads the fields of all
records of many batches at once, and Arrow copies their bytes. Formats older than v2 are decoded record by record, by
`protocol.records.record`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barnabas.client.aborted_producers import AbortedProducers
from barnabas.pipeline.record_positions import RecordPositions
from barnabas.pipeline.varints import Bytes, Ints, read_varints, read_varlongs
from barnabas.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    crc_is_valid,
    iterate_batches,
)
from barnabas.protocol.records.record import CLIENT_LIMIT_BYTES, SERVED_LIMIT_RECORDS, decode_fields, payload_of

Buffer = bytes | bytearray | memoryview

GROUP_BYTES = 4 * 1024 * 1024
"""Uncompressed size of batches decoded together: small enough for memory, large enough for numpy."""

END = 2**63 - 1
NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_MAX_TIMESTAMP_MS = END // 1000


class Window(NamedTuple):
    """The records to decode: ranges of offsets and of timestamps (ms), without their ends."""

    from_offset: int = 0
    until_offset: int = END
    from_timestamp: int = -END
    until_timestamp: int = END


@dataclass(frozen=True, slots=True)
class Columns:
    """Records in the order of their offsets. The arrays have one length."""

    offsets: Ints
    timestamps: Ints
    """Milliseconds; -1 if a record has none."""
    timestamp_types: npt.NDArray[np.int32]
    """0 create time, 1 log append time, -1 none (magic 0)."""
    keys: Any
    """pyarrow binary, as `values`."""
    values: Any
    headers: Any | None
    """pyarrow list of HEADER_TYPE, null if a record has none; None unless requested."""

    def __len__(self) -> int:
        return len(self.offsets)

    def record_batch(self, topic: str, partition: int) -> Any:
        """A pyarrow RecordBatch of `arrow_schema`."""
        count = len(self)
        micros = np.clip(self.timestamps, -_MAX_TIMESTAMP_MS, _MAX_TIMESTAMP_MS) * 1000
        arrays = [
            self.keys,
            self.values,
            _repeated(topic, count),
            pa.array(np.full(count, partition, dtype=np.int32)),
            pa.array(self.offsets),
            pa.Array.from_buffers(_TIMESTAMP, count, [None, pa.py_buffer(micros)]),
            pa.array(self.timestamp_types),
        ]
        if self.headers is not None:
            arrays.append(self.headers)
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self.headers is not None))


_TIMESTAMP = pa.timestamp("us", tz="UTC")
_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_SCHEMAS = (pa.schema(_FIELDS), pa.schema([*_FIELDS, pa.field("headers", pa.list_(HEADER_TYPE))]))


def arrow_schema(include_headers: bool) -> Any:
    """The schema of `Columns.record_batch`: the columns of Spark's own Kafka source, in its order."""
    return _SCHEMAS[include_headers]


ALL = Window()


class Progress:
    """The progress of a decoding; valid after each Columns that it yields."""

    def __init__(self, offset: int) -> None:
        self.next_offset = offset
        """The offset after all decoded batches, at which the next fetch begins. Because of compaction and markers it
        grows by more than the number of records."""
        self.is_at_end = False
        """Whether a batch starts after the window, so that nothing of the window follows."""


class _Wanted(NamedTuple):
    """A batch of format v2 with records to decode."""

    header: BatchHeader
    payload: Buffer


def decode_columns(
    buffer: Buffer,
    window: Window = ALL,
    *,
    aborted: Iterable[tuple[int, int]] | None = None,
    include_headers: bool = False,
    check_crcs: bool = True,
    progress: Progress | None = None,
) -> Iterator[Columns]:
    """The records in `buffer` that are in the window. An incomplete last batch is left out.

    `aborted` are (producer id, first offset) of aborted transactions, whose records are left out; None keeps them.
    Control batches never yield records. Decodes about GROUP_BYTES at a time. CorruptBatch if a batch is invalid.
    """
    progress = progress or Progress(window.from_offset)
    filtered = None if aborted is None else AbortedProducers(aborted)
    group: list[_Wanted] = []
    size_bytes = 0
    for place, header in iterate_batches(buffer):
        if header.magic == 2 and header.base_offset >= window.until_offset:
            progress.is_at_end = True
            break
        # Checked first: a corrupt batch must not pass for a marker, or for one outside the window.
        if check_crcs and not crc_is_valid(buffer, place, header):
            raise CorruptBatch(f"the CRC of the batch at offset {header.base_offset} is wrong")
        is_wanted = not header.is_control
        if filtered is not None and header.has_producer_id:
            is_wanted = not filtered.covers(buffer, place, header) and is_wanted
        if not is_wanted or header.last_offset < window.from_offset or not header.records_count:
            progress.next_offset = max(progress.next_offset, header.next_offset)
            continue
        if header.magic != 2:
            if group:
                yield from _read_group(group, window, include_headers)
                group, size_bytes = [], 0
            yield from _read_legacy(buffer, place, header, window, include_headers)
        else:
            payload = _payload(buffer, place, header)
            group.append(_Wanted(header, payload))
            size_bytes += len(payload)
        if size_bytes >= GROUP_BYTES:
            progress.next_offset = max(progress.next_offset, header.next_offset)
            yield from _read_group(group, window, include_headers)
            group, size_bytes = [], 0
        progress.next_offset = max(progress.next_offset, header.next_offset)
    if group:
        yield from _read_group(group, window, include_headers)


def _payload(buffer: Buffer, place: int, header: BatchHeader) -> Buffer:
    if not 0 <= header.records_count <= SERVED_LIMIT_RECORDS:
        raise CorruptBatch(f"a record count of {header.records_count} at offset {header.base_offset}")
    view = memoryview(buffer)
    if header.compression:
        return payload_of(view, header, place, max(CLIENT_LIMIT_BYTES, header.size_bytes))
    return view[place + BATCH_HEADER_BYTES : place + header.size_bytes]


def _read_group(group: Sequence[_Wanted], window: Window, include_headers: bool) -> Iterator[Columns]:
    """Decodes batches together; if that fails, one by one, to find the corrupt one."""
    try:
        columns = _read_together(group, window, include_headers)
    except (CorruptBatch, IndexError) as error:
        if len(group) > 1:
            for each in group:
                yield from _read_group([each], window, include_headers)
            return
        reason = error.message if isinstance(error, CorruptBatch) else "a record extends beyond the end"
        raise CorruptBatch(f"the batch at offset {group[0].header.base_offset}: {reason}") from None
    if len(columns):
        yield columns


def _read_together(group: Sequence[_Wanted], window: Window, include_headers: bool) -> Columns:
    data = bytes(group[0].payload) if len(group) == 1 else b"".join([each.payload for each in group])
    found = RecordPositions()
    position = 0
    for header, payload in group:
        end = position + len(payload)
        found.walk(data, position, end, header.records_count)
        position = end
    octets = np.frombuffer(data, dtype=np.uint8)
    counts = np.array([header.records_count for header, _ in group], dtype=np.int64)
    places = found.all()

    sizes, begins = read_varints(octets, places)
    ends = begins + sizes
    # After the length follows a byte of attributes, all unused.
    deltas, positions = read_varlongs(octets, begins + 1)
    timestamps, timestamp_types = _timestamps(group, counts, deltas)
    deltas, positions = read_varints(octets, positions)
    offsets = _per_record([header.base_offset for header, _ in group], counts) + deltas
    key_sizes, key_places = read_varints(octets, positions)
    value_sizes, value_places = read_varints(octets, _behind(key_places, key_sizes, ends))
    rest = _behind(value_places, value_sizes, ends)
    header_counts, rest = read_varints(octets, rest)
    if not header_counts.any():
        if (rest != ends).any():
            raise CorruptBatch("a record does not end at its length")
    elif (rest > ends).any() or (header_counts < 0).any() or (header_counts > ends - rest).any():
        # A header has at least two bytes.
        raise CorruptBatch("a record ends before its headers")

    chosen = _chosen(window, offsets, timestamps)
    if chosen is not None:
        offsets, timestamps, timestamp_types = offsets[chosen], timestamps[chosen], timestamp_types[chosen]
        key_places, key_sizes = key_places[chosen], key_sizes[chosen]
        value_places, value_sizes = value_places[chosen], value_sizes[chosen]
    memory = pa.py_buffer(data)
    headers = None
    if include_headers:
        if chosen is not None:
            rest, ends, header_counts = rest[chosen], ends[chosen], header_counts[chosen]
        headers = _headers(memory, octets, rest, ends, header_counts)
    return Columns(
        offsets,
        timestamps,
        timestamp_types,
        _cut_out(memory, key_places, key_sizes),
        _cut_out(memory, value_places, value_sizes),
        headers,
    )


def _per_record(of_batches: list[int], counts: Ints) -> Ints:
    return np.repeat(np.array(of_batches, dtype=np.int64), counts)


def _timestamps(group: Sequence[_Wanted], counts: Ints, deltas: Ints) -> tuple[Ints, npt.NDArray[np.int32]]:
    bases = [header.base_timestamp for header, _ in group]
    appended = [header.is_log_append_time for header, _ in group]
    timestamps = _per_record(bases, counts)
    with np.errstate(over="ignore"):
        summed = timestamps + deltas
    # Overflow: two addends of equal sign whose sum has the other sign.
    if (((timestamps ^ summed) & (deltas ^ summed)) < 0).any():
        raise CorruptBatch("a timestamp beyond 64 bits")
    if not any(appended):
        return summed, np.zeros(len(deltas), dtype=np.int32)
    by_broker = np.repeat(np.array(appended), counts)
    stamped = _per_record([header.max_timestamp for header, _ in group], counts)
    return np.where(by_broker, stamped, summed), by_broker.astype(np.int32)


def _behind(places: Ints, sizes: Ints, ends: Ints) -> Ints:
    """The ends of the fields that start at `places`; a size of -1 means null."""
    if len(sizes) and sizes.min() < -1:
        raise CorruptBatch("a field of negative length")
    behind = places + np.maximum(sizes, 0)
    if (behind > ends).any():
        raise CorruptBatch("a field extends beyond its record")
    return behind


def _chosen(window: Window, offsets: Ints, timestamps: Ints) -> npt.NDArray[np.bool_] | None:
    """A mask of the records in the window; None if all are."""
    if not len(offsets):
        return None
    chosen: npt.NDArray[np.bool_] | None = None
    if offsets.min() < window.from_offset or offsets.max() >= window.until_offset:
        chosen = (offsets >= window.from_offset) & (offsets < window.until_offset)
    if window.from_timestamp > -END or window.until_timestamp < END:
        in_time = (timestamps >= window.from_timestamp) & (timestamps < window.until_timestamp)
        chosen = in_time if chosen is None else chosen & in_time
    return None if chosen is None or chosen.all() else chosen


def _cut_out(memory: Any, places: Ints, sizes: Ints, kind: Any = None) -> Any:
    """A pyarrow array of the fields at `places`, in ascending order; null where a size is negative.

    The fields and the gaps between them are the elements of one array over the existing memory. Taking every second
    element of it is Arrow's fastest way to copy the fields.
    """
    kind = kind or pa.binary()
    count = len(places)
    null = sizes < 0
    has_nulls = bool(null.any())
    if has_nulls and null.all():
        return pa.nulls(count, kind)
    bounds = np.empty(2 * count + 1, dtype=np.int32)
    bounds[0:-1:2] = places
    bounds[1::2] = places + np.maximum(sizes, 0) if has_nulls else places + sizes
    bounds[-1] = bounds[-2] if count else 0
    pieces = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(bounds), memory])
    return pieces.take(pa.array(np.arange(0, 2 * count, 2), mask=null if has_nulls else None))


def _headers(memory: Any, octets: Bytes, positions: Ints, ends: Ints, counts: Ints) -> Any:
    """A pyarrow list array. Reads the first header of all records at once, then the second, and so on."""
    total = int(counts.sum())
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    places, sizes = np.empty((2, total), dtype=np.int64), np.empty((2, total), dtype=np.int64)
    left = np.flatnonzero(counts)
    positions, ends = positions[left], ends[left]
    for index in range(int(counts.max()) if len(counts) else 0):
        slots = bounds[left] + index
        for field in (0, 1):
            sizes[field, slots], begins = read_varints(octets, positions)
            places[field, slots] = begins
            positions = _behind(begins, sizes[field, slots], ends)
        more = counts[left] > index + 1
        if (positions[~more] != ends[~more]).any():
            raise CorruptBatch("a record does not end at its length")
        left, positions, ends = left[more], positions[more], ends[more]
    if total and sizes[0].min() < 0:
        raise CorruptBatch("a header has no key")
    keys = _text(_cut_out(memory, places[0], sizes[0]))
    pairs = pa.StructArray.from_arrays([keys, _cut_out(memory, places[1], sizes[1])], fields=list(HEADER_TYPE))
    return _lists(bounds, pairs, counts)


def _lists(bounds: Ints, pairs: Any, counts: Ints) -> Any:
    """A record without headers becomes null, as in Spark's own source."""
    offsets = pa.array(bounds.astype(np.int32), mask=np.append(counts == 0, False))
    return pa.ListArray.from_arrays(offsets, pairs)


def _text(keys: Any) -> Any:
    """Bytes as strings; invalid UTF-8 is replaced, because Spark's strings are UTF-8."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.as_py().decode(errors="replace") for key in keys], pa.string())


def _read_legacy(
    buffer: Buffer, place: int, header: BatchHeader, window: Window, include_headers: bool
) -> Iterator[Columns]:
    """A message or compressed message set of magic 0 or 1; they have no headers."""
    records = decode_fields(buffer, place, max(CLIENT_LIMIT_BYTES, header.size_bytes))
    offsets = np.array([record[0] for record in records], dtype=np.int64)
    timestamps = np.array([record[1] for record in records], dtype=np.int64)
    kind = NO_TIMESTAMP_TYPE if header.magic == 0 else int(header.is_log_append_time)
    columns = Columns(
        offsets,
        timestamps,
        np.full(len(records), kind, dtype=np.int32),
        pa.array([record[2] for record in records], pa.binary()),
        pa.array([record[3] for record in records], pa.binary()),
        pa.nulls(len(records), pa.list_(HEADER_TYPE)) if include_headers else None,
    )
    chosen = _chosen(window, offsets, timestamps)
    if chosen is not None:
        columns = _only(columns, chosen)
    if len(columns):
        yield columns


def _only(columns: Columns, chosen: npt.NDArray[np.bool_]) -> Columns:
    mask = pa.array(chosen)
    return Columns(
        columns.offsets[chosen],
        columns.timestamps[chosen],
        columns.timestamp_types[chosen],
        columns.keys.filter(mask),
        columns.values.filter(mask),
        None if columns.headers is None else columns.headers.filter(mask),
    )


def _repeated(text: str, count: int) -> Any:
    """A string array that repeats one text."""
    data = text.encode()
    bounds = np.arange(0, (count + 1) * len(data), max(len(data), 1), dtype=np.int32)[: count + 1]
    if not data:
        bounds = np.zeros(count + 1, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data * count)])
