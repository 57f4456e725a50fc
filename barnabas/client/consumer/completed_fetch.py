"""Core: the batches of one partition in one fetch response, decoded when their records are wanted.

Batch headers are read at once, so that the next fetch has its offset; records are decoded batch by batch on demand,
except those of aborted transactions and of control batches (whose marker type is read).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.client.aborted_producers import AbortedProducers
from barnabas.client.consumer.record import ConsumerRecord, TimestampType
from barnabas.client.errors import CorruptRecordException, RecordDeserializationException, UnreadableBatchException
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.protocol.records.batch import BatchHeader, CorruptBatch, crc_is_valid, iterate_batches
from barnabas.protocol.records.record import CLIENT_LIMIT_BYTES, SERVED_LIMIT_RECORDS, Fields, Headers, decode_fields

log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

Deserialize = Callable[[str, Headers, bytes | None], Any]
"""(topic, headers, bytes) to a value. KafkaError if it does not accept the bytes."""


class FetchPosition(NamedTuple):
    """Next offset, and the leader epoch of the record before it; -1 if that is unknown."""

    offset: int
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Unpacking:
    """Rules for making records from bytes."""

    check_crcs: bool = True
    key_deserializer: Deserialize | None = None
    """None leaves keys as bytes."""
    value_deserializer: Deserialize | None = None
    skips_unreadable: bool = False
    """Skip a batch whose records cannot be read, instead of stopping before it."""
    most_batch_bytes: int = CLIENT_LIMIT_BYTES
    """Limit of the decompressed size of a batch."""


class _Batch(NamedTuple):
    place: int
    """Its begin in the buffer."""
    header: BatchHeader
    is_wanted: bool
    """Neither a control batch nor part of an aborted transaction."""


class _Source(NamedTuple):
    """Values that the records of one batch share."""

    topic: str
    partition: int
    timestamp_type: TimestampType
    leader_epoch: int | None


class CompletedFetch:
    """Batches in the order of their offsets; `give` returns their records."""

    __slots__ = (
        "_at",
        "_batches",
        "_buffer",
        "_header",
        "_partition",
        "_records",
        "_source",
        "end",
        "error",
        "position",
        "size_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        buffer: Buffer,
        batches: Sequence[_Batch],
        position: FetchPosition,
        error: KafkaError | None = None,
    ) -> None:
        self.position = position
        """Position of the next record that `give` returns."""
        self.end = position
        """Position behind the last batch, for the next fetch."""
        if batches:
            last = batches[-1].header
            self.end = FetchPosition(last.next_offset, last.partition_leader_epoch)
        self.error = error
        """Error behind the last batch."""
        self.size_bytes = sum(batch.header.size_bytes for batch in batches)
        """Size of the batches that are not decoded yet."""
        self._partition = partition
        self._buffer = buffer
        self._batches = deque(batches)
        self._records: list[Fields] = []
        """Records of the batch being returned, from the position on."""
        self._at = 0
        self._header: BatchHeader | None = None
        self._source = _Source(*partition, TimestampType.CREATE_TIME, None)

    @property
    def is_empty(self) -> bool:
        """Whether all records were returned."""
        return self._at == len(self._records) and not self._batches

    @property
    def rest_of_batch(self) -> int:
        """Number of decoded records that were not returned yet."""
        return len(self._records) - self._at

    def skip_batch(self) -> range:
        """Step over the next batch, which cannot be read; returns its offsets."""
        _, header, _ = self._batches.popleft()
        self.size_bytes -= header.size_bytes
        self._records, self._at = [], 0
        self._move_to(header.next_offset, header)
        return range(header.base_offset, header.next_offset)

    def give(self, limit: int, unpacking: Unpacking) -> list[ConsumerRecord]:
        """Up to `limit` records. Steps over batches without records.

        KafkaError if the very next record cannot be read or deserialized; the position stays before it, unless
        unreadable batches are skipped.
        """
        given: list[ConsumerRecord] = []
        try:
            while self._at < len(self._records) or self._open_next(limit - len(given), unpacking):
                if len(given) >= limit:
                    break
                self._give_of_batch(given, limit, unpacking)
        except KafkaError:
            if not given:
                raise
        return given

    def _give_of_batch(self, given: list[ConsumerRecord], limit: int, unpacking: Unpacking) -> None:
        assert self._header is not None
        before = len(given)
        wanted = self._records[self._at : self._at + limit - before]
        try:
            if unpacking.key_deserializer is None and unpacking.value_deserializer is None:
                given += _as_they_are(self._source, wanted)
            else:
                _deserialize(self._source, wanted, unpacking, given)
        finally:
            if len(given) > before:
                self._at += len(given) - before
                self._move_to(given[-1].offset + 1, self._header)
        if self._at == len(self._records):
            self._move_to(self._header.next_offset, self._header)

    def _open_next(self, room: int, unpacking: Unpacking) -> bool:
        """Decode the next batch with records; False if there is none, or no room for its records."""
        while self._batches:
            place, header, is_wanted = self._batches[0]
            if is_wanted:
                if room <= 0:
                    return False
                try:
                    self._decode(place, header, unpacking)
                except UnreadableBatchException as error:
                    if not unpacking.skips_unreadable:
                        raise
                    log.warning("skipped an unreadable batch: %s", error.message)
                    self._records, self._at = [], 0
            self._batches.popleft()
            self.size_bytes -= header.size_bytes
            if is_wanted and self._records:
                return True
            self._move_to(header.next_offset, header)
        return False

    def _decode(self, place: int, header: BatchHeader, unpacking: Unpacking) -> None:
        if unpacking.check_crcs and not crc_is_valid(self._buffer, place, header):
            raise _corrupt(self._partition, f"the batch at offset {header.base_offset} has a wrong CRC")
        try:
            if header.records_count > SERVED_LIMIT_RECORDS:
                raise CorruptBatch(
                    f"a batch may have at most {SERVED_LIMIT_RECORDS} records; got {header.records_count}"
                )
            records = decode_fields(self._buffer, place, max(unpacking.most_batch_bytes, header.size_bytes))
        except CorruptBatch as error:
            raise self._unreadable(header, error.message) from None
        if records and records[0][0] < self.position.offset:
            records = [record for record in records if record[0] >= self.position.offset]
        self._records, self._at, self._header = records, 0, header
        epoch = header.partition_leader_epoch
        self._source = _Source(*self._partition, _timestamp_type(header), epoch if epoch >= 0 else None)

    def _unreadable(self, header: BatchHeader, reason: str | None) -> UnreadableBatchException:
        topic, partition = self._partition
        first, following = header.base_offset, header.next_offset
        message = f"the batch at offsets {first} to {following - 1} of {topic}-{partition} cannot be read: {reason}"
        return UnreadableBatchException(message, topic, partition, first, following)

    def _move_to(self, offset: int, header: BatchHeader) -> None:
        # A batch keeps its last offset even if compaction removed that record.
        self.position = FetchPosition(max(self.position.offset, offset), header.partition_leader_epoch)


def survey(
    partition: TopicPartition,
    buffer: Buffer,
    position: FetchPosition,
    aborted: Iterable[AbortedTransaction] | None = None,
) -> CompletedFetch:
    """Read the headers of the batches that were fetched at `position`.

    Transactions in `aborted` are skipped from their first offset to their marker (KIP-98); None skips nothing. The
    first batch that cannot be read ends it, with `CompletedFetch.error`.
    """
    batches: list[_Batch] = []
    filtered = None
    if aborted is not None:
        filtered = AbortedProducers((each.producer_id, each.first_offset) for each in aborted)
    try:
        for place, header in iterate_batches(buffer):
            is_wanted = not header.is_control
            if filtered is not None and header.has_producer_id:
                is_wanted = not filtered.covers(buffer, place, header) and is_wanted
            if header.next_offset > position.offset:
                batches.append(_Batch(place, header, is_wanted))
    except CorruptBatch as error:
        return CompletedFetch(partition, buffer, batches, position, _corrupt(partition, error.message))
    return CompletedFetch(partition, buffer, batches, position)


_new_record: Any = tuple.__new__  # skips the Python-level constructor of the named tuple


def _as_they_are(source: _Source, records: Sequence[Fields]) -> list[ConsumerRecord]:
    new, record_type = _new_record, ConsumerRecord
    topic, partition, timestamp_type, leader_epoch = source
    return [
        new(record_type, (topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers, leader_epoch))
        for offset, timestamp_ms, key, value, headers in records
    ]


def _deserialize(source: _Source, records: Sequence[Fields], unpacking: Unpacking, given: list[ConsumerRecord]) -> None:
    """Append records to `given`, one by one, up to the first that cannot be deserialized."""
    topic, partition, timestamp_type, leader_epoch = source
    for offset, timestamp_ms, key_bytes, value_bytes, headers in records:
        record = ConsumerRecord(
            topic, partition, offset, timestamp_ms, timestamp_type, key_bytes, value_bytes, headers, leader_epoch
        )
        given.append(deserialized(record, unpacking))


def deserialized(record: ConsumerRecord, unpacking: Unpacking) -> ConsumerRecord:
    """The record with its key and value made from bytes. RecordDeserializationException."""
    if unpacking.key_deserializer is None and unpacking.value_deserializer is None:
        return record
    topic, partition, offset, headers = record.topic, record.partition, record.offset, record.headers
    part = "key"
    try:
        key = (unpacking.key_deserializer or _keep)(topic, headers, record.key)
        part = "value"
        value = (unpacking.value_deserializer or _keep)(topic, headers, record.value)
    except KafkaError as error:
        raise RecordDeserializationException(
            f"the {part} of the record at offset {offset} of {topic}-{partition} cannot be read: {error.message}",
            topic,
            partition,
            offset,
        ) from error
    return record._replace(key=key, value=value)


def _keep(topic: str, headers: Headers, data: bytes | None) -> bytes | None:
    return data


def _corrupt(partition: TopicPartition, reason: str | None) -> CorruptRecordException:
    return CorruptRecordException(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {reason}")


def _timestamp_type(header: BatchHeader) -> TimestampType:
    if header.magic == 0:
        return TimestampType.NO_TIMESTAMP_TYPE
    return TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME
