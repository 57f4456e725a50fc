"""One tiered partition: the real tasks over a real log, with a store and metadata in memory that can fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import trio

from barnabas.broker.remote.leader_tasks import RemoteTasks
from barnabas.broker.remote.ports import RemotePorts
from barnabas.broker.remote.segment_store import RemoteSegmentStore
from barnabas.broker.remote.traffic import RemoteTraffic
from barnabas.broker.replication.partition import Partition, PartitionHost
from barnabas.broker.replication.quota import ReplicationQuota
from barnabas.broker.replication.replica import Replica, ReplicaSettings
from barnabas.kraft.metadata.image import BrokerImage, PartitionImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import Notes
from barnabas.runtime.object_store import NoSuchObject, StoredObject, StoreError
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.world import Bytes, Chunk, FileRegion, World
from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import (
    MetadataRecord,
    PartitionDelete,
    RemotePartitionKey,
    RemoteSegment,
    SegmentState,
)
from tests.broker.some_settings import some_settings
from tests.storage.rig import NOW_MS, Rig, append, batch, small_segments

T = TypeVar("T")

TOPIC_ID = bytes(15) + b"\x09"
KEY = RemotePartitionKey(TOPIC_ID, "orders", 0)
NODE = 1


class MemoryStore:
    """An object store that fails as its `failing` says."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.failing: Callable[[str, str], bool] = lambda operation, key: False
        """Whether an operation on a key fails before it has an effect."""
        self.puts = 0

    def _try(self, operation: str, key: str) -> None:
        if self.failing(operation, key):
            raise StoreError(f"{operation} {key}: the store is away")

    async def put(self, key: str, parts: Sequence[Chunk], *, if_absent: bool = False) -> None:
        await trio.lowlevel.checkpoint()
        self._try("put", key)
        self.puts += 1
        self.objects[key] = b"".join(_bytes(part) for part in parts)

    async def get(self, key: str, start: int = 0, count: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        self._try("get", key)
        if key not in self.objects:
            raise NoSuchObject(key)
        return self.objects[key][start : None if count is None else start + count]

    async def size(self, key: str) -> int:
        return len(await self.get(key))

    async def delete(self, key: str) -> None:
        await trio.lowlevel.checkpoint()
        self._try("delete", key)
        self.objects.pop(key, None)

    async def list(self, prefix: str) -> list[StoredObject]:
        await trio.lowlevel.checkpoint()
        self._try("list", prefix)
        return [StoredObject(key, len(data), 0) for key, data in sorted(self.objects.items()) if key.startswith(prefix)]

    async def close(self) -> None: ...


def _bytes(part: Chunk) -> Bytes:
    return part.file.pread(part.count, part.offset) if isinstance(part, FileRegion) else part


class MemoryMetadata:
    """`RemoteMetadata` of one broker. Others publish through `apply`."""

    def __init__(self) -> None:
        self.known: dict[RemotePartitionKey, PartitionSegments] = {}
        self.records: list[MetadataRecord] = []
        self.followed: list[RemotePartitionKey] = []
        self.lost: str | None = None
        self.is_read = True
        self.failing: Callable[[MetadataRecord], bool] = lambda record: False
        """Whether a record is written but its publisher gets no answer."""

    def follow(self, keys: Collection[RemotePartitionKey]) -> None:
        self.followed = list(keys)

    def segments(self, key: RemotePartitionKey) -> PartitionSegments | None:
        return self.known.setdefault(key, PartitionSegments(key)) if self.is_read else None

    async def publish(self, record: MetadataRecord) -> None:
        await trio.lowlevel.checkpoint()
        is_applied = self.apply(record)
        if self.failing(record):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        if not is_applied:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no effect")

    def apply(self, record: MetadataRecord) -> bool:
        self.records.append(record)
        if isinstance(record, PartitionDelete):
            return True
        segments = self.known.setdefault(record.key, PartitionSegments(record.key))
        return bool(segments.apply(record))


class Clock:
    """Virtual time."""

    def __init__(self, base_ms: int = 0) -> None:
        self.base_ms = base_ms

    def now_ms(self) -> int:
        return self.base_ms + round(trio.current_time() * 1000)


async def run_blocking(work: Callable[[], T]) -> T:
    await trio.lowlevel.checkpoint()
    return work()


class NodeKilled(BaseException):
    """The node dies at a fault point."""


@dataclass
class Tier:
    """Use it inside `running`."""

    rig: Rig = field(default_factory=Rig)
    store: MemoryStore = field(default_factory=MemoryStore)
    metadata: MemoryMetadata = field(default_factory=MemoryMetadata)
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 7
    kill_at: str = ""
    passed: list[str] = field(default_factory=list)
    traffic: RemoteTraffic = field(default_factory=RemoteTraffic)
    notes: Notes = field(default_factory=Notes)

    partition: Partition = field(init=False)
    tasks: RemoteTasks = field(init=False)

    def open(self, config: TopicConfig, **last_run: Any) -> PartitionLog:
        """Open the log, as a follower."""
        log = self.rig.open(config, **last_run)
        replica = Replica(
            NODE, _broker, ReplicaSettings(), log.log_end_offset, log.high_watermark, leader_epoch=log.latest_epoch
        )
        host = PartitionHost(Clock(), Clock(NOW_MS), lambda *_: None, lambda *_: None, self._changed)
        self.partition = Partition("orders", TOPIC_ID, log, replica, host)
        return log

    def _changed(self, partition: Partition) -> None: ...

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    @property
    def segments(self) -> PartitionSegments:
        found = self.metadata.segments(KEY)
        assert found is not None
        return found

    def start(self, nursery: trio.Nursery) -> None:
        self.tasks = RemoteTasks(self.ports(nursery))
        nursery.start_soon(self.tasks.resume)
        nursery.start_soon(self.tasks.run)
        self.tasks.look(self.partition)
        self.tasks.follow()

    def ports(self, nursery: trio.Nursery) -> RemotePorts:
        settings = some_settings(**self.settings)
        world = World(
            None,  # type: ignore[arg-type]
            self.rig.disk,
            Clock(NOW_MS),
            Clock(),
            random.Random(self.seed),
            run_blocking,
            fault_point=self._reached,
        )
        return RemotePorts(
            world=world,
            directory="/logs",
            node_id=NODE,
            settings=lambda: settings,
            find=lambda topic_id, index: self.partition,
            store=RemoteSegmentStore(self.store, self._reached),
            metadata=self.metadata,  # type: ignore[arg-type]
            background=Background(nursery),
            decisions=self.notes,
            traffic=self.traffic,
            copy_quota=ReplicationQuota(QuotaWindows(), lambda: settings.remote_log_manager_copy_max_bytes_per_second),
        )

    def _reached(self, point: str) -> None:
        self.passed.append(point)
        if point == self.kill_at:
            raise NodeKilled(point)

    def lead(self, leader_epoch: int) -> None:
        self._is_now(NODE, leader_epoch)

    def follow(self, leader_epoch: int) -> None:
        self._is_now(NODE + 1, leader_epoch)

    def _is_now(self, leader: int, leader_epoch: int) -> None:
        image = PartitionImage(
            replicas=(NODE, NODE + 1),
            directories=(bytes(16), bytes(16)),
            isr=(leader,),
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=leader_epoch,
        )
        self.partition.partition_changed(image)
        if hasattr(self, "tasks"):
            self.tasks.look(self.partition)

    def configure(self, **changes: Any) -> None:
        self.log.config = replace(self.log.config, **changes)
        self.tasks.look(self.partition)

    def fill(self, count: int) -> None:
        for _ in range(count):
            append(self.log, batch(1, value=b"x" * 300), leader_epoch=self.partition.leader_epoch)
        self.log.set_high_watermark(self.log.log_end_offset)
        self.log.flush()

    def states(self) -> list[tuple[int, int, SegmentState]]:
        return sorted((each.start_offset, each.end_offset, each.state) for each in self.segments.all())

    def copied(self) -> list[RemoteSegment]:
        return [each for each in self.segments.all() if each.state is SegmentState.COPY_SEGMENT_FINISHED]


def _broker(broker_id: int) -> BrokerImage | None:
    return None


def tiered(**changes: Any) -> TopicConfig:
    values = {"local_retention_bytes": 0, "retention_ms": -1, "file_delete_delay_ms": 0, **changes}
    config = replace(small_segments(), **values)
    return replace(config, remote_storage_enable=True, remote_log_storage_system_enable=True)


async def until(condition: Callable[[], bool], seconds: float = 100) -> None:
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.1)
