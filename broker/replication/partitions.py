"""Shell: the partitions of which this broker has a replica, and the effects of metadata changes on them.

Only the metadata log adds and removes partitions. All effects of one change happen here, in order and on one thread.
Creating a log is the only slow part: `prepare` returns the logs that are needed, and `apply_delta` is called when they
exist (`MetadataPublisher`).

Knows no requests. The caller resolves the settings of a topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from barnabas.broker.replication.partition import Partition, PartitionHost
from barnabas.broker.replication.replica import NEVER_MS, Replica, ReplicaSettings
from barnabas.kraft.metadata.delta import MetadataDelta, TopicDelta
from barnabas.kraft.metadata.image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.decisions import DecisionKind
from barnabas.runtime.meter import Meter
from barnabas.runtime.steps import Steps
from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import NewLog

log = logging.getLogger(__name__)

MAX_NOTED = 1000
"""Replicas lost together that get a decision note each."""

TOPIC_ITEMS = 8
"""Items of work that it takes to find the config of a topic."""

PARTITION_ITEMS = 4
"""Items of work (see `Meter`) that it takes to open, change or remove a partition."""

PartitionKey = tuple[bytes, int]
"""(topic id, partition)"""


class LogStore(Protocol):
    """The part of `broker.log_store.LogStore` that is used here."""

    def open_log(
        self, topic_id: bytes, name: str, index: int, config: TopicConfig, directory: bytes
    ) -> PartitionLog:
        """The log of this partition, loaded at the start or created since; `directory` is the id of the directory that
        the metadata assigns.

        Its `high_watermark` is the checkpointed one. Raises KafkaError with KAFKA_STORAGE_ERROR, or OSError.
        """

    def delete_log(self, partition_log: PartitionLog) -> None:
        """Take the log out of use at once; its files are removed later. Raises OSError."""

    def put_aside(self, partition_log: PartitionLog) -> None:
        """Take the log out of use, and keep its files under another name. Raises OSError."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """The settings of this broker that concern its replicas."""

    node_id: int
    replica_lag_time_max_ms: int = 30_000


class Partitions:
    """Every partition of which this broker holds a replica."""

    def __init__(
        self,
        settings: ReplicationSettings,
        store: LogStore,
        host: PartitionHost,
        topic_config: Callable[[MetadataImage, str], TopicConfig],
        broker_epoch: Callable[[], int],
    ) -> None:
        """`topic_config` resolves the settings of a topic by name; `broker_epoch` is that of this broker's
        registration.
        """
        self._settings = settings
        self._store = store
        self._host = host
        self._topic_config = topic_config
        self._broker_epoch = broker_epoch
        self._begun = False
        self.image = MetadataImage()
        """The image that was applied last."""
        self._by_id: dict[PartitionKey, Partition] = {}
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._last_fetch_ms: dict[int, int] = {}
        """By broker id: the time of its last fetch of any partition."""
        self._without_log: dict[PartitionKey, None] = {}
        """Replicas without a log, because their disk failed before it was created."""

    # -- lookup

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, topic: bytes | str, index: int) -> Partition | None:
        """The partition by topic id or by name; None if this broker has no log of it."""
        if isinstance(topic, bytes):
            return self._by_id.get((topic, index))
        return self._by_name.get((topic, index))

    @property
    def led(self) -> list[Partition]:
        return [partition for partition in self._by_id.values() if partition.is_leader]

    def is_offline(self, topic: bytes | str, index: int) -> bool:
        """True if this broker has the replica, but its disk failed."""
        partition = self.find(topic, index)
        if partition is not None:
            return partition.is_offline
        if isinstance(topic, str):
            image = self.image.topics.by_name.get(topic)
            return image is not None and (image.id, index) in self._without_log
        return (topic, index) in self._without_log

    def missing_error(self, topic: bytes | str, index: int) -> ErrorCode:
        """The error code for clients if `find` returned None."""
        topics = self.image.topics
        image = topics.by_id.get(topic) if isinstance(topic, bytes) else topics.by_name.get(topic)
        if image is None or index not in image.partitions:
            unknown_id = image is None and isinstance(topic, bytes)
            return ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.is_offline(topic, index):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # -- the metadata log

    def prepare(self, delta: MetadataDelta) -> Stepwise[list[NewLog]]:
        """The logs that must be created before `apply_delta(delta)`, found in steps.

        A deleted topic whose name is used again is removed now, because its logs are in the way.
        """
        node_id = self._settings.node_id
        wanted: list[NewLog] = []
        meter = Meter()
        for topic in delta.changed_topics.values():
            config: TopicConfig | None = None
            if meter.step_ends(TOPIC_ITEMS):
                yield
            for index, image in topic.changed_partitions.items():
                if meter.step_ends():
                    yield
                if node_id in image.replicas and (topic.id, index) not in self._by_id:
                    config = config or self._topic_config(delta.after, topic.name)
                    wanted.append(NewLog(topic.name, index, topic.id, config, image.directory_of(node_id)))
        names = {new.topic for new in wanted}
        for topic_id, gone in delta.deleted_topics.items():
            if gone.name in names:
                for index in gone.partitions:
                    self._remove((topic_id, index), delta)
        return wanted

    def apply_delta(self, delta: MetadataDelta) -> Steps:
        """Apply the change from `delta.before` to `delta.after`, in steps of some partitions: each partition is changed
        as a whole. The first delta starts from the empty image.

        It contains at least this broker's own registration: earlier metadata concerns an earlier incarnation. The log
        may have lost records since; if the broker led in its old epoch again, followers that do not know the new epoch
        would truncate their logs to match.
        """
        if not self._begun:
            own = delta.after.cluster.brokers.get(self._settings.node_id)
            assert own is not None and own.epoch >= self._broker_epoch(), (
                "metadata older than our registration"
            )
            self._begun = True
        self.image = delta.after
        meter = Meter()
        for topic_id, gone in delta.deleted_topics.items():
            for index in gone.partitions:
                self._remove((topic_id, index), delta)
                if meter.step_ends(PARTITION_ITEMS):
                    yield None
        for topic in delta.changed_topics.values():
            yield from self._apply_topic(topic, delta, meter)
        yield from self._apply_settings(delta, meter)
        if delta.changed_brokers:
            # A fenced broker is no longer waited for; one that came back may join the ISR.
            for partition in self.led:
                if partition.is_leader:
                    partition.tick()
                if meter.step_ends():
                    yield None

    def _apply_topic(self, topic: TopicDelta, delta: MetadataDelta, meter: Meter) -> Steps:
        config: TopicConfig | None = None
        for index, image in topic.changed_partitions.items():
            if meter.step_ends(PARTITION_ITEMS):
                yield None
            if self._settings.node_id not in image.replicas:
                self._remove((topic.id, index), delta)
                continue
            partition = self._by_id.get((topic.id, index))
            if partition is None:
                config = config or self._topic_config(self.image, topic.name)
                partition = self._open(topic, index, image, config)
            if partition is not None:
                partition.partition_changed(image)

    def open_postponed(self, topic_id: bytes, index: int) -> None:
        """Open a log that could not be created when the metadata added its partition."""
        topic = self.image.topics.by_id.get(topic_id)
        image = None if topic is None else topic.partitions.get(index)
        if topic is None or image is None or (topic_id, index) not in self._without_log:
            return
        partition = self._open(topic, index, image, self._topic_config(self.image, topic.name))
        if partition is not None:
            partition.partition_changed(image)

    def _open(
        self, topic: TopicDelta | TopicImage, index: int, image: PartitionImage, config: TopicConfig
    ) -> Partition | None:
        key = (topic.id, index)
        node_id = self._settings.node_id
        try:
            directory = image.directory_of(node_id)
            partition_log = self._store.open_log(topic.id, topic.name, index, config, directory)
        except (KafkaError, OSError) as error:
            log.error("%s-%d has no log on this broker: %s", topic.name, index, error)
            self._without_log[key] = None
            return None
        self._without_log.pop(key, None)
        replica = Replica(
            node_id,
            self._broker,
            self._replica_settings(config),
            partition_log.log_end_offset,
            partition_log.high_watermark,
            last_fetch_ms=self._fetched_at_ms,
            # A state of the metadata with an earlier epoch than the log's is out of date.
            leader_epoch=partition_log.latest_epoch,
        )
        partition = Partition(topic.name, topic.id, partition_log, replica, self._host)
        self._by_id[key] = partition
        self._by_name[topic.name, index] = partition
        return partition

    def _remove(self, key: PartitionKey, delta: MetadataDelta) -> None:
        self._without_log.pop(key, None)
        partition = self._by_id.pop(key, None)
        if partition is None:
            return
        if self._by_name.get((partition.topic, partition.index)) is partition:
            del self._by_name[partition.topic, partition.index]
        self._note_left(partition)
        partition.leave()
        try:
            if delta.is_of_snapshot:
                # A backup may not know the partition yet, or may have it on other brokers.
                self._store.put_aside(partition.log)
            else:
                self._store.delete_log(partition.log)
        except (KafkaError, OSError) as error:
            log.error("%s: its log could not be removed: %s", partition, error)
        self._host.changed(partition)

    def _note_left(self, partition: Partition) -> None:
        node_id, known = self._settings.node_id, self.image.topics.by_id.get(partition.topic_id)
        moved = known is not None and partition.index in known.partitions
        self._host.decisions.note(
            DecisionKind.LIFECYCLE,
            partition.name,
            f"broker {node_id} removes its replica of {partition.name}",
            also=(f"broker {node_id}",),
            cause="the partition was reassigned to other brokers" if moved else "the topic was deleted",
            leader_epoch=partition.leader_epoch,
            offset=partition.log.log_end_offset,
        )

    def _apply_settings(self, delta: MetadataDelta, meter: Meter) -> Steps:
        names = {name for kind, name in delta.changed_configs if kind == TOPIC_RESOURCE}
        own = ("", str(self._settings.node_id))
        everything = bool(delta.changed_features) or any(
            kind == BROKER_RESOURCE and name in own for kind, name in delta.changed_configs
        )
        if not everything and not names:
            return
        configs: dict[str, TopicConfig] = {}
        for partition in list(self):
            topic = partition.topic
            if meter.step_ends():
                yield None
            if not everything and topic not in names:
                continue
            if topic not in configs:
                configs[topic] = self._topic_config(delta.after, topic)
            partition.log.configure(configs[topic])
            partition.settings_changed(self._replica_settings(configs[topic]))

    def _replica_settings(self, config: TopicConfig) -> ReplicaSettings:
        return ReplicaSettings(
            self._settings.replica_lag_time_max_ms,
            config.min_insync_replicas,
            self.image.features.elr_enabled,
        )

    def follower_fetches(self, broker_id: int) -> None:
        """Record that a follower fetches."""
        self._last_fetch_ms[broker_id] = self._host.monotonic.now_ms()

    def _fetched_at_ms(self, broker_id: int) -> int:
        return self._last_fetch_ms.get(broker_id, NEVER_MS)

    def _broker(self, broker_id: int) -> BrokerImage | None:
        return self.image.cluster.brokers.get(broker_id)

    # -- time and disks

    def directory_failed(self, path: str) -> list[Partition]:
        """The log directory `path` failed: its partitions answer KAFKA_STORAGE_ERROR from now on. Returns them."""
        lost = [partition for partition in self if partition.log.directory.startswith(path.rstrip("/") + "/")]
        for partition in lost:
            if not partition.is_offline:
                partition.go_offline()
        self._note_lost(path, lost)
        return lost

    def _note_lost(self, path: str, lost: list[Partition]) -> None:
        node_id, note = self._settings.node_id, self._host.decisions.note
        cause = f"log directory {path} failed"
        text = f"broker {node_id} lost its log directory {path} with {len(lost)} replicas"
        note(DecisionKind.LOG, f"broker {node_id}", text, cause=cause, partitions=len(lost))
        for partition in lost[:MAX_NOTED]:
            text = f"the replica of {partition.name} on broker {node_id} is offline"
            end = partition.log.log_end_offset
            note(DecisionKind.LOG, partition.name, text, cause=cause, leader_epoch=partition.leader_epoch, offset=end)
