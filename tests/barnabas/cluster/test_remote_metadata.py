"""Which segments of a store a restored `__remote_log_metadata` gets, and in which batches."""

from __future__ import annotations

import pytest

from barnabas.broker.remote.segment_store import StoredSegment
from barnabas.cluster.remote_metadata import BATCH_BYTES, PRODUCER, batches, compared
from barnabas.storage.remote.metadata_records import MOST_LEADER_EPOCHS, decode
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment, SegmentState, SegmentUpdate

pytestmark = pytest.mark.feature("TS-04")

ORDERS = RemotePartitionKey(b"o" * 16, "orders", 0)
OLD_ORDERS = RemotePartitionKey(b"p" * 16, "orders", 0)
CLICKS = RemotePartitionKey(b"c" * 16, "clicks", 3)


def stored(number: int) -> StoredSegment:
    return StoredSegment(number.to_bytes(16, "big"), number * 10, {})


def ids(*numbers: int) -> set[bytes]:
    return {number.to_bytes(16, "big") for number in numbers}


def test_only_what_the_metadata_never_had_is_added_and_only_for_topics_of_this_cluster() -> None:
    store = {ORDERS: [stored(1), stored(2)], OLD_ORDERS: [stored(3)], CLICKS: [stored(4), stored(5)]}
    found = compared(store, {ORDERS.topic_id, CLICKS.topic_id}, {CLICKS: ids(4, 9)})
    assert found.lacking == {ORDERS: [stored(1), stored(2)], CLICKS: [stored(5)]}
    assert found.elsewhere == [OLD_ORDERS], "the same name, and another topic"
    assert found.partly_known == [CLICKS]
    assert found.known == 1
    complete = compared({CLICKS: [stored(4)]}, {CLICKS.topic_id}, {CLICKS: ids(4, 9)})
    assert not complete.lacking and not complete.partly_known


def test_segments_of_compacted_topics_are_left_out() -> None:
    """One that was replaced would bring back keys that were deleted, and its objects look like the others."""
    store = {ORDERS: [stored(1)], CLICKS: [stored(4), stored(5)]}
    found = compared(store, {ORDERS.topic_id, CLICKS.topic_id}, {CLICKS: ids(4)}, {"clicks"})
    assert found.compacted == [CLICKS]
    assert found.lacking == {ORDERS: [stored(1)]} and not found.partly_known
    assert found.known == 1


def segment(number: int, epochs: int) -> RemoteSegment:
    return RemoteSegment(
        key=ORDERS,
        segment_id=number.to_bytes(16, "big"),
        start_offset=number * 10,
        end_offset=number * 10 + 9,
        max_timestamp_ms=0,
        broker_id=-1,
        event_timestamp_ms=0,
        size_bytes=100,
        state=SegmentState.COPY_SEGMENT_STARTED,
        leader_epochs=tuple((2**31 - MOST_LEADER_EPOCHS + each, 2**62 + each) for each in range(epochs)),
    )


@pytest.mark.parametrize("epochs", [1, 100, MOST_LEADER_EPOCHS])
def test_a_segment_is_never_announced_in_another_batch_than_its_end(epochs: int) -> None:
    """A broker that finds only the first record deletes the objects after ten minutes."""
    segments = [segment(number, epochs) for number in range(300)]
    seen: list[RemoteSegment] = []
    for batch in batches(segments):
        assert sum(map(len, batch)) < PRODUCER["batch_size"] - BATCH_BYTES  # type: ignore[operator]
        records = [decode(value) for value in batch]
        for announced, finished in zip(records[::2], records[1::2], strict=True):
            assert isinstance(announced, RemoteSegment) and isinstance(finished, SegmentUpdate)
            assert (announced.segment_id, announced.state) == (finished.segment_id, SegmentState.COPY_SEGMENT_STARTED)
            assert finished.state is SegmentState.COPY_SEGMENT_FINISHED
            seen.append(announced)
    assert seen == segments
