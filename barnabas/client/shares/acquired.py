"""Core: the records that one fetch acquired in one partition, decoded when they are wanted.

A response has whole batches, and the ranges of them that were acquired. Acquired offsets without a record are
acknowledged as gaps, so that the broker does not deliver them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from barnabas.client.consumer.completed_fetch import FetchPosition, Unpacking, deserialized, survey
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.errors import CorruptRecordException, RecordDeserializationException, UnreadableBatchException
from barnabas.client.shares.acknowledgements import TopicIdPartition
from barnabas.client.shares.share_session import Types
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.share_fetch import AcquiredRecords as AcquiredRange
from barnabas.protocol.messages.share_fetch import PartitionData

MOST_OFFSETS = 100_000
"""Offsets that one response may acquire in one partition. Kafka's brokers lock at most 10 000."""


class AcquiredRecord(NamedTuple):
    record: ConsumerRecord
    delivery_count: int


@dataclass(slots=True)
class Given:
    """Result of one `AcquiredRecords.give`."""

    records: list[AcquiredRecord] = field(default_factory=list)
    decided: Types = field(default_factory=dict)
    """Offsets that the application does not get: gaps, and records that cannot be read."""
    error: KafkaError | None = None
    """The reason why a record cannot be read."""


class AcquiredRecords:
    """Records in the order of their offsets."""

    def __init__(self, place: TopicIdPartition, data: PartitionData, unpacking: Unpacking) -> None:
        """KafkaError with CORRUPT_MESSAGE if the response acquires too much."""
        self.place = place
        self._unpacking = unpacking
        self._as_bytes = replace(unpacking, key_deserializer=None, value_deserializer=None, skips_unreadable=False)
        self._left = _in_order(place, data.acquired_records)
        """(offset, delivery count) of what was acquired and not given yet."""
        first = self._left[0][0] if self._left else 0
        self._fetched = survey(place.topic_partition, data.records or b"", FetchPosition(first))
        self._decoded: deque[ConsumerRecord] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._left

    @property
    def offsets(self) -> list[int]:
        """Acquired offsets that were not given yet."""
        return [offset for offset, _ in self._left]

    def give(self, limit: int, *, whole_batches: bool) -> Given:
        """Up to `limit` records; with `whole_batches`, and the rest of the last record's batch. The first record that
        cannot be read ends the list, and is the `error` of the next call."""
        given = Given()
        while self._left:
            full = len(given.records) >= limit
            if not self._decoded:
                if full and not (whole_batches and self._fetched.rest_of_batch):
                    break
                if not self._decode(given, limit):
                    break
            elif (full and not whole_batches) or not self._give_one(given):
                break
        return given

    def _give_one(self, given: Given) -> bool:
        """False at a record that cannot be deserialized."""
        record = self._decoded[0]
        self._pass(record.offset, given.decided)
        if self._left and self._left[0][0] == record.offset:
            try:
                given.records.append(AcquiredRecord(deserialized(record, self._unpacking), self._left[0][1]))
            except RecordDeserializationException as error:
                if given.records:
                    return False
                given.error = error
                given.decided[record.offset] = AcknowledgeType.RELEASE
            self._left.popleft()
        self._decoded.popleft()
        return given.error is None

    def _decode(self, given: Given, limit: int) -> bool:
        """Decode some records; False if none are left."""
        fetched = self._fetched
        try:
            self._decoded.extend(fetched.give(fetched.rest_of_batch or limit, self._as_bytes))
        except (CorruptRecordException, UnreadableBatchException) as error:
            if given.records:
                return False
            given.error = error
            bad = fetched.skip_batch()
            self._pass(bad.start, given.decided)
            self._pass(bad.stop, given.decided, AcknowledgeType.REJECT)
            return False
        if self._decoded:
            return True
        if fetched.error is not None and not given.records:
            given.error = fetched.error
            self._pass(None, given.decided, AcknowledgeType.RELEASE)
        elif fetched.error is None:
            self._pass(None, given.decided)
        return False

    def _pass(self, end: int | None, decided: Types, kind: AcknowledgeType = AcknowledgeType.GAP) -> None:
        """Decide the acquired offsets before `end`, which are no records to give; None: all of them."""
        while self._left and (end is None or self._left[0][0] < end):
            decided[self._left.popleft()[0]] = kind


def _in_order(place: TopicIdPartition, ranges: Iterable[AcquiredRange]) -> deque[tuple[int, int]]:
    """(offset, delivery count) of each offset, once."""
    in_order = sorted(ranges, key=lambda each: each.first_offset)
    count = sum(max(0, each.last_offset - each.first_offset + 1) for each in in_order)
    if count > MOST_OFFSETS:
        message = f"{place.topic_partition}: a response may acquire at most {MOST_OFFSETS} offsets; got {count}"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
    acquired: deque[tuple[int, int]] = deque()
    for each in in_order:
        first = max(each.first_offset, acquired[-1][0] + 1 if acquired else 0)
        acquired.extend((offset, each.delivery_count) for offset in range(first, each.last_offset + 1))
    return acquired
