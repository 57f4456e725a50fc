"""Produced batches that are kept open while their records become due one by one."""

from __future__ import annotations

import pytest

from barnabas.broker.delayed.delivery import OPENED_BYTES, OpenedBatches, build_delivery
from barnabas.broker.delayed.schedule import Due
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.indexed import IndexedRecords
from barnabas.protocol.records.record import decode_records

pytestmark = pytest.mark.feature("RP-12")

IN_A_BATCH = 100


def opened_batches(count: int) -> OpenedBatches:
    opened = OpenedBatches()
    for number in range(count):
        first = number * IN_A_BATCH
        records = [
            (0, 1_750_000_000_000, None, b"%06d" % (first + place) + b"x" * 100, (("deliver-at", b"1750000000000"),))
            for place in range(IN_A_BATCH)
        ]
        opened.put(first, IndexedRecords(build_batch(records)))
    return opened


def test_hundred_thousand_small_records_stay_open() -> None:
    """Records of neighbouring times are often in distant batches: each would be read, and opened, again and again."""
    opened = opened_batches(1_000)
    opened.trim(OPENED_BYTES)
    assert all(opened.find(number * IN_A_BATCH) for number in range(1_000))


def test_the_oldest_are_closed_first() -> None:
    opened = opened_batches(10)
    opened.trim(50_000)
    kept = [number for number in range(10) if opened.find(number * IN_A_BATCH + 1)]
    assert kept == list(range(10 - len(kept), 10)) and 1 < len(kept) < 5


def test_a_delivery_takes_single_records_of_several_batches() -> None:
    opened = opened_batches(3)
    taken = [Due(0, 250), Due(1, 17), Due(2, 101)]
    delivery = build_delivery(taken, set(), opened, 0, 1 << 20, 5)
    records = decode_records(bytes(delivery.buffer), delivery.batches[1][0])
    assert [(record.value or b"")[:6] for record in records] == [b"000250", b"000017", b"000101"]
    assert delivery.delivered == taken


def test_a_record_that_is_not_open_ends_a_delivery() -> None:
    opened = opened_batches(1)
    delivery = build_delivery([Due(0, 5), Due(1, 300), Due(2, 6)], set(), opened, 0, 1 << 20, 5)
    assert delivery.delivered == [Due(0, 5)]


def test_heavy_batches_are_left_to_the_thread() -> None:
    opened = opened_batches(1)
    assert opened.is_light([Due(0, 5), Due(0, 300)])
    opened.put(500, IndexedRecords(build_batch([(0, 0, None, b"x" * 100_000, ())])))
    assert not opened.is_light([Due(0, 5), Due(0, 500)])
    opened.put(600, IndexedRecords(build_batch([(0, 0, None, b"x", ())], compression=1)))
    assert not opened.is_light([Due(0, 600)])
