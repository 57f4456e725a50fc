"""Core: the two control batches of delayed delivery, which a partition's log holds beside its records.

Stock clients skip them as they skip the markers of transactions: they are control batches of types unknown to Kafka.
Offsets are those of the log.

- A *pending* batch holds a produced batch, byte by byte, and the delivery time of each of its records. It has the
  producer id, the sequences and the number of offsets of that batch. A pending batch that was carried forward, because
  retention was about to delete it, has one offset and names the one where it arrived.
- A *settled* batch lists the pending records that the batch behind it delivers. Both are in one append, and no other
  batch of their leader epoch is between them. If a failover cuts the append in two, the batch that follows has another
  epoch, and the settled batch counts for nothing.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, CorruptBatch
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.delivery_time import AT_ONCE
from barnabas.protocol.records.record import decode_fields

PENDING_TYPE: Final = 25188
SETTLED_TYPE: Final = 25189
OWN_OFFSET: Final = -1
"""The arrival offset of a pending batch that was not carried forward."""
SETTLED_BASE_BYTES: Final = BATCH_HEADER_BYTES + 64
"""Size of a settled batch beside 8 bytes for each record."""

_KEY = struct.Struct(">hh")
_HEAD = struct.Struct(">bqi")
_VERSION = 0
_IS_LITTLE_ENDIAN = array("q", [1]).tobytes()[0] == 1


class Pending(NamedTuple):
    """A produced batch whose records are not all delivered."""

    arrival_offset: int
    """The offset at which its first record arrived. The records of a batch have successive ones, by which they are
    settled."""
    times: array[int]
    """Delivery times in milliseconds since the epoch; `AT_ONCE` for a record that is delivered already."""
    batch: bytes
    """The batch, unchanged since its producer sent it."""


class Settled(NamedTuple):
    """Records whose delivery is the batch that follows."""

    floor: int
    """No pending record was below this offset of the log when the settled batch was written."""
    arrivals: array[int]


def build_pending(pending: Pending, header: BatchHeader, now_ms: int) -> bytes:
    """`header`: that of the produced batch. A carried batch has neither its producer nor its offsets."""
    head = _HEAD.pack(_VERSION, pending.arrival_offset, len(pending.times))
    value = b"".join((head, _big_endian(pending.times), pending.batch))
    record = (0, now_ms, _KEY.pack(0, PENDING_TYPE), value, ())
    if pending.arrival_offset != OWN_OFFSET:
        return build_batch([record], control=True)
    return build_batch(
        [record],
        control=True,
        last_offset=header.last_offset_delta,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def build_settled(settled: Settled, now_ms: int) -> bytes:
    head = _HEAD.pack(_VERSION, settled.floor, len(settled.arrivals))
    value = head + _big_endian(settled.arrivals)
    return build_batch([(0, now_ms, _KEY.pack(0, SETTLED_TYPE), value, ())], control=True)


def read_delayed(
    batch: bytes | memoryview, header: BatchHeader, position: int = 0, *, with_batch: bool = True
) -> Pending | Settled | None:
    """The content of a control batch at `position`, which must be complete; None if it is of another kind.

    Without `with_batch` the produced batch is left out. Raises `CorruptBatch`.
    """
    if header.is_transactional or header.records_count != 1:
        return None
    ((_, _, key, value, _),) = decode_fields(batch, position)
    if key is None or len(key) != _KEY.size or value is None:
        return None
    kind = _KEY.unpack(key)[1]
    if kind not in (PENDING_TYPE, SETTLED_TYPE):
        return None
    try:
        version, number, count = _HEAD.unpack_from(value)
    except struct.error:
        raise CorruptBatch(f"the delayed records at offset {header.base_offset} have no head") from None
    end = _HEAD.size + 8 * count
    if version != _VERSION or count < 0 or end > len(value):
        raise CorruptBatch(
            f"the delayed records at offset {header.base_offset}: version {version}, {count} in {len(value)} bytes"
        )
    numbers = _native(value[_HEAD.size : end])
    if kind == SETTLED_TYPE:
        return Settled(number, numbers)
    arrival = header.base_offset if number == OWN_OFFSET else number
    return Pending(arrival, numbers, value[end:] if with_batch else b"")


def pending_offsets(pending: Pending) -> Iterable[tuple[int, int]]:
    """(delivery time, arrival offset) of each record that is not delivered."""
    for place, time_ms in enumerate(pending.times):
        if time_ms != AT_ONCE:
            yield time_ms, pending.arrival_offset + place


def _big_endian(numbers: array[int]) -> bytes:
    if _IS_LITTLE_ENDIAN:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _native(data: bytes) -> array[int]:
    numbers: array[int] = array("q")
    numbers.frombytes(data)
    if _IS_LITTLE_ENDIAN:
        numbers.byteswap()
    return numbers
