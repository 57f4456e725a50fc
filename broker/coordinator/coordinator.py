"""Shell: all shards of one internal topic that this broker leads, and the way from a key to its shard.

A partition's leader is the coordinator of the keys that hash to it. A shard is made when the partition is led here,
loaded in a task of its own, and dropped when it is not; nothing else decides. Knows neither groups nor transactions:
what a machine is, `make_machine` knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import ModuleType
from typing import Generic, TypeVar

from broker.coordinator.outcome import Machine
from broker.coordinator.shard import Shard, ShardState, ShardTimers
from broker.replication.partition import Partition
from broker.timing_wheel import TimingWheel
from kraft.metadata.delta import MetadataDelta
from kraft.metadata.image import MetadataImage, PartitionImage
from protocol.errors import ErrorCode, KafkaError
from protocol.records.coordinator import record_types
from runtime.background import Background
from runtime.decisions import Decisions
from runtime.world import World

log = logging.getLogger(__name__)

MachineT = TypeVar("MachineT", bound=Machine)

_MASK = 0xFFFFFFFF


LONGEST_KEY = 32_767
"""Characters of a group id or a transactional id: longer ones do not fit into the records of their topic."""

_LONGEST_REMEMBERED = 256


def java_hash(text: str) -> int:
    """`String.hashCode` of Java, an int32: by it keys are spread over partitions."""
    return _remembered_hash(text) if len(text) <= _LONGEST_REMEMBERED else _hash(text)


def _hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for place in range(0, len(data), 2):
        value = (value * 31 + (data[place] << 8 | data[place + 1])) & _MASK
    return value - (1 << 32) if value >> 31 else value


_remembered_hash = lru_cache(maxsize=4096)(_hash)


def partition_for(key: str, partitions: int) -> int:
    """Which of the internal topic's partitions is responsible for a group or a transactional id."""
    value = java_hash(key)
    # As Kafka's Utils.abs has it: the least int has no positive twin and counts as 0.
    return (0 if value == -(1 << 31) else abs(value)) % partitions


def work_of_key(key: str) -> int:
    """Items of work, as a `Meter` counts them, that finding the partition of a long key takes."""
    return len(key) // 100


@dataclass(frozen=True, slots=True)
class CoordinatedTopic:
    """The internal topic under one kind of coordinator."""

    name: str
    messages: ModuleType
    """`protocol.messages.…` with its keys and values."""
    commit_timeout_ms: Callable[[], int]
    """How long an answer may wait for the replicas."""
    compression: Callable[[], int] = lambda: 0


class Coordinator(Generic[MachineT]):
    """One kind of coordinator on this broker."""

    def __init__(  # noqa: PLR0913 - made in one place
        self,
        topic: CoordinatedTopic,
        world: World,
        background: Background,
        wheel: TimingWheel,
        image: Callable[[], MetadataImage],
        make_machine: Callable[[Partition, ShardTimers], MachineT],
        *,
        decisions: Decisions | None = None,
    ) -> None:
        self._decisions = decisions
        self.topic = topic
        self._world = world
        self._background = background
        self._wheel = wheel
        self._image = image
        self._make_machine = make_machine
        self._types = dict(record_types(topic.messages))
        self._shards: dict[int, Shard[MachineT]] = {}
        self._forgotten: dict[int, Partition] = {}
        """Led here as far as this broker knows, and given up because others may lead them by now."""
        self._stopped = False

    # -- looking

    def partition_of(self, key: str) -> int | None:
        """The partition that is responsible for `key`; None while the topic does not exist. Raises KafkaError
        (INVALID_REQUEST) for a key that no record can hold."""
        if len(key) > LONGEST_KEY:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"an id has at most {LONGEST_KEY} characters, not {len(key)}")
        image = self._image().topics.by_name.get(self.topic.name)
        return None if image is None or not image.partitions else partition_for(key, len(image.partitions))

    def placed(self, key: str) -> PartitionImage | None:
        """Where that partition is, by the newest metadata."""
        image = self._image().topics.by_name.get(self.topic.name)
        index = self.partition_of(key)
        return None if image is None or index is None else image.partitions.get(index)

    def shard(self, key: str) -> Shard[MachineT]:
        """The active shard of `key`. Raises KafkaError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST.
        """
        index = self.partition_of(key)
        if index is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic.name} does not exist yet")
        return self.shard_at(index)

    def shard_at(self, index: int) -> Shard[MachineT]:
        """The active shard of a partition. Raises as `shard`."""
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard.check_active()
        return shard

    @property
    def shards(self) -> list[Shard[MachineT]]:
        """Those that are loading or active, by partition."""
        usable = (ShardState.LOADING, ShardState.ACTIVE)
        return [shard for _, shard in sorted(self._shards.items()) if shard.state in usable]

    @property
    def may_be_deposed(self) -> bool:
        """Whether others may have taken over something that is coordinated here. A list would not be whole then."""
        return bool(self._forgotten) or any(shard.may_be_deposed for shard in self._shards.values())

    def may_have_lost(self, index: int) -> bool:
        """Whether a partition was led here when this broker last heard anything, and others may lead it by now."""
        shard = self._shards.get(index)
        return index in self._forgotten if shard is None else shard.may_be_deposed

    # -- what happens to the partitions

    def look_at_forgotten(self) -> None:
        """To be called regularly. A shard is given up while others may lead its partition, as if that were known: its
        waiters look for the new coordinator, and its timers expel nobody. If this broker leads the partition
        after all, the log is loaded again, and members get a whole session to come back.
        """
        for index, shard in list(self._shards.items()):
            if shard.may_be_deposed:
                log.info("%r is given up: this broker hears neither controllers nor followers", shard)
                del self._shards[index]
                self._forgotten[index] = shard.partition
                shard.give_up()
        for partition in list(self._forgotten.values()):
            if not partition.is_forgotten:
                self.leadership_changed(partition)

    def leadership_changed(self, partition: Partition) -> None:
        """This partition is led here now, or in a new epoch, or not any more."""
        if partition.topic != self.topic.name or self._stopped:
            return
        self._forgotten.pop(partition.index, None)
        shard = self._shards.get(partition.index)
        if shard is not None and (shard.partition is not partition or not partition.is_leader):
            log.info("%r is given up", shard)
            del self._shards[partition.index]
            shard.give_up()
            shard = None
        if not partition.is_leader:
            return
        if shard is not None and shard.state is not ShardState.FAILED:
            # Led all the time: the log holds nothing that was not written here.
            shard.epoch = partition.leader_epoch
            return
        self._begin(partition)

    def stop(self) -> None:
        """Coordinate nothing any more: the logs are about to be closed."""
        self._stopped = True
        for shard in self._shards.values():
            shard.give_up()
        self._shards.clear()
        self._forgotten.clear()

    def _begin(self, partition: Partition) -> None:
        timers = ShardTimers(self._wheel)
        shard = Shard(
            self._world,
            partition,
            self._make_machine(partition, timers),
            timers,
            self._types,
            commit_timeout_ms=self.topic.commit_timeout_ms(),
            compression=self.topic.compression(),
            decisions=self._decisions,
        )
        self._shards[partition.index] = shard
        self._background.spawn(shard.load, failed=shard.load_failed)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """To be called after the partitions were told."""
        if delta.is_empty:
            return
        for shard in self.shards:
            if shard.state is ShardState.ACTIVE:
                shard.run(partial(shard.machine.metadata_changed, delta), None)
