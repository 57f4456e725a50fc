"""Shell: the pending records of one partition that this broker leads."""

from __future__ import annotations

from typing import Final

import trio

from barnabas.broker.delayed.carrying import Carrying
from barnabas.broker.delayed.delivery import OpenedBatches
from barnabas.broker.delayed.pending import PendingRecords
from barnabas.broker.replication.partition import Partition
from barnabas.broker.timing_wheel import TimerEntry
from barnabas.storage.producers import Warrant

MOST_AT_ONCE: Final = 1_000
"""Records of one batch that delivers."""
ADMITTED: Final = Warrant(is_admitted=True)


class LedDeliveries:
    """The pending records of one partition, for one leader epoch."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.pending = PendingRecords()
        self.is_loaded = False
        self.opened = OpenedBatches()
        self.most = MOST_AT_ONCE
        self.is_delivering = False
        self.lock = trio.Lock()
        """Held while some records are neither in the schedule nor delivered."""
        self.carrying: Carrying | None = None
        self.timer: TimerEntry | None = None
        self.is_dropped = False

    @property
    def is_current(self) -> bool:
        partition = self.partition
        return not self.is_dropped and partition.is_leader and partition.leader_epoch == self.epoch

    def moved(self) -> None:
        """Records were added, delivered or carried: the log keeps what is pending from here on."""
        if self.is_loaded and not self.is_dropped:
            partition_log = self.partition.log
            partition_log.pending_from = self.pending.floor(partition_log.log_end_offset)
