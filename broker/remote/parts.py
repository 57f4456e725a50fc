"""The parts of tiered storage on one broker, and how they learn of partitions. A broker without tiered storage has none
of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import trio

from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.remote.deletion_marks import DeletionMarks, MarksPorts
from barnabas.broker.remote.leader_tasks import RemoteTasks
from barnabas.broker.remote.metadata_topic import RemoteMetadata
from barnabas.broker.remote.metrics import remote_families
from barnabas.broker.remote.ports import RemotePorts
from barnabas.broker.remote.reading import ReadingPorts, RemoteReading
from barnabas.broker.remote.reading_metrics import reading_families
from barnabas.broker.remote.segment_store import RemoteSegmentStore
from barnabas.broker.remote.traffic import RemoteTraffic
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.replication.quota import ReplicationQuota
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage, PartitionImage
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import Notepad
from barnabas.runtime.families import Family
from barnabas.runtime.meter import Meter
from barnabas.runtime.object_store import ObjectStore
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.steps import Steps
from barnabas.runtime.world import World
from barnabas.storage.remote.segment import RemotePartitionKey

PARTITION_ITEMS = 2
"""Items of work (see `Meter`) that it takes to look at a partition."""


@dataclass(frozen=True, slots=True)
class RemotePartsPorts:
    world: World
    directory: str
    """A log directory, for what has to be remembered."""
    node_id: int
    settings: CurrentSettings
    partitions: Partitions
    image: Callable[[], MetadataImage]
    metadata: RemoteMetadata
    background: Background
    decisions: Notepad
    memory_bytes: int
    """Memory of the node for connections, of which readers take a part."""


class RemoteParts:
    """Tiered storage on one broker."""

    def __init__(self, ports: RemotePartsPorts, store: ObjectStore) -> None:
        self._ports = ports
        world, settings = ports.world, ports.settings
        self.traffic = RemoteTraffic()
        self.store = RemoteSegmentStore(store, world.fault_point)
        self.metadata = ports.metadata
        self.tasks = RemoteTasks(
            RemotePorts(
                world=world,
                directory=ports.directory,
                node_id=ports.node_id,
                settings=settings,
                find=ports.partitions.find,
                store=self.store,
                metadata=ports.metadata,
                background=ports.background,
                decisions=ports.decisions,
                traffic=self.traffic,
                copy_quota=_quota(
                    settings().remote_log_manager_copy_quota_window_num,
                    settings().remote_log_manager_copy_quota_window_size_seconds,
                    lambda: settings().remote_log_manager_copy_max_bytes_per_second,
                ),
            )
        )
        self.deletions = DeletionMarks(
            MarksPorts(
                world=world, partitions=ports.partitions, image=ports.image, delete=self._delete_remains
            )
        )
        fetch_quota = _quota(
            settings().remote_log_manager_fetch_quota_window_num,
            settings().remote_log_manager_fetch_quota_window_size_seconds,
            lambda: settings().remote_log_manager_fetch_max_bytes_per_second,
        )
        self.reading = RemoteReading(
            ReadingPorts(
                store=self.store,
                segments=ports.metadata.segments,
                background=ports.background,
                monotonic=world.monotonic,
                settings=settings,
                quota=fetch_quota,
                memory_bytes=ports.memory_bytes,
            )
        )

    async def run(self) -> None:
        """Run until cancelled; then the connections to the store are given up."""
        await self.tasks.resume()
        self._ports.background.spawn(self.deletions.run)
        try:
            await self.tasks.run()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await self.store.close()

    # -- news

    def leadership_changed(self, partition: Partition) -> None:
        self.tasks.look(partition)

    def partition_committed(self, partition: Partition) -> None:
        self.metadata.partition_committed(partition)

    def metadata_changed(self, delta: MetadataDelta) -> Steps:
        """The partitions of this broker have changed as in `delta`; in steps of some partitions."""
        meter = Meter()
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            self.tasks.settings_changed()
        for topic_id, gone in delta.deleted_topics.items():
            if not self._may_be_tiered(delta, gone.name):
                continue
            for index, image in gone.partitions.items():
                self._partition_deleted(RemotePartitionKey(topic_id, gone.name, index), _deleter_of(image, delta.after))
                if meter.step_ends(PARTITION_ITEMS):
                    yield None
        for partition in list(self._changed(delta)):
            self.tasks.look(partition)
            if meter.step_ends(PARTITION_ITEMS):
                yield None
        self.tasks.follow()
        self.metadata.metadata_changed(delta)

    def _partition_deleted(self, key: RemotePartitionKey, deleter: int) -> None:
        if deleter == self._ports.node_id:
            self.tasks.deleted([key])
        elif self.metadata.leads_records_of(key):
            self.tasks.deleted_by_another(key, deleter)

    def _delete_remains(self, keys: Iterable[RemotePartitionKey]) -> None:
        """Another broker did not finish the deletion of these partitions."""
        self.tasks.deleted(keys)
        self.tasks.follow()

    def _changed(self, delta: MetadataDelta) -> Iterator[Partition]:
        """Partitions of this broker that are new, or whose configs changed."""
        configs = {name for kind, name in delta.changed_configs if kind == TOPIC_RESOURCE}
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            yield from self._ports.partitions
            return
        for topic in delta.changed_topics.values():
            for index in topic.changed_partitions:
                partition = self._ports.partitions.find(topic.id, index)
                if partition is not None:
                    yield partition
        for name in configs:
            topic_image = delta.after.topics.by_name.get(name)
            for index in topic_image.partitions if topic_image is not None else ():
                partition = self._ports.partitions.find(name, index)
                if partition is not None:
                    yield partition

    @staticmethod
    def _may_be_tiered(delta: MetadataDelta, topic: str) -> bool:
        configs = delta.before.config(TOPIC_RESOURCE, topic)
        return "remote.storage.enable" in configs or "remote.log.delete.on.disable" in configs

    # -- metrics

    def families(self) -> Iterator[Family]:
        yield from remote_families(self.traffic, self.tasks, self.tasks.idle_share)
        yield from reading_families(self.reading)


def _deleter_of(partition: PartitionImage, image: MetadataImage) -> int:
    """The broker that deletes the remote segments of a deleted partition: its leader, or else the first replica whose
    broker is alive, or else any other broker."""
    for broker_id in (partition.leader, *partition.replicas, *sorted(image.cluster.brokers)):
        broker = image.cluster.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            return broker_id
    return partition.leader


def _quota(samples: int, seconds: int, limit: Callable[[], int]) -> ReplicationQuota:
    return ReplicationQuota(QuotaWindows(samples, seconds * 1000), limit)
