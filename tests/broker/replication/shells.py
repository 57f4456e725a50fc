"""Brokers made of the real shells over real logs: partitions, fetchers, fetch sessions, ISR changes.

Only the controller is a toy, the network is a call with the messages' real bytes, and time is trio's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio

from barnabas.broker.fetch_context import by_topic
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.replication.fetcher import Fetchers, FetchSettings
from barnabas.broker.replication.isr_changes import IsrChanges
from barnabas.broker.replication.partition import Partition, PartitionHost
from barnabas.broker.replication.partitions import Partitions, ReplicationSettings
from barnabas.broker.replication.reads import FetchKind, ReadRequest
from barnabas.broker.replication.replica import FollowerFetch
from barnabas.kraft.metadata.delta import MetadataDelta, TopicDelta
from barnabas.kraft.metadata.image import (
    EMPTY_IMAGE,
    BrokerImage,
    ClusterImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from barnabas.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.offset_for_leader_epoch import EpochEndOffset as EpochEnd
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.protocol.schema import Message, decode, encode_chunks
from barnabas.runtime.at_once import at_once
from barnabas.runtime.channel import ConnectionFailed, NotSent
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.world import FileRegion, World
from barnabas.settings.topic import TopicConfig
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_results import AppendResult

TOPIC = "orders"
TOPIC_ID = bytes(15) + b"\x07"
LAG_MS = 1_000
LATENCY_SECONDS = 0.001


async def until(happens: Callable[[], bool], seconds: float = 5) -> None:
    """Wait for it, in virtual time."""
    with trio.move_on_after(seconds):
        while not happens():
            await trio.sleep(0.001)
    assert happens()


class TrioClock:
    def now_ms(self) -> int:
        return int(trio.current_time() * 1000)


def make_batch(text: str, **options: Any) -> bytearray:
    return bytearray(build_batch([Record(0, 1_000, None, text.encode(), ())], **options))


@dataclass
class Logs:
    """Logs in a directory of their own."""

    directory: Path
    disk: Any = field(default_factory=RealDisk)
    opened: dict[tuple[bytes, int], PartitionLog] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    failing: bool = False

    def open_log(
        self, topic_id: bytes, name: str, index: int, config: TopicConfig, directory: bytes
    ) -> PartitionLog:
        if self.failing:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")
        key = (topic_id, index)
        if key not in self.opened:
            path = str(self.directory / f"{name}-{index}")
            self.opened[key] = PartitionLog.open(
                Folder(self.disk, path), key=(name, index), config=config, now_ms=0
            )
        return self.opened[key]

    def delete_log(self, partition_log: PartitionLog) -> None:
        self.deleted.append(f"{partition_log.topic}-{partition_log.partition}")

    def put_aside(self, partition_log: PartitionLog) -> None:
        raise AssertionError(f"{partition_log}: no snapshot is loaded here")


class ShellBroker:
    """One broker."""

    def __init__(self, node: int, cluster: ShellCluster, logs: Logs) -> None:
        self.node = node
        self.cluster = cluster
        self.logs = logs
        self.epoch = 100 + node
        self.alive = True
        self.stuck = False
        """Neither answers nor asks: paused."""
        self.sessions = FetchSessions(cluster.chance)
        self.changed = trio.Event()
        self.image = EMPTY_IMAGE
        clock = TrioClock()
        self.world = World(None, logs.disk, clock, clock, cluster.chance, None)  # type: ignore[arg-type]
        self.isr_changes = IsrChanges(node, lambda: self.epoch, self._alter_partition)
        self.dialled: list[int] = []
        self.fetchers = Fetchers(
            self.world,
            cluster.nursery,
            FetchSettings(node, fetch_wait_max_ms=500),
            lambda: self.epoch,
            self._dial,
        )
        self.decisions = Decisions(f"broker-{node}", clock.now_ms)
        host = PartitionHost(
            clock,
            clock,
            self.isr_changes.propose,
            self.fetchers.follow,
            self._on_change,
            decisions=self.decisions,
            committed=self._on_change,
        )
        self.partitions = Partitions(
            ReplicationSettings(node, LAG_MS),
            logs,
            host,
            lambda image, topic: cluster.config,
            lambda: self.epoch,
        )
        cluster.nursery.start_soon(self.isr_changes.run)

    def _on_change(self, partition: Partition) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def _dial(self, broker_id: int) -> WireToLeader | None:
        self.dialled.append(broker_id)
        return WireToLeader(self, self.cluster.brokers[broker_id])

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        await trio.sleep(LATENCY_SECONDS)
        return self.cluster.alter_partition(request)

    @property
    def partition(self) -> Partition:
        partition = self.partitions.find(TOPIC_ID, 0)
        assert partition is not None
        return partition

    def learn(self) -> None:
        """Apply the newest metadata."""
        after = self.cluster.image
        before, self.image = self.image, after
        delta = MetadataDelta(before, after)
        for broker_id, broker in after.cluster.brokers.items():
            if before.cluster.brokers.get(broker_id) != broker:
                delta.changed_brokers[broker_id] = broker
        for topic_id, topic in before.topics.by_id.items():
            if topic_id not in after.topics.by_id:
                delta.deleted_topics[topic_id] = topic
        for topic_id, topic in after.topics.by_id.items():
            known = before.topics.by_id.get(topic_id)
            changes = TopicDelta(topic_id, topic.name, known, topic)
            for index, image in topic.partitions.items():
                if known is None or known.partitions.get(index) != image:
                    changes.changed_partitions[index] = image
            if changes.changed_partitions:
                delta.changed_topics[topic_id] = changes
        for _ in self.partitions.apply_delta(delta):
            pass
        self.fetchers.metadata_changed()

    def produce(
        self, text: str, acks: int = -1, index: int = 0
    ) -> tuple[AppendResult, list[ErrorCode | None]]:
        """Append one record; the list gets the answer of the replicas."""
        partition = self.partitions.find(TOPIC_ID, index)
        assert partition is not None
        buffer = make_batch(text)
        result = partition.append(buffer, [(0, read_header(buffer, 0))], acks)
        answers: list[ErrorCode | None] = []
        if acks == -1:
            partition.when_replicated(result.last_offset + 1, answers.append)
        return result, answers

    # -- serving, as broker/apis does

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        now_ms = self.world.monotonic.now_ms()
        context = self.sessions.open(request, 18, from_follower=True, now_ms=now_ms)
        with trio.move_on_after(request.max_wait_ms / 1000):
            first = True
            while True:
                changed = self.changed
                answers = [
                    (key, self._read(key, wanted, request, first))  # type: ignore[arg-type]
                    for key, wanted in context.wanted
                ]
                first = False
                if context.error or any(
                    data.records or data.error_code or data.diverging_epoch.epoch >= 0 for _, data in answers
                ):
                    break
                await changed.wait()
        sent = context.finish(answers, self.world.monotonic.now_ms())
        response = FetchResponse(error_code=context.error, session_id=context.session_id)
        for topic_id, partitions in by_topic(sent):
            assert isinstance(topic_id, bytes)
            response.responses.append(FetchableTopicResponse(topic_id=topic_id, partitions=partitions))
        return response

    def _read(
        self, topic_id: bytes, wanted: FetchPartition, request: FetchRequest, first: bool
    ) -> PartitionData:
        data = PartitionData(partition_index=wanted.partition, high_watermark=-1)
        partition = self.partitions.find(topic_id, wanted.partition)
        if partition is None:
            data.error_code = self.partitions.missing_error(topic_id, wanted.partition)
            return data
        read = ReadRequest(
            FetchKind.REPLICA,
            wanted.fetch_offset,
            wanted.partition_max_bytes,
            wanted.current_leader_epoch,
            wanted.last_fetched_epoch,
        )
        state = request.replica_state
        fetch = FollowerFetch(
            state.replica_id, state.replica_epoch, wanted.fetch_offset, wanted.log_start_offset
        )
        try:
            result = partition.follower_read(fetch, read) if first else partition.read(read)
        except KafkaError as error:
            data.error_code = error.code
            return data
        data.high_watermark = result.high_watermark
        data.log_start_offset = result.log_start_offset
        data.records = b"" if result.records is None else result.records.region
        if result.diverging_epoch is not None:
            data.diverging_epoch = EpochEndOffset(
                epoch=result.diverging_epoch[0], end_offset=result.diverging_epoch[1]
            )
        return data

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in request.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answers)
            for asked in topic.partitions:
                answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                answers.partitions.append(answer)
                partition = self.partitions.find(topic.name, asked.partition_index)
                assert partition is not None
                error = partition.replica.leader_error(asked.current_leader_epoch)
                log = partition.log
                answer.error_code = error or 0
                answer.offset = log.log_end_offset if asked.timestamp == -1 else log.log_start_offset
        return response

    def offset_for_leader_epoch(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answers = OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(answers)
            for asked in topic.partitions:
                answer = EpochEnd(partition=asked.partition)
                answers.partitions.append(answer)
                partition = self.partitions.find(topic.topic, asked.partition)
                assert partition is not None
                try:
                    end = partition.end_offset_for_epoch(asked.leader_epoch, asked.current_leader_epoch)
                    answer.leader_epoch, answer.end_offset = end
                except KafkaError as error:
                    answer.error_code = error.code
        return response


@dataclass
class WireToLeader:
    """The channel of a fetcher: real bytes in both directions."""

    source: ShellBroker
    target: ShellBroker
    closed: bool = False

    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        if not self.target.alive:
            await trio.sleep(LATENCY_SECONDS)
            raise NotSent("nobody listens", refused=True)
        await trio.sleep(LATENCY_SECONDS)
        while self.target.stuck or self.source.stuck:
            await trio.sleep(0.01)
        answer: Message
        if isinstance(request, OffsetForLeaderEpochRequest):
            answer, version = self.target.offset_for_leader_epoch(_over_the_wire(request, 4)), 4
        elif isinstance(request, FetchRequest):
            answer, version = await self.target.fetch(_over_the_wire(request, 18)), 18
        else:
            answer, version = self.target.list_offsets(_over_the_wire(request, 9)), 9
        if self.closed or not self.target.alive:
            raise ConnectionFailed("the broker died")
        await trio.sleep(LATENCY_SECONDS)
        return _over_the_wire(answer, version)

    async def converse(self, request: Any, answered: Callable[[Any], Any], *, timeout_ms: float) -> None:
        while request is not None:
            request = at_once(answered(await self.call(request, timeout_ms=timeout_ms)))

    def close(self) -> None:
        self.closed = True


def _over_the_wire(message: Any, version: int) -> Any:
    parts = []
    for chunk in encode_chunks(message, version):
        if isinstance(chunk, FileRegion):
            parts.append(chunk.file.pread(chunk.count, chunk.offset))
        else:
            parts.append(bytes(chunk))
    return decode(type(message), b"".join(parts), version)


class ShellCluster:
    """Three brokers and a controller that does as the test says."""

    def __init__(self, nursery: trio.Nursery, directory: Path, chance: Any, **config: Any) -> None:
        self.nursery = nursery
        self.chance = chance
        self.directory = directory
        self.config = TopicConfig(**config)
        self.partitions: dict[int, PartitionImage] = {0: self.new_partition(1)}
        self.states = {
            node: BrokerImage(node, 100 + node, bytes(16), {}, {}, fenced=False) for node in (1, 2, 3)
        }
        self.has_topic = True
        self.asked: list[AlterPartitionRequest] = []
        self.errors: list[int] = []
        """Top-level errors with which the next AlterPartitions are answered."""
        self.metadata_is_late = False
        """Changes of the ISR reach nobody by the metadata log."""
        self.refusals: list[ErrorCode] = []
        """Errors of a partition, likewise."""
        self.brokers = {node: ShellBroker(node, self, Logs(directory / str(node))) for node in (1, 2, 3)}
        self.learn()

    @staticmethod
    def new_partition(leader: int) -> PartitionImage:
        return PartitionImage((1, 2, 3), (bytes(16),) * 3, (1, 2, 3), leader=leader)

    @property
    def image(self) -> MetadataImage:
        topic = TopicImage(TOPIC, TOPIC_ID, dict(self.partitions))
        topics = TopicsImage({TOPIC: topic}, {TOPIC_ID: topic}) if self.has_topic else TopicsImage()
        return MetadataImage(cluster=ClusterImage(dict(self.states)), topics=topics)

    def learn(self) -> None:
        for broker in self.brokers.values():
            if broker.alive:
                broker.learn()

    def elect(self, leader: int, isr: tuple[int, ...] = (1, 2, 3), index: int = 0) -> None:
        old = self.partitions[index]
        self.partitions[index] = replace(
            old,
            leader=leader,
            isr=isr,
            leader_epoch=old.leader_epoch + 1,
            partition_epoch=old.partition_epoch + 1,
        )

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request)
        if self.errors:
            return AlterPartitionResponse(error_code=self.errors.pop(0))
        response = AlterPartitionResponse()
        for topic in request.topics:
            answers = ResponseTopicData(topic_id=topic.topic_id)
            response.topics.append(answers)
            for asked in topic.partitions:
                old = self.partitions[asked.partition_index]
                answer = ResponsePartitionData(partition_index=asked.partition_index)
                answers.partitions.append(answer)
                if self.refusals:
                    answer.error_code = self.refusals.pop(0)
                elif asked.leader_epoch != old.leader_epoch:
                    answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
                elif asked.partition_epoch != old.partition_epoch:
                    answer.error_code = ErrorCode.INVALID_UPDATE_VERSION
                else:
                    isr = tuple(member.broker_id for member in asked.new_isr_with_epochs)
                    new = replace(old, isr=isr, partition_epoch=old.partition_epoch + 1)
                    self.partitions[asked.partition_index] = new
                    answer.leader_epoch, answer.partition_epoch = new.leader_epoch, new.partition_epoch
                    answer.isr = list(isr)
                    answer.leader_id = new.leader
        if not self.metadata_is_late:
            self.nursery.start_soon(self._spread)
        return response

    async def _spread(self) -> None:
        await trio.sleep(2 * LATENCY_SECONDS)
        self.learn()

    async def unclean_election(self) -> None:
        """1 and 2 commit a record without 3; then 3 leads all the same and takes another, and all come back."""
        self.brokers[3].stuck = True
        self.elect(1, isr=(1, 2))
        self.learn()
        _, answers = self.brokers[1].produce("only on two")
        await until(lambda: answers == [None])
        for node in (1, 2):
            self.brokers[node].stuck = True
        self.elect(3, isr=(3,))
        self.brokers[3].stuck = False
        self.learn()
        self.brokers[3].produce("the truth now")
        for node in (1, 2):
            self.brokers[node].stuck = False
        await until(lambda: self.partitions[0].isr == (1, 2, 3))

    def bytes_of(self, node: int) -> bytes:
        return b"".join(self.brokers[node].partition.log.batches(0))

    async def tick(self, milliseconds: int) -> None:
        """Time passes, and leaders look at who lags."""
        for _ in range(milliseconds // (LAG_MS // 2)):
            await trio.sleep(LAG_MS / 2 / 1000)
            for broker in self.brokers.values():
                if broker.alive and not broker.stuck:
                    for partition in broker.partitions.led:
                        partition.tick()
