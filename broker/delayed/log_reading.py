"""Shell: reads the log of a partition for its pending records."""

from __future__ import annotations

from functools import partial

from barnabas.broker.delayed.delivery import READ_BYTES, READ_IN_A_DELIVERY_BYTES, runs_of
from barnabas.broker.delayed.led_deliveries import LedDeliveries
from barnabas.broker.delayed.replay import Replay, SegmentScan
from barnabas.runtime.world import World
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.segment_list import LogSlice


async def read_back(world: World, led: LedDeliveries, end_offset: int) -> Replay | None:
    """The pending records before `end_offset`; None if the epoch ended meanwhile. Raises KafkaError, OSError."""
    replay = Replay()
    partition_log = led.partition.log
    upper_offset = end_offset
    for base_offset in [segment.base_offset for segment in reversed(partition_log.segments)]:
        scan = SegmentScan()
        offset = base_offset
        while offset < upper_offset:
            offset = max(offset, partition_log.log_start_offset)
            try:
                part = partition_log.read(offset, READ_BYTES, upper_offset)
            except OffsetOutOfRange:
                continue
            if part is None:
                break
            await world.run_blocking(partial(_scan, scan, part))
            if not led.is_current:
                return None
            offset = max(scan.next_offset, offset + 1)
        replay.add(scan)
        upper_offset = min(upper_offset, base_offset)
        if replay.is_complete_at(base_offset) or base_offset <= partition_log.log_start_offset:
            break
    return replay


def _scan(scan: SegmentScan, part: LogSlice) -> None:
    scan.feed(bytes_of(part))


def slices_at(partition_log: PartitionLog, places: list[int]) -> list[LogSlice]:
    """The batches with these offsets, and some others; the last of them may be left out. Raises KafkaError."""
    slices: list[LogSlice] = []
    left_bytes = READ_IN_A_DELIVERY_BYTES
    for run in runs_of(places):
        offset = max(run.first_offset, partition_log.log_start_offset)
        while offset <= run.last_offset and left_bytes > 0:
            part = partition_log.read(offset, READ_BYTES, run.last_offset + 1)
            if part is None:
                # The batch has the last place and offsets behind it.
                part = partition_log.read(offset, 1, partition_log.log_end_offset)
            if part is None:
                break
            slices.append(part)
            left_bytes -= part.size_bytes
            offset = max(part.upper_offset, offset + 1)
    return slices


def bytes_of(part: LogSlice) -> bytes:
    return part.file.pread(part.size_bytes, part.position)
