"""Remote segments for tests, and how to write them down."""

from __future__ import annotations

from barnabas.protocol.primitives import Uuid
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment, SegmentState, SegmentUpdate

TOPIC_ID: Uuid = bytes(15) + b"\x07"
KEY = RemotePartitionKey(TOPIC_ID, "orders", 0)

STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED


def segment_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def segment(  # noqa: PLR0913 - what a test may want to say of one segment
    number: int,
    start_offset: int,
    end_offset: int,
    epochs: dict[int, int] | None = None,
    *,
    key: RemotePartitionKey = KEY,
    size_bytes: int = 100,
    time_ms: int = 0,
    begun_ms: int = 0,
) -> RemoteSegment:
    """A segment whose copy begins; it has epoch 0 unless `epochs` says which epoch begins where."""
    return RemoteSegment(
        key=key,
        segment_id=segment_id(number),
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=time_ms,
        broker_id=1,
        event_timestamp_ms=begun_ms,
        size_bytes=size_bytes,
        state=STARTED,
        leader_epochs=tuple(sorted((epochs or {0: start_offset}).items())),
    )


def moved(number: int, state: SegmentState, key: RemotePartitionKey = KEY) -> SegmentUpdate:
    return SegmentUpdate(key, segment_id(number), 0, state, 1)


def copied(*segments: RemoteSegment) -> PartitionSegments:
    """All of them are copied, in this order."""
    known = PartitionSegments(KEY)
    known.is_complete = True
    for each in segments:
        assert known.apply(each)
        assert known.apply(SegmentUpdate(KEY, each.segment_id, each.event_timestamp_ms, FINISHED, 1))
    return known


def of_epoch(segments: PartitionSegments, leader_epoch: int) -> list[int]:
    """Numbers of all segments with records of this epoch."""
    return sorted(numbers([*segments.referenced(leader_epoch), *segments.unreferenced(leader_epoch)]))


def number_of(found: RemoteSegment | None) -> int | None:
    return None if found is None else int.from_bytes(found.segment_id, "big")


def numbers(found: list[RemoteSegment]) -> list[int]:
    return [int.from_bytes(each.segment_id, "big") for each in found]
