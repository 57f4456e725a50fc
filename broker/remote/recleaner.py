"""Shell: compacts what is remote of led partitions (`storage.remote.recleaning` decides what, `remote_pass` does it).

One partition of a broker is worked on at a time. Whatever ends in the middle leaves the groups so far replaced and the
others as they were; the segment under way is found in the metadata, and deleted.
"""

from __future__ import annotations

import logging

import trio

from barnabas.broker.remote.ports import RemotePorts
from barnabas.broker.remote.remote_pass import CannotReclean, RemotePass, Work
from barnabas.broker.remote.tended import LeadershipEnded, Tended
from barnabas.storage.cleaning import Throttle
from barnabas.storage.indexes import CorruptIndex
from barnabas.storage.remote.compacted_copy import CompactedCopy
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.recleaning import LogState, Row, cleaned_to_in, readable_row
from barnabas.storage.remote.segment import SegmentState, SegmentUpdate

log = logging.getLogger(__name__)


class Recleaner:
    def __init__(self, ports: RemotePorts) -> None:
        self._ports = ports
        self._throttle = Throttle()

    async def round(self, tended: Tended) -> bool:
        """One pass, if it is worth it and this broker leads. False if the metadata is not read yet.

        Raises StoreError, KafkaError, OSError, CorruptBatch: the next round goes on.
        """
        segments = self._ports.metadata.segments(tended.key)
        if segments is None:
            return False
        partition, config = tended.partition, tended.partition.log.config
        epoch = partition.leader_epoch
        # The copier looks up the log start of a new leader first.
        if not (partition.is_leader and tended.led_epoch == epoch and config.compacts and config.copies_to_remote):
            return True
        row = await self._row(tended, segments)
        if self._ports.metadata.lost is not None or not row.is_worth_it(config):
            return True
        try:
            await self._shut_out_earlier_leaders(tended, segments, row, epoch)
            row = await self._row(tended, segments)
            if row.is_worth_it(config):
                await RemotePass(self._ports, self._throttle, Work(tended, segments, row, epoch)).run()
        except LeadershipEnded as error:
            log.info("%s: compaction of what is remote stops: %s", tended, error)
        except (CannotReclean, CorruptIndex) as error:
            log.error("%s: what is remote is not compacted: %s", tended, error)
        finally:
            tended.give_up_replacement(self._ports.world.wall_clock.now_ms())
        return True

    async def _row(self, tended: Tended, segments: PartitionSegments) -> Row:
        """In steps of the event loop."""
        steps = readable_row(segments, _state_of(tended))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                row: Row = end.value
                return row
            await trio.lowlevel.checkpoint()

    async def _shut_out_earlier_leaders(
        self, tended: Tended, segments: PartitionSegments, row: Row, epoch: int
    ) -> None:
        """Publish a record of this epoch: what an earlier leader has not finished by then will have no effect. So the
        segments change no more but by this broker, and a plan that is made afterwards holds."""
        if segments.newest_copier_epoch >= epoch:
            return
        first = row.parts[0].segment
        copy = CompactedCopy(epoch, cleaned_to_in(first, _state_of(tended)))
        now_ms = self._ports.world.wall_clock.now_ms()
        await self._ports.metadata.publish(
            SegmentUpdate(
                tended.key,
                first.segment_id,
                now_ms,
                SegmentState.COPY_SEGMENT_FINISHED,
                self._ports.node_id,
                copy.encode(),
            )
        )
        tended.check_leads(epoch)


def _state_of(tended: Tended) -> LogState:
    partition_log = tended.partition.log
    return LogState(partition_log.epochs, partition_log.log_start_offset, partition_log.log_end_offset)
