"""Records of a share fetch: acquired ranges of whole batches, gaps, and what cannot be read."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.completed_fetch import Unpacking
from barnabas.client.errors import CorruptRecordException, RecordDeserializationException
from barnabas.client.serialization import deserializer_of
from barnabas.client.shares.acknowledgements import TopicIdPartition
from barnabas.client.shares.acquired import MOST_OFFSETS, AcquiredRecords, Given
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.share_fetch import AcquiredRecords as AcquiredRange
from barnabas.protocol.messages.share_fetch import PartitionData
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record

pytestmark = pytest.mark.feature("CL-03")

PLACE = TopicIdPartition(b"a" * 16, "a", 0)
GAP, _, RELEASE, REJECT, _ = AcknowledgeType


def batch(first: int, *values: bytes) -> bytes:
    records = [Record(offset, 7, None, value) for offset, value in enumerate(values, first)]
    return bytes(build_batch(records, base_offset=first))


def acquired(records: bytes, *ranges: tuple[int, int, int], unpacking: Unpacking | None = None) -> AcquiredRecords:
    """`ranges`: first offset, last offset, delivery count."""
    named = [AcquiredRange(first_offset=a, last_offset=b, delivery_count=count) for a, b, count in ranges]
    return AcquiredRecords(PLACE, PartitionData(records=records, acquired_records=named), unpacking or Unpacking())


def values(given: Given) -> list[tuple[int, bytes, int]]:
    return [(record.offset, record.value, count) for record, count in given.records]


def test_only_acquired_records_are_given() -> None:
    it = acquired(batch(0, b"a", b"b", b"c") + batch(3, b"d", b"e"), (1, 1, 4), (3, 3, 1))
    given = it.give(10, whole_batches=True)
    assert values(given) == [(1, b"b", 4), (3, b"d", 1)]
    assert (given.decided, given.error, it.is_empty) == ({}, None, True)


@pytest.mark.parametrize(("whole", "sizes"), [(True, [3, 2]), (False, [2, 2, 1])])
def test_a_limit_may_keep_batches_whole(whole: bool, sizes: list[int]) -> None:
    it = acquired(batch(0, b"a", b"b", b"c") + batch(3, b"d", b"e"), (0, 4, 1))
    assert [len(it.give(2, whole_batches=whole).records) for _ in sizes] == sizes
    assert it.is_empty


def test_offsets_without_a_record_are_gaps() -> None:
    it = acquired(batch(1, b"a") + batch(4, b"b"), (0, 6, 1))
    given = it.give(10, whole_batches=False)
    assert values(given) == [(1, b"a", 1), (4, b"b", 1)]
    assert given.decided == dict.fromkeys([0, 2, 3, 5, 6], GAP)


def test_a_record_that_cannot_be_deserialized_is_released_behind_the_others() -> None:
    unpacking = Unpacking(value_deserializer=deserializer_of(int))
    it = acquired(batch(0, b"x", b"1", b"y", b"2"), (1, 3, 1), unpacking=unpacking)
    assert [record.value for record, _ in it.give(10, whole_batches=False).records] == [1]
    given = it.give(10, whole_batches=False)
    assert isinstance(given.error, RecordDeserializationException) and given.error.offset == 2
    assert given.decided == {2: RELEASE}
    assert [record.value for record, _ in it.give(10, whole_batches=False).records] == [2]


def test_a_corrupt_batch_is_rejected_as_far_as_it_was_acquired() -> None:
    bad = bytearray(batch(2, b"c", b"d", b"e"))
    bad[-1] ^= 1
    it = acquired(batch(0, b"a", b"b") + bytes(bad) + batch(5, b"f"), (1, 3, 2), (5, 5, 1))
    assert values(it.give(10, whole_batches=False)) == [(1, b"b", 2)]
    given = it.give(10, whole_batches=False)
    assert isinstance(given.error, CorruptRecordException)
    assert given.decided == {2: REJECT, 3: REJECT}
    assert values(it.give(10, whole_batches=False)) == [(5, b"f", 1)]


def test_records_behind_nonsense_are_released() -> None:
    it = acquired(batch(0, b"a") + b"\x00" * 8 + b"\x00\x00\x00\x40" + b"\x09" * 80, (0, 2, 1))
    assert values(it.give(10, whole_batches=False)) == [(0, b"a", 1)]
    given = it.give(10, whole_batches=False)
    assert isinstance(given.error, CorruptRecordException)
    assert (given.decided, it.is_empty) == ({1: RELEASE, 2: RELEASE}, True)


@pytest.mark.parametrize("ranges", [[(0, 2**60, 1)], [(0, MOST_OFFSETS, 1)], [(0, 2**60, 1), (2**61, 0, 1)]])
def test_a_response_cannot_acquire_without_a_limit(ranges: list[tuple[int, int, int]]) -> None:
    with pytest.raises(KafkaError, match=f"at most {MOST_OFFSETS} offsets"):
        acquired(b"", *ranges)


def test_ranges_that_overlap_are_taken_once() -> None:
    it = acquired(batch(0, b"a", b"b", b"c"), (1, 2, 7), (0, 1, 3), (2, 0, 1))
    assert values(it.give(10, whole_batches=True)) == [(0, b"a", 3), (1, b"b", 3), (2, b"c", 7)]
