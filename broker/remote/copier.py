"""Shell: copies closed segments of led partitions to the remote store (Kafka's RLMCopyTask), and learns what is there.

COPY_SEGMENT_STARTED is in the metadata before the first object is stored, and COPY_SEGMENT_FINISHED after the last one:
whatever ends in between can be found and deleted. Leadership is checked again before each of these steps. Only what the
metadata then shows as readable counts as copied, on leaders as on followers.

The copy of a compacted log says how far it is clean, and that is at least up to where the epoch of its leader begins:
all that earlier leaders copied is below it, and all tombstones that replicas removed before the topic was tiered. To
get there, a new leader closes its active segment, and asks the cleaner for it.
"""

from __future__ import annotations

import logging
from functools import partial

import trio

from barnabas.broker.remote.ports import RemotePorts
from barnabas.broker.remote.segment_store import SegmentFiles
from barnabas.broker.remote.tended import Attempt, LeadershipEnded, Tended
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.decisions import DecisionKind
from barnabas.runtime.object_store import StoreError
from barnabas.runtime.uuids import random_uuid
from barnabas.storage.log import PartitionLog
from barnabas.storage.remote.compacted_copy import CompactedCopy
from barnabas.storage.remote.copying import bytes_to_copy, next_to_copy
from barnabas.storage.remote.lineage import PROVEN_IN_A_STEP, first_readable, last_copied, proven_end
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemoteSegment, SegmentState, SegmentUpdate
from barnabas.storage.segment_export import SegmentBytes, SegmentExport, export_segment

log = logging.getLogger(__name__)

QUOTA_CHECK_MS = 1_000
"""Kafka's longest wait between two looks at the quota."""


class Copier:
    """Copies one partition at a time for each caller."""

    def __init__(self, ports: RemotePorts) -> None:
        self._ports = ports

    async def round(self, tended: Tended) -> bool:
        """Copy whatever can be copied; on a follower only learn what is copied. False if the metadata is not read yet.

        Raises StoreError, KafkaError, OSError, CorruptBatch: the next round goes on.
        """
        segments = self._ports.metadata.segments(tended.key)
        if segments is None:
            return False
        partition = tended.partition
        await self._learn(tended, segments)
        if not partition.is_leader:
            self._give_up(tended)
            partition.log.clean_wanted_to = 0
            tended.gauges.copy_lag_bytes = tended.gauges.copy_lag_segments = 0
            return True
        epoch = partition.leader_epoch
        if tended.led_epoch != epoch:
            self._give_up(tended)
            self._begin_to_lead(tended, segments)
            tended.led_epoch = epoch
        if partition.log.config.copies_to_remote:
            _close_what_is_to_be_clean(partition.log, self._ports.world.wall_clock.now_ms())
        try:
            while tended.leads(epoch) and partition.log.config.copies_to_remote and self._ports.metadata.lost is None:
                candidate = next_to_copy(
                    [each.base_offset for each in partition.log.segments],
                    partition.log.highest_copied_offset,
                    partition.log.log_start_offset,
                    self._copyable_to(partition.log),
                )
                if candidate is None:
                    break
                if not await self._copy(tended, candidate.base_offset, epoch):
                    break
                await self._learn(tended, segments)
            if not partition.log.config.copies_to_remote:
                self._give_up(tended)
        finally:
            self._measure_lag(tended)
        return True

    def _copyable_to(self, partition_log: PartitionLog) -> int:
        """Segments that end before this offset may be copied."""
        stable = partition_log.last_stable_offset
        if not partition_log.config.compacts:
            return stable
        cleaned_to = partition_log.cleaned_to or 0
        # What is not on this disk is dirty in no local segment.
        is_clean = max(cleaned_to, partition_log.local_log_start_offset) >= partition_log.clean_wanted_to
        return min(stable, cleaned_to) if is_clean else 0

    async def _learn(self, tended: Tended, segments: PartitionSegments) -> None:
        """Set the highest copied offset of the log: local retention deletes up to there."""
        partition_log = tended.partition.log
        if self._ports.metadata.lost is not None:
            # What only these records make readable may not be deleted from this disk.
            partition_log.highest_copied_offset = -1
            return
        epochs, offset = partition_log.epochs.entries(), partition_log.local_log_start_offset
        while True:
            end = partition_log.log_end_offset
            proven = proven_end(partition_log.epochs, end, segments, offset, PROVEN_IN_A_STEP)
            if proven == offset:
                break
            offset = proven
            if offset - partition_log.local_log_start_offset > PROVEN_IN_A_STEP:
                await trio.lowlevel.checkpoint()
        if partition_log is not tended.partition.log or partition_log.epochs.entries() != epochs:
            # It was truncated meanwhile; the next round looks again.
            return
        local_start = partition_log.local_log_start_offset
        if offset > local_start:
            partition_log.highest_copied_offset = min(offset, partition_log.log_end_offset) - 1
        elif last_copied(partition_log.epochs, partition_log.log_end_offset, segments) >= 0:
            # Nothing is remote that is here, too.
            partition_log.highest_copied_offset = local_start - 1
        else:
            partition_log.highest_copied_offset = -1

    def _give_up(self, tended: Tended) -> None:
        tended.give_up_attempt(self._ports.world.wall_clock.now_ms())

    def _begin_to_lead(self, tended: Tended, segments: PartitionSegments) -> None:
        """The log start of a former leader may be known only from what it left in the store."""
        partition_log = tended.partition.log
        epochs = partition_log.epochs.entries()
        partition_log.clean_wanted_to = epochs[-1][1] if epochs else partition_log.log_end_offset
        first = first_readable(epochs, segments)
        local_start = partition_log.local_log_start_offset
        if first is None and local_start > partition_log.log_start_offset:
            copied_to = last_copied(partition_log.epochs, partition_log.log_end_offset, segments)
            if copied_to < local_start - 1:
                self._report_lost_metadata(tended)
                return
            first = local_start
        if first is not None:
            tended.partition.advance_log_start(first)

    def _report_lost_metadata(self, tended: Tended) -> None:
        partition = tended.partition
        log_start, local_start = partition.log.log_start_offset, partition.log.local_log_start_offset
        text = f"the remote offsets {log_start} to {local_start - 1} of {tended} cannot be found"
        cause = "__remote_log_metadata does not know them; it may have been deleted or truncated"
        log.error("%s: %s", text, cause)
        self._ports.decisions.note(
            DecisionKind.LOG, partition.name, text, cause=cause, leader_epoch=partition.leader_epoch, offset=local_start
        )

    def _measure_lag(self, tended: Tended) -> None:
        partition_log = tended.partition.log
        sizes = [(each.base_offset, each.size_bytes) for each in partition_log.segments]
        gauges = tended.gauges
        gauges.copy_lag_segments, gauges.copy_lag_bytes = bytes_to_copy(sizes, partition_log.highest_copied_offset)

    # -- one segment

    async def _copy(self, tended: Tended, base_offset: int, epoch: int) -> bool:
        """False if the round is to end."""
        export = export_segment(tended.partition.log, base_offset)
        if export is None:
            return True
        try:
            await self._wait_for_quota(export.log.count)
            await self._copy_export(tended, export, epoch)
            return True
        except LeadershipEnded as error:
            log.info("%s: its copy of segment %d stops: %s", tended, base_offset, error)
            self._give_up(tended)
            return False
        except KafkaError as error:
            if error.code == ErrorCode.INVALID_RECORD:
                # Another leader has begun to delete it.
                self._give_up(tended)
            raise
        finally:
            export.close()

    async def _wait_for_quota(self, size_bytes: int) -> None:
        ports = self._ports
        while ports.copy_quota.is_exceeded(ports.world.monotonic.now_ms()):
            ports.traffic.throttled_ms += QUOTA_CHECK_MS
            await trio.sleep(QUOTA_CHECK_MS / 1000)
        ports.copy_quota.record(size_bytes, ports.world.monotonic.now_ms())

    async def _copy_export(self, tended: Tended, export: SegmentExport, epoch: int) -> None:
        ports, world = self._ports, self._ports.world
        now_ms = world.wall_clock.now_ms()
        attempt = self._attempt_for(tended, export, epoch)
        if not attempt.is_stored:
            content = await world.run_blocking(partial(export.read, now_ms))
            self._check(tended, export, epoch)
            await self._announce(attempt)
            world.fault_point("remote.copy.started")
            self._check(tended, export, epoch)
            await self._store(attempt.segment, export, content)
            attempt.is_stored = True
        world.fault_point("remote.copy.stored")
        self._check(tended, export, epoch)
        await ports.metadata.publish(
            SegmentUpdate(
                tended.key,
                attempt.segment.segment_id,
                world.wall_clock.now_ms(),
                SegmentState.COPY_SEGMENT_FINISHED,
                ports.node_id,
                attempt.segment.custom_metadata,
            )
        )
        world.fault_point("remote.copy.finished")
        tended.attempt = None
        ports.traffic.copied_bytes[tended.key.topic] += attempt.segment.size_bytes
        log.info("%s: offsets %d to %d are remote now", tended, export.base_offset, export.end_offset - 1)

    def _attempt_for(self, tended: Tended, export: SegmentExport, epoch: int) -> Attempt:
        """The attempt that failed before, if it is one for the same records."""
        segment = RemoteSegment(
            key=tended.key,
            segment_id=random_uuid(self._ports.world.chance),
            start_offset=export.base_offset,
            end_offset=export.end_offset - 1,
            max_timestamp_ms=export.max_timestamp_ms,
            broker_id=self._ports.node_id,
            event_timestamp_ms=self._ports.world.wall_clock.now_ms(),
            size_bytes=export.log.count,
            state=SegmentState.COPY_SEGMENT_STARTED,
            leader_epochs=export.leader_epochs,
            custom_metadata=self._custom_metadata(tended, export, epoch),
            transaction_index_is_empty=not export.has_aborted,
        )
        before = tended.attempt
        if before is not None and _is_same(before.segment, segment):
            return before
        self._give_up(tended)
        tended.attempt = Attempt(segment)
        return tended.attempt

    def _custom_metadata(self, tended: Tended, export: SegmentExport, epoch: int) -> bytes | None:
        """None for a log that was never compacted."""
        if tended.partition.log.config.compacts:
            return CompactedCopy(epoch, export.cleaned_to).encode()
        segments = self._ports.metadata.segments(tended.key)
        if segments is not None and segments.newest_copier_epoch >= 0:
            return CompactedCopy(epoch, 0).encode()
        return None

    async def _announce(self, attempt: Attempt) -> None:
        if not attempt.is_announced:
            await self._ports.metadata.publish(attempt.segment)
            attempt.is_announced = True

    async def _store(self, segment: RemoteSegment, export: SegmentExport, content: SegmentBytes) -> None:
        traffic, topic = self._ports.traffic, segment.key.topic
        traffic.copies[topic] += 1
        try:
            await self._ports.store.copy(segment, SegmentFiles(export.log, *content))
        except (StoreError, OSError):
            traffic.failed_copies[topic] += 1
            log.info("%s: the copy %s failed", segment.key, uuid_to_string(segment.segment_id))
            raise

    def _check(self, tended: Tended, export: SegmentExport, epoch: int) -> None:
        """Raises `LeadershipEnded` unless this broker leads, and the records are still those of its log."""
        tended.check_leads(epoch)
        partition_log = tended.partition.log
        if export.end_offset > partition_log.last_stable_offset:
            raise LeadershipEnded(f"offset {export.end_offset - 1} is not stable any more")


def _close_what_is_to_be_clean(partition_log: PartitionLog, now_ms: int) -> None:
    """Only closed segments are cleaned. Raises KafkaError."""
    if partition_log.config.compacts and partition_log.active_segment.base_offset < partition_log.clean_wanted_to:
        partition_log.roll(now_ms)


def _is_same(before: RemoteSegment, now: RemoteSegment) -> bool:
    return _of_attempt(before) == _of_attempt(now)


def _of_attempt(segment: RemoteSegment) -> tuple[object, ...]:
    return (
        segment.start_offset,
        segment.end_offset,
        segment.leader_epochs,
        segment.size_bytes,
        segment.custom_metadata,
    )
