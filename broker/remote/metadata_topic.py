"""Shell: `RemoteMetadata`, Kafka's TopicBasedRemoteLogMetadataManager: what is remote, as `__remote_log_metadata` says.

The topic is created when the first partition is followed. A user's partition has its records in one of the topic's
partitions, which this broker reads from the start: from its own log if it leads there, otherwise from the leader. It
publishes with acks=all, and waits until it has read its own record, so its answers are never older than what it did.

If the topic is deleted, what was read stays known until the broker stops, and is reported: `lost` is the reason why
nothing may be deleted locally that is remote only by these records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

import trio

from barnabas.broker.remote.metadata_log import MetadataLog
from barnabas.broker.remote.metadata_outbox import MetadataOutbox, OutboxPorts
from barnabas.broker.remote.metadata_reading import MetadataReader, Placed, ReadingPorts
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.topic_writer import TopicWriter
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import NO_LEADER, MetadataImage, TopicImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.background import Background
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.channel import Channel
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.remote_metadata import REMOTE_METADATA_TOPIC, RemoteMetadataSettings
from barnabas.storage.remote.metadata_records import encode, metadata_partition
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import MetadataRecord, RemotePartitionKey

log = logging.getLogger(__name__)

FIRST_LOOK_MS, LAST_LOOK_MS = 50, 1_000
"""Pause until the next look for a topic that does not exist."""


@dataclass(frozen=True, slots=True)
class RemoteMetadataPorts:
    world: World
    background: Background
    node_id: int
    image: Callable[[], MetadataImage]
    partitions: Partitions
    channel_to: Callable[[int], Channel | None]
    """Opens a channel to a broker's current address; None if it has none."""
    create_internal: Callable[[str], None]
    """Begins to create an internal topic."""
    settings: Callable[[], BrokerSettings]


class RemoteMetadata:
    def __init__(self, ports: RemoteMetadataPorts) -> None:
        self._ports = ports
        self._keys: dict[RemotePartitionKey, int | None] = {}
        """The followed partitions, and the metadata partition of each; None before the topic exists."""
        self._unplaced: dict[RemotePartitionKey, None] = {}
        """Those of them without a metadata partition."""
        self._logs: dict[int, MetadataLog] = {}
        self._topic_id: bytes | None = None
        self._partitions_count = 0
        self._readers: dict[int, MetadataReader] = {}
        self._is_creating = False
        self._writer = TopicWriter(ports.node_id, ports.partitions, ports.channel_to)
        self._outbox = MetadataOutbox(OutboxPorts(ports.world, ports.background, self._writer, self._topic))
        self._reading = ReadingPorts(
            ports.world, ports.node_id, ports.partitions, ports.channel_to, self._led_by
        )
        self.lost: str | None = None
        """Why records of remote segments are lost; None if they are not."""

    # -- what other parts ask

    def follow(self, keys: Collection[RemotePartitionKey]) -> None:
        """The partitions of which this broker has replicas now, and others that it still publishes records of. Others
        are dropped."""
        wanted = dict.fromkeys(keys)
        dropped: dict[int, list[tuple[bytes, int]]] = {}
        for key in [each for each in self._keys if each not in wanted]:
            index = self._keys.pop(key)
            self._unplaced.pop(key, None)
            if index is not None:
                dropped.setdefault(index, []).append((key.topic_id, key.partition))
        for index, ids in dropped.items():
            self._logs[index].forget(ids)
            if not self._logs[index]:
                del self._logs[index]
        for key in wanted:
            if key not in self._keys:
                self._keys[key] = self._unplaced[key] = None
        self._look()

    def segments(self, key: RemotePartitionKey) -> PartitionSegments | None:
        """The segments of a followed partition; None until its records were read up to the end that the metadata
        partition had when it was followed."""
        index = self._keys.get(key)
        return None if index is None else self._logs[index].segments(key)

    def leads_records_of(self, key: RemotePartitionKey) -> bool:
        """True if this broker leads the metadata partition of a partition."""
        topic = self._topic()
        if topic is None:
            return False
        return self._leader_of(topic, metadata_partition(key, len(topic.partitions))) == self._ports.node_id

    async def publish(self, record: MetadataRecord) -> None:
        """Write a record, and wait until this broker has read it. Raises KafkaError: it is not written, nobody knows
        whether it is (then it may be published again), or it contradicts the segment's state (INVALID_RECORD).

        A record of a partition that is not followed is not read back.
        """
        settings = RemoteMetadataSettings.of(self._ports.settings().raw)
        clock = self._ports.world.monotonic
        deadline_ms = clock.now_ms() + settings.consume_wait_ms
        index = await self._metadata_partition(record.key, deadline_ms)
        topic_id = self._topic_id
        offset = await self._outbox.write(index, encode(record), deadline_ms)
        if topic_id != self._topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{REMOTE_METADATA_TOPIC} was deleted and created again")
        if self._keys.get(record.key) == index:
            await self._until_read(record, index, offset, max(1, deadline_ms - clock.now_ms()))

    # -- news

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """A step of the cluster's metadata was applied."""
        for broker_id in delta.interrupted_brokers:
            self._writer.hang_up(broker_id)
            if (reader := self._readers.get(broker_id)) is not None:
                reader.hang_up()
        if self._keys:
            self._look()

    def partition_committed(self, partition: Partition) -> None:
        """The high watermark of a partition of this broker has advanced."""
        if partition.topic_id == self._topic_id and (reader := self._readers.get(self._ports.node_id)) is not None:
            reader.wake()

    # -- the topic

    def _topic(self) -> TopicImage | None:
        topic = self._ports.image().topics.by_name.get(REMOTE_METADATA_TOPIC)
        return topic if topic is not None and topic.partitions else None

    def _look(self) -> None:
        """Follow the topic as it is now, and make sure that each followed partition of it is read."""
        topic = self._topic()
        self._note_topic(topic)
        if topic is not None:
            self._place_keys()
            for leader in {self._leader_of(topic, index) for index in self._logs} - {NO_LEADER}:
                if leader not in self._readers:
                    self._readers[leader] = MetadataReader(leader, self._reading)
                    self._ports.background.spawn(self._read, leader)
        for reader in self._readers.values():
            reader.wake()
        if self._keys and topic is None and self._topic_id is None and not self._is_creating:
            self._is_creating = True
            self._ports.background.spawn(self._create)

    async def _create(self) -> None:
        """Create the topic, in as many attempts as it takes."""
        backoff = Backoff(FIRST_LOOK_MS, LAST_LOOK_MS)
        try:
            while self._keys and self._topic() is None:
                self._ports.create_internal(REMOTE_METADATA_TOPIC)
                await trio.sleep(backoff.next_ms() / 1000)
        finally:
            self._is_creating = False

    def _note_topic(self, topic: TopicImage | None) -> None:
        if self._topic_id is not None and (topic is None or topic.id != self._topic_id) and self.lost is None:
            self._note_loss(self._topic_id)
        if topic is None or topic.id == self._topic_id:
            return
        before, self._topic_id = self._topic_id, topic.id
        self._partitions_count = len(topic.partitions)
        self._warn_of_other_count()
        if before is not None:
            self._adopt_all()

    def _note_loss(self, topic_id: bytes) -> None:
        known = [segments for segments in map(self.segments, self._keys) if segments is not None]
        self.lost = f"{REMOTE_METADATA_TOPIC} with id {uuid_to_string(topic_id)} was deleted"
        log.error(
            "%s: the records of %d segments of %d partitions are lost. They are known here until this broker stops, "
            "and nothing is deleted from its disk because of them",
            self.lost,
            sum(map(len, known)),
            len(known),
        )

    def _adopt_all(self) -> None:
        """The topic was created again: what is known belongs to partitions of the new one."""
        logs, self._logs = self._logs, {}
        for metadata_log in logs.values():
            for segments in metadata_log.close("the topic was deleted"):
                index = metadata_partition(segments.key, self._partitions_count)
                self._keys[segments.key] = index
                self._log_at(index).adopt(segments)

    def _log_at(self, index: int) -> MetadataLog:
        if index not in self._logs:
            self._logs[index] = MetadataLog(index)
        return self._logs[index]

    def _warn_of_other_count(self) -> None:
        own = RemoteMetadataSettings.of(self._ports.settings().raw).num_partitions
        if own != self._partitions_count:
            log.warning(
                "%s has %d partitions, but remote.log.metadata.topic.num.partitions is %d here: the topic counts; "
                "Apache Kafka's brokers refuse to start with another number",
                REMOTE_METADATA_TOPIC,
                self._partitions_count,
                own,
            )

    def _place_keys(self) -> None:
        new: dict[int, list[RemotePartitionKey]] = {}
        for key in self._unplaced:
            new.setdefault(metadata_partition(key, self._partitions_count), []).append(key)
        self._unplaced.clear()
        for index, keys in new.items():
            self._log_at(index).follow(keys)
            self._keys.update(dict.fromkeys(keys, index))

    # -- reading

    def _leader_of(self, topic: TopicImage, index: int) -> int:
        placed = topic.partitions.get(index)
        return NO_LEADER if placed is None else placed.leader

    def _led_by(self, broker_id: int) -> dict[int, Placed]:
        topic = self._topic()
        if topic is None or topic.id != self._topic_id:
            return {}
        return {
            index: Placed(topic.id, topic.partitions[index].leader_epoch, metadata_log)
            for index, metadata_log in self._logs.items()
            if self._leader_of(topic, index) == broker_id
        }

    async def _read(self, leader: int) -> None:
        try:
            await self._readers[leader].run()
        finally:
            del self._readers[leader]

    # -- publishing

    async def _metadata_partition(self, key: RemotePartitionKey, deadline_ms: int) -> int:
        """Waits until the topic exists. Raises KafkaError."""
        backoff = Backoff(FIRST_LOOK_MS, LAST_LOOK_MS)
        while True:
            topic = self._topic()
            self._note_topic(topic)
            if topic is not None:
                self._place_keys()
                return metadata_partition(key, self._partitions_count)
            if self._topic_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.lost}; it has to be created again")
            self._ports.create_internal(REMOTE_METADATA_TOPIC)
            wait_ms = backoff.next_ms()
            if self._ports.world.monotonic.now_ms() + wait_ms > deadline_ms:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{REMOTE_METADATA_TOPIC} could not be created in time"
                )
            await trio.sleep(wait_ms / 1000)

    async def _until_read(self, record: MetadataRecord, index: int, offset: int, timeout_ms: int) -> None:
        """Raises KafkaError."""
        outcome: list[str | None] = []
        read = trio.Event()

        def done(reason: str | None) -> None:
            outcome.append(reason)
            read.set()

        cancel = self._logs[index].when_read(record.key, offset, done)
        try:
            with trio.move_on_after(timeout_ms / 1000):
                await read.wait()
        finally:
            cancel()
        name = f"the record at offset {offset} of {REMOTE_METADATA_TOPIC}-{index}"
        if not outcome:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name} was not read back within {timeout_ms} ms")
        if outcome[0] is not None:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"{name} has no effect: {outcome[0]}")
