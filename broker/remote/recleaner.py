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
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import CorruptBatch
from barnabas.runtime.object_store import StoreError
from barnabas.storage.cleaning import Throttle
from barnabas.storage.indexes import CorruptIndex
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.recleaning import LogState, Row, readable_row

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
        tended.gauges.dirty_share = row.dirty_ratio
        if self._ports.metadata.lost is not None or not row.is_worth_it(config):
            return True
        await self._pass(Work(tended, segments, row, epoch))
        row = await self._row(tended, segments)
        tended.gauges.dirty_share = row.dirty_ratio
        return True

    async def _pass(self, work: Work) -> None:
        tended, traffic, world = work.tended, self._ports.traffic, self._ports.world
        topic, began_ms = tended.key.topic, world.monotonic.now_ms()
        try:
            await RemotePass(self._ports, self._throttle, work).run()
            traffic.passes[topic] += 1
        except LeadershipEnded as error:
            log.info("%s: compaction of what is remote stops: %s", tended, error)
        except (CannotReclean, CorruptIndex) as error:
            traffic.failed_passes[topic] += 1
            log.error("%s: what is remote is not compacted: %s", tended, error)
        except (StoreError, KafkaError, OSError, CorruptBatch):
            traffic.failed_passes[topic] += 1
            raise
        finally:
            traffic.pass_ms[topic] += world.monotonic.now_ms() - began_ms
            tended.give_up_replacement(world.wall_clock.now_ms())

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


def _state_of(tended: Tended) -> LogState:
    partition_log = tended.partition.log
    return LogState(partition_log.epochs, partition_log.log_start_offset, partition_log.log_end_offset)
