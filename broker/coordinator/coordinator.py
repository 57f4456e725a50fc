"""Shell: all shards of one internal topic that this broker leads, and the lookup from a key to its shard.

The leader of a partition coordinates the keys that hash to it. A shard is created when this broker becomes the leader,
loaded in a task of its own, and dropped with the leadership. Knows neither groups nor transactions: a
`CoordinatedKind` makes the state machine. While that is not loaded (`runtime/late.py`), an empty partition has no
shard: the first request opens it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import ModuleType
from typing import Generic, TypeVar

from barnabas.broker.coordinator.outcome import Machine
from barnabas.broker.coordinator.shard import Shard, ShardContext, ShardState
from barnabas.broker.coordinator.shard_timers import ShardTimers
from barnabas.broker.replication.partition import Partition
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import MetadataImage, PartitionImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.coordinator import RecordType, record_types
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.late import Late
from barnabas.runtime.world import World

log = logging.getLogger(__name__)

MachineT = TypeVar("MachineT", bound=Machine)

_MASK = 0xFFFFFFFF


LONGEST_KEY = 32_767
"""Maximum length of a group id or transactional id, in characters: longer ones do not fit into the records of their
topic.
"""

_LONGEST_REMEMBERED = 256


def java_hash(text: str) -> int:
    """`String.hashCode` of Java, an int32. Kafka assigns keys to partitions by it."""
    return _remembered_hash(text) if len(text) <= _LONGEST_REMEMBERED else _hash(text)


def _hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for place in range(0, len(data), 2):
        value = (value * 31 + (data[place] << 8 | data[place + 1])) & _MASK
    return value - (1 << 32) if value >> 31 else value


_remembered_hash = lru_cache(maxsize=4096)(_hash)


def partition_for(key: str, partitions: int) -> int:
    """The partition of the internal topic that is responsible for a group id or a transactional id."""
    value = java_hash(key)
    # Like Kafka's Utils.abs: the minimum int has no positive counterpart and counts as 0.
    return (0 if value == -(1 << 31) else abs(value)) % partitions


def work_of_key(key: str) -> int:
    """Cost of hashing a long key, in the items of work that a `Meter` counts."""
    return len(key) // 100


@dataclass(frozen=True, slots=True)
class CoordinatedTopic:
    """The internal topic of one kind of coordinator."""

    name: str
    commit_timeout_ms: Callable[[], int]
    """Maximum time that an answer waits for the replicas."""
    compression: Callable[[], int] = lambda: 0


@dataclass(frozen=True, slots=True)
class CoordinatedKind(Generic[MachineT]):
    """Groups, transactions, or share partitions."""

    messages: ModuleType
    """Module `protocol.messages.…` that defines the keys and values of the records."""
    make_machine: Callable[[Partition, ShardTimers], MachineT]


class Coordinator(Generic[MachineT]):
    """All shards of one kind of coordinator on this broker."""

    def __init__(  # noqa: PLR0913 - made in one place
        self,
        topic: CoordinatedTopic,
        world: World,
        background: Background,
        wheel: TimingWheel,
        image: Callable[[], MetadataImage],
        kind: Late[CoordinatedKind[MachineT]],
        *,
        decisions: Decisions | None = None,
    ) -> None:
        self._decisions = decisions
        self.topic = topic
        self._world = world
        self._background = background
        self._wheel = wheel
        self._image = image
        self._kind = kind
        self._types: dict[int, RecordType] = {}
        self._shards: dict[int, Shard[MachineT]] = {}
        self._unopened: dict[int, Partition] = {}
        """Led here, but without a shard: nothing is in them, and the kind is not loaded."""
        self._forgotten: dict[int, Partition] = {}
        """Led here according to this broker's metadata, but given up because another broker may lead them by now."""
        self._stopped = False

    # -- lookup

    def partition_of(self, key: str) -> int | None:
        """The partition that is responsible for `key`; None while the topic does not exist. Raises KafkaError
        (INVALID_REQUEST) for a key that no record can hold.
        """
        if len(key) > LONGEST_KEY:
            message = f"the id must have at most {LONGEST_KEY} characters; got {len(key)}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        image = self._image().topics.by_name.get(self.topic.name)
        return None if image is None or not image.partitions else partition_for(key, len(image.partitions))

    def placed(self, key: str) -> PartitionImage | None:
        """The partition of `key` in the newest metadata, with its leader."""
        image = self._image().topics.by_name.get(self.topic.name)
        index = self.partition_of(key)
        return None if image is None or index is None else image.partitions.get(index)

    def shard(self, key: str) -> Shard[MachineT]:
        """The active shard of `key`. Raises KafkaError: NOT_COORDINATOR, also while the topic does not exist,
        COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST.
        """
        index = self.partition_of(key)
        if index is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self.shard_at(index)

    def shard_at(self, index: int) -> Shard[MachineT]:
        """The active shard of a partition. Raises as `shard`."""
        shard = self._shards.get(index)
        if shard is None and index in self._unopened:
            self._background.spawn(self.load)
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard.check_active()
        return shard

    @property
    def shards(self) -> list[Shard[MachineT]]:
        """Shards that are loading or active, ordered by partition."""
        usable = (ShardState.LOADING, ShardState.ACTIVE)
        return [shard for _, shard in sorted(self._shards.items()) if shard.state in usable]

    @property
    def may_be_deposed(self) -> bool:
        """True if another broker may have taken over a partition that is coordinated here; a list of groups would then
        be incomplete.
        """
        shards, unopened = self._shards.values(), self._unopened.values()
        if self._forgotten or any(each.is_forgotten for each in unopened):
            return True
        return any(shard.may_be_deposed for shard in shards)

    def may_have_lost(self, index: int) -> bool:
        """True if this broker led the partition according to its last contact with the controllers, and another may
        lead it by now.
        """
        shard, unopened = self._shards.get(index), self._unopened.get(index)
        if unopened is not None:
            return unopened.is_forgotten
        return index in self._forgotten if shard is None else shard.may_be_deposed

    # -- leadership changes

    def check_forgotten(self) -> None:
        """Give up shards while another broker may lead their partitions. Must be called regularly.

        Clients that wait are then sent to look for the new coordinator, and no timer expels a member. If this broker
        turns out to lead the partition after all, the log is loaded again and every member gets a full session timeout.
        """
        for index, shard in list(self._shards.items()):
            if shard.may_be_deposed:
                log.info("%r is given up: this broker has lost contact with controllers and followers", shard)
                del self._shards[index]
                self._forgotten[index] = shard.partition
                shard.give_up()
        for partition in list(self._forgotten.values()):
            if not partition.is_forgotten:
                self.leadership_changed(partition)

    def leadership_changed(self, partition: Partition) -> None:
        """This broker became the leader of the partition, got a new leader epoch, or lost the leadership."""
        if partition.topic != self.topic.name or self._stopped:
            return
        self._forgotten.pop(partition.index, None)
        self._unopened.pop(partition.index, None)
        shard = self._shards.get(partition.index)
        if shard is not None and (shard.partition is not partition or not partition.is_leader):
            log.info("%r is given up", shard)
            del self._shards[partition.index]
            shard.give_up()
            shard = None
        if not partition.is_leader:
            return
        if shard is not None and shard.state is not ShardState.FAILED:
            # This broker led the partition all the time, so the log holds nothing that it did not write itself.
            shard.epoch = partition.leader_epoch
            return
        self._begin(partition)

    def stop(self) -> None:
        """Give up all shards; the logs are about to be closed."""
        self._stopped = True
        for shard in self._shards.values():
            shard.give_up()
        self._shards.clear()
        self._forgotten.clear()
        self._unopened.clear()

    async def load(self) -> None:
        """Load the kind in a thread, and open what waits for it."""
        await self._world.run_blocking(self._kind.load)
        self.open()

    def open(self) -> None:
        """Give the partitions that wait for it a shard. The kind should be loaded."""
        self._kind.get()
        unopened, self._unopened = list(self._unopened.values()), {}
        for partition in unopened:
            shard = self._make_shard(partition)
            if partition.log.log_end_offset == 0:
                shard.load_nothing()  # so the request that opened it is served
            else:
                self._background.spawn(shard.load, failed=shard.load_failed)

    def _begin(self, partition: Partition) -> None:
        if self._kind.is_loaded:
            shard = self._make_shard(partition)
            self._background.spawn(shard.load, failed=shard.load_failed)
            return
        self._unopened[partition.index] = partition
        if partition.log.log_end_offset > 0:
            self._background.spawn(self.load)

    def _make_shard(self, partition: Partition) -> Shard[MachineT]:
        kind, topic, timers = self._kind.get(), self.topic, ShardTimers(self._wheel)
        if not self._types:
            self._types = dict(record_types(kind.messages))
        context = ShardContext(
            self._world, self._types, topic.commit_timeout_ms(), topic.compression(), self._decisions
        )
        shard = Shard(context, partition, kind.make_machine(partition, timers), timers)
        self._shards[partition.index] = shard
        return shard

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Must be called after the partitions have applied `delta`."""
        if delta.is_empty:
            return
        for shard in self.shards:
            if shard.state is ShardState.ACTIVE:
                shard.run(partial(shard.machine.metadata_changed, delta), None)
