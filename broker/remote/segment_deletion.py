"""Shell: deletes one remote segment: DELETE_SEGMENT_STARTED, its objects, DELETE_SEGMENT_FINISHED.

Each step may be repeated: whatever ends in between is found in the metadata, and deleted again.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.remote.ports import RemotePorts
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.object_store import StoreError
from barnabas.storage.remote.segment import RemoteSegment, SegmentState, SegmentUpdate


async def delete_segment(ports: RemotePorts, segment: RemoteSegment, may_go_on: Callable[[], None]) -> None:
    """`may_go_on` raises if the broker must not delete any longer. Raises StoreError, KafkaError."""
    world, topic = ports.world, segment.key.topic
    if segment.state is not SegmentState.DELETE_SEGMENT_STARTED:
        await _publish(ports, segment, SegmentState.DELETE_SEGMENT_STARTED)
    world.fault_point("remote.delete.started")
    may_go_on()
    ports.traffic.deletions[topic] += 1
    try:
        await ports.store.delete(segment)
    except StoreError:
        ports.traffic.failed_deletions[topic] += 1
        raise
    world.fault_point("remote.delete.deleted")
    await _publish(ports, segment, SegmentState.DELETE_SEGMENT_FINISHED)
    world.fault_point("remote.delete.finished")


async def _publish(ports: RemotePorts, segment: RemoteSegment, state: SegmentState) -> None:
    now_ms = ports.world.wall_clock.now_ms()
    update = SegmentUpdate(segment.key, segment.segment_id, now_ms, state, ports.node_id, segment.custom_metadata)
    try:
        await ports.metadata.publish(update)
    except KafkaError as error:
        # Another broker deletes it as well, and is ahead.
        if error.code != ErrorCode.INVALID_RECORD:
            raise
