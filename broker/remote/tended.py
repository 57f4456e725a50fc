"""A tiered partition of this broker, and what its tasks know of it between their rounds."""

from __future__ import annotations

from enum import Enum

import trio

from barnabas.broker.remote.traffic import PartitionGauges
from barnabas.broker.replication.partition import Partition
from barnabas.runtime.backoff import Backoff
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment

NOT_LED = -1


class Job(Enum):
    """The jobs of a partition; each has rounds of its own."""

    COPY = 0
    """The leader copies; a follower learns what has been copied."""
    EXPIRE = 1
    RECLEAN = 2
    """The leader compacts what is remote."""


def is_switched_off(partition: Partition) -> bool:
    config = partition.log.config
    return config.remote_log_storage_system_enable and (
        config.remote_log_delete_on_disable and not config.remote_storage_enable
    )


class LeadershipEnded(Exception):
    """This broker leads the partition no longer, or not in the same epoch, or it is not tiered any more."""


class Attempt:
    """A copy under way. If it fails, the same broker goes on with it in the same epoch: neither the metadata nor the
    store then has remains of it."""

    __slots__ = ("is_announced", "is_stored", "segment")

    def __init__(self, segment: RemoteSegment) -> None:
        self.segment = segment
        self.is_announced = False
        """COPY_SEGMENT_STARTED is in the metadata."""
        self.is_stored = False
        """All objects are in the store."""


class Tended:
    """One tiered partition. It is over once the partition is gone, or no longer tiered."""

    def __init__(self, partition: Partition, backoffs: dict[Job, Backoff]) -> None:
        self.partition = partition
        self.key = RemotePartitionKey(partition.topic_id, partition.topic, partition.index)
        self.is_over = False
        self.led_epoch = NOT_LED
        """The epoch for which the log start was looked up in the metadata."""
        self.attempt: Attempt | None = None
        self.given_up: dict[bytes, int] = {}
        """Ids of copies that this broker stopped, and when by the wall clock."""
        self.replacement: bytes | None = None
        """Id of the segment that this broker makes of others, to replace them."""
        self.gauges = PartitionGauges()
        self.due_ms: dict[Job, int] = {}
        """Monotonic time of the next round."""
        self.running: set[Job] = set()
        self.is_rung: set[Job] = set()
        """Something changed during the round: the next one follows at once."""
        self.backoffs = backoffs
        self.swept_ms: int | None = None
        """Monotonic time of the last look for objects that the metadata does not know."""
        self.has_ended = trio.Event()
        """Set when it is over and its last round has ended."""

    @property
    def is_switched_off(self) -> bool:
        """The topic is tiered no longer, and its remote data is to be deleted."""
        return is_switched_off(self.partition)

    def leads(self, leader_epoch: int) -> bool:
        partition = self.partition
        return not self.is_over and partition.is_leader and partition.leader_epoch == leader_epoch

    def check_leads(self, leader_epoch: int) -> None:
        """Raises `LeadershipEnded`."""
        if not self.leads(leader_epoch):
            raise LeadershipEnded(f"{self.partition} is led in epoch {leader_epoch} no longer")

    def give_up_attempt(self, now_ms: int) -> None:
        if self.attempt is not None:
            self.given_up[self.attempt.segment.segment_id] = now_ms
            self.attempt = None

    def give_up_replacement(self, now_ms: int) -> None:
        if self.replacement is not None:
            self.given_up[self.replacement] = now_ms
            self.replacement = None

    def being_copied(self, now_ms: int, kept_ms: int) -> set[bytes]:
        """Ids of copies that are under way, or were given up within `kept_ms`."""
        self.given_up = {each: at_ms for each, at_ms in self.given_up.items() if now_ms - at_ms < kept_ms}
        own = set() if self.attempt is None else {self.attempt.segment.segment_id}
        if self.replacement is not None:
            own.add(self.replacement)
        return own | self.given_up.keys()

    def __str__(self) -> str:
        return self.partition.name
