"""Shell: deletes remote segments of led partitions that retention, the log start or the lineage of the log does not
keep (Kafka's RLMExpirationTask), and all of them where tiering was switched off with `remote.log.delete.on.disable`.

The log start offset moves before anything is deleted, so that no reader is sent to what is about to go. A new leader
finds the rest below its log start.
"""

from __future__ import annotations

import logging

import trio

from barnabas.broker.remote.ports import RemotePorts
from barnabas.broker.remote.segment_deletion import delete_segment
from barnabas.broker.remote.tended import LeadershipEnded, Tended
from barnabas.storage.remote.expiry import ABANDONED_AFTER_MS, Expiry, ExpiryFacts, expire
from barnabas.storage.remote.lineage import PROVEN_IN_A_STEP, proven_end
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemoteSegment

SWEEP_INTERVAL_MS = 6 * 3600 * 1000
ORPHAN_AGE_MS = 3600 * 1000
"""An object may be younger than the record about it seems to be: the store has a clock of its own."""

log = logging.getLogger(__name__)


class Expirer:
    def __init__(self, ports: RemotePorts) -> None:
        self._ports = ports

    async def round(self, tended: Tended) -> bool:
        """Delete what is due, if this broker leads. False if the metadata is not read yet.

        Raises StoreError, KafkaError: the next round goes on.
        """
        segments = self._ports.metadata.segments(tended.key)
        if segments is None:
            return False
        partition, gauges = tended.partition, tended.gauges
        if not partition.is_leader:
            gauges.delete_lag_bytes = gauges.delete_lag_segments = 0
            gauges.known_segments = gauges.remote_bytes = 0
            return True
        gauges.known_segments, gauges.remote_bytes = len(segments), segments.finished_bytes
        epoch = partition.leader_epoch
        try:
            if tended.is_switched_off:
                await self._delete(tended, segments.all(), epoch)
            elif tended.led_epoch == epoch:
                expiry = await self._decide(tended, segments)
                tended.check_leads(epoch)
                partition.advance_log_start(expiry.log_start_offset)
                self._ports.world.fault_point("remote.delete.start_moved")
                await self._delete(tended, list(expiry.delete.values()), epoch)
                await self._sweep(tended, segments)
        except LeadershipEnded as error:
            log.info("%s: deletion of remote segments stops: %s", tended, error)
        return True

    async def _sweep(self, tended: Tended, segments: PartitionSegments) -> None:
        """Now and then: delete what the store has and the metadata does not know, but not if the metadata misses
        records of the log: those objects may be their only copy."""
        world = self._ports.world
        now_ms = world.monotonic.now_ms()
        if tended.swept_ms is not None and now_ms - tended.swept_ms < SWEEP_INTERVAL_MS:
            return
        tended.swept_ms = now_ms
        if self._ports.metadata.lost is not None or not await self._is_whole(tended, segments):
            log.error("%s: the metadata does not know all remote segments: what is in the store is kept", tended)
            return
        known = {segment.segment_id for segment in segments.all()}
        orphans = await self._ports.store.orphans(tended.key, known, world.wall_clock.now_ms() - ORPHAN_AGE_MS)
        for orphan in orphans:
            log.warning("%s: %s is in the store, but the metadata does not know it: deleted", tended, orphan.keys[0])
        await self._ports.store.delete_stored(orphans)

    @staticmethod
    async def _is_whole(tended: Tended, segments: PartitionSegments) -> bool:
        """True if every record that is not on the local disk can be read remotely."""
        partition_log = tended.partition.log
        offset = partition_log.log_start_offset
        while offset < partition_log.local_log_start_offset:
            end = partition_log.log_end_offset
            proven = proven_end(partition_log.epochs, end, segments, offset, PROVEN_IN_A_STEP)
            if proven == offset:
                return False
            offset = proven
            await trio.lowlevel.checkpoint()
        return True

    async def _decide(self, tended: Tended, segments: PartitionSegments) -> Expiry:
        """In steps of the event loop."""
        monotonic = self._ports.world.monotonic
        began_ms = monotonic.now_ms()
        steps = expire(segments, self._facts(tended))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                expiry: Expiry = end.value
                tended.gauges.computation_ms = monotonic.now_ms() - began_ms
                return expiry
            await trio.lowlevel.checkpoint()

    def _facts(self, tended: Tended) -> ExpiryFacts:
        partition_log = tended.partition.log
        config, now_ms = partition_log.config, self._ports.world.wall_clock.now_ms()
        copied = partition_log.highest_copied_offset
        return ExpiryFacts(
            epochs=partition_log.epochs.entries(),
            log_start_offset=partition_log.log_start_offset,
            log_end_offset=partition_log.log_end_offset,
            only_local_bytes=sum(each.size_bytes for each in partition_log.segments if each.base_offset > copied),
            retention_ms=config.retention_ms if config.deletes else -1,
            retention_bytes=config.retention_bytes if config.deletes else -1,
            now_ms=now_ms,
            superseded_kept_ms=config.file_delete_delay_ms,
            being_copied=tended.being_copied(now_ms, ABANDONED_AFTER_MS),
        )

    async def _delete(self, tended: Tended, segments: list[RemoteSegment], epoch: int) -> None:
        gauges = tended.gauges
        gauges.delete_lag_segments = len(segments)
        gauges.delete_lag_bytes = sum(each.size_bytes for each in segments)
        for segment in segments:
            tended.check_leads(epoch)
            await delete_segment(self._ports, segment, lambda: tended.check_leads(epoch))
            gauges.delete_lag_segments -= 1
            gauges.delete_lag_bytes -= segment.size_bytes
            log.info("%s: offsets %d to %d are no longer remote", tended, segment.start_offset, segment.end_offset)
