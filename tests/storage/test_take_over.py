"""A future log takes the place of the current one with all that is not in its records."""

from __future__ import annotations

import pytest

from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.storage.future_logs import take_over
from barnabas.storage.log import PartitionLog
from tests.storage.rig import NOW_MS, Rig, all_batches, append, producer_batch, small_segments

pytestmark = pytest.mark.feature("ST-17")

COPY = "/logs/b/orders-0.0123-future"


def copied(rig: Rig, current: PartitionLog) -> PartitionLog:
    future = rig.open(directory=COPY)
    for data in all_batches(current):
        future.append_as_follower(bytearray(data), NOW_MS)
    return future


def test_it_has_the_epochs_offsets_and_settings_of_the_current_one() -> None:
    rig = Rig()
    current = rig.open(small_segments())
    current.topic_id = b"t" * 16
    for epoch in (0, 2, 2, 5):
        append(current, leader_epoch=epoch)
    current.epochs.assign(6, current.log_end_offset)
    current.set_high_watermark(4)
    current.cleaned_to = 2
    future = copied(rig, current)
    assert future.epochs.entries() == [(0, 0), (2, 1), (5, 3)]
    take_over(current, future)
    assert future.epochs.entries() == [(0, 0), (2, 1), (5, 3), (6, 4)], "a leader may have written nothing yet"
    assert (future.high_watermark, future.cleaned_to, future.topic_id) == (4, 2, b"t" * 16)
    assert future.config is current.config


def test_it_begins_where_the_current_one_does() -> None:
    rig = Rig()
    current = rig.open()
    for epoch in (0, 2, 5):
        append(current, leader_epoch=epoch)
    future = copied(rig, current)
    current.set_high_watermark(3)
    current.advance_log_start_offset(2)
    take_over(current, future)
    assert (future.log_start_offset, future.high_watermark) == (2, 3)
    assert future.epochs.entries() == current.epochs.entries()


def test_it_knows_the_open_transactions_and_sequences() -> None:
    rig = Rig()
    current = rig.open()
    append(current, producer_batch(7, 0, 0, 2, transactional=True))
    append(current, producer_batch(8, 0, 0))
    append(current, build_end_txn_batch(EndTxn(True, 0), 7, 0, NOW_MS))
    append(current, producer_batch(7, 0, 2, transactional=True))
    future = copied(rig, current)
    take_over(current, future)
    assert future.producers is current.producers and future.producers is not None
    future.set_high_watermark(future.log_end_offset)
    assert future.last_stable_offset == 4, "the second transaction is open"
    append(future, producer_batch(8, 0, 1))
    assert append(future, producer_batch(8, 0, 1)).duplicate
