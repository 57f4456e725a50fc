"""The consumer: reads partitions that it is told to, from offsets that it is told, following their leaders.

One fetch per broker is under way at a time, for the partitions that have nothing read ahead; what arrives
waits until `poll` takes it. Groups are not known here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import trio

from barnabas.client.cluster import STALE_METADATA, Cluster, TopicPartition
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.records.batch import CorruptBatch, crc_is_valid, iterate_batches
from protocol.records.control import read_end_txn
from protocol.records.record import Headers, Record, decode_records
from runtime.channel import ChannelError

LATEST = -1
EARLIEST = -2


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Names and defaults are Kafka's, but for `start_when_out_of_range` (auto.offset.reset)."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    fetch_max_wait_ms: int = 500
    default_api_timeout_ms: int = 60_000
    start_when_out_of_range: int | None = None
    """EARLIEST or LATEST; None lets `poll` raise."""


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int
    """Of the batch it came in."""


@dataclass(slots=True)
class _Reader:
    """One partition as it is read."""

    partition: TopicPartition
    next_offset: int
    """What is fetched next; behind all that was read ahead."""
    position: int
    """What `poll` gives next."""
    ahead: list[ConsumedRecord] = field(default_factory=list)
    high_watermark: int = -1
    in_flight: bool = False
    not_before_ms: int = 0
    error: KafkaError | None = None
    generation: int = 0
    """Changes with every seek, so that answers to older fetches are thrown away."""


@asynccontextmanager
async def open_consumer(cluster: Cluster, settings: ConsumerSettings | None = None) -> AsyncIterator[Consumer]:
    """A consumer for the length of the block."""
    nursery = await cluster.open_nursery()
    try:
        yield Consumer(cluster, nursery, settings or ConsumerSettings())
    finally:
        nursery.cancel_scope.cancel()


class Consumer:
    """Reads assigned partitions. `poll` is for one task at a time."""

    def __init__(self, cluster: Cluster, nursery: trio.Nursery, settings: ConsumerSettings) -> None:
        """`nursery` runs the fetches. See `open_consumer`."""
        self._cluster = cluster
        self._nursery = nursery
        self._settings = settings
        self._readers: dict[TopicPartition, _Reader] = {}
        self._busy_nodes: dict[int, None] = {}
        self._backoff = cluster.backoff()
        self._news = trio.Event()

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        self._readers = {
            partition: _Reader(partition, next_offset=offset, position=offset) for partition, offset in offsets.items()
        }
        self._news.set()

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these as well, from these offsets."""
        for partition, offset in offsets.items():
            self._readers[partition] = _Reader(partition, next_offset=offset, position=offset)
        self._news.set()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Do not read these any more, and forget what was read ahead of them."""
        for partition in partitions:
            self._readers.pop(partition, None)

    @property
    def assigned(self) -> list[TopicPartition]:
        return list(self._readers)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`. KeyError if `partition` is not assigned."""
        reader = self._readers[partition]
        reader.next_offset = reader.position = offset
        reader.generation += 1
        reader.ahead, reader.error = [], None
        self._news.set()

    def position(self, partition: TopicPartition) -> int:
        """The offset that `poll` gives next, or the first one after it that exists."""
        return self._readers[partition].position

    def high_watermark(self, partition: TopicPartition) -> int:
        """As of the last fetch; -1 before the first."""
        return self._readers[partition].high_watermark

    async def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after each timestamp (also EARLIEST, LATEST); -1 where there is none."""
        settings = self._settings
        return await list_offsets(self._cluster, timestamps, settings.default_api_timeout_ms, settings.isolation)

    async def poll(self, timeout_ms: int) -> list[ConsumedRecord]:
        """What was read ahead of one or more partitions, in order within each; [] after `timeout_ms` without
        any.

        KafkaError if a partition cannot be read; the others go on, and so does this one after a `seek`.
        """
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                self._news = trio.Event()
                records = self._take()
                self._start_fetches()
                if records:
                    return records
                with trio.move_on_after(self._next_look_ms() / 1000):
                    await self._news.wait()
        return self._take()

    def _take(self) -> list[ConsumedRecord]:
        taken: list[ConsumedRecord] = []
        for reader in self._readers.values():
            if reader.ahead:
                taken += reader.ahead
                reader.ahead = []
            reader.position = reader.next_offset
        if not taken:
            for reader in self._readers.values():
                if reader.error is not None:
                    raise reader.error
        return taken

    def _start_fetches(self) -> None:
        now_ms = self._cluster.now_ms()
        by_node: dict[int, list[tuple[_Reader, int]]] = {}
        leaderless = []
        for reader in self._readers.values():
            if reader.in_flight or reader.ahead or reader.error is not None or now_ms < reader.not_before_ms:
                continue
            leadership = self._cluster.leadership(reader.partition)
            if leadership is None:
                leaderless.append(reader)
            elif leadership.node_id not in self._busy_nodes:
                by_node.setdefault(leadership.node_id, []).append((reader, leadership.epoch))
        for node_id, wanted in by_node.items():
            self._busy_nodes[node_id] = None
            for reader, _ in wanted:
                reader.in_flight = True
            self._nursery.start_soon(self._fetch, node_id, wanted)
        if leaderless:
            for reader in leaderless:
                reader.in_flight = True
            self._nursery.start_soon(self._find_leaders, leaderless)

    def _next_look_ms(self) -> float:
        """How long until a partition that was put off may be fetched again."""
        now_ms = self._cluster.now_ms()
        waits = [reader.not_before_ms - now_ms for reader in self._readers.values() if not reader.in_flight]
        return min((wait for wait in waits if wait > 0), default=float("inf"))

    async def _find_leaders(self, readers: list[_Reader]) -> None:
        await self._cluster.refresh(dict.fromkeys(reader.partition.topic for reader in readers))
        for reader in readers:
            reader.in_flight = False
            if self._cluster.leadership(reader.partition) is None:
                self._put_off(reader)
        self._news.set()

    async def _fetch(self, node_id: int, wanted: list[tuple[_Reader, int]]) -> None:
        settings, cluster = self._settings, self._cluster
        request = self._request(wanted)
        generations = {reader.partition: reader.generation for reader, _ in wanted}
        response: FetchResponse | None = None
        try:
            response = await cluster.call(
                node_id,
                request,
                cluster.settings.request_timeout_ms + settings.fetch_max_wait_ms,
            )
            self._backoff.reset()
        except ChannelError:
            await cluster.refresh()
        finally:
            self._busy_nodes.pop(node_id, None)
        answers = {} if response is None else self._answers(response)
        stale = False
        for reader, _ in wanted:
            reader.in_flight = False
            answer = answers.get(reader.partition)
            if answer is None:
                self._put_off(reader)
                stale = stale or response is not None
            elif generations[reader.partition] == reader.generation:
                stale = self._absorb(reader, answer) or stale
        self._news.set()
        if stale:
            await cluster.refresh()
            self._news.set()

    def _request(self, wanted: list[tuple[_Reader, int]]) -> FetchRequest:
        settings = self._settings
        topics: dict[str, FetchTopic] = {}
        for reader, leader_epoch in wanted:
            name = reader.partition.topic
            if name not in topics:
                topics[name] = FetchTopic(topic=name, topic_id=self._cluster.topic_id(name))
            topics[name].partitions.append(
                FetchPartition(
                    partition=reader.partition.partition,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=reader.next_offset,
                    partition_max_bytes=settings.max_partition_fetch_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation,
            topics=list(topics.values()),
        )

    def _answers(self, response: FetchResponse) -> dict[TopicPartition, PartitionData]:
        """By partition; empty if the whole fetch failed."""
        self._cluster.learn_nodes(response.node_endpoints)
        return {
            TopicPartition(name, answer.partition_index): answer
            for topic in response.responses
            for name in [topic.topic or self._cluster.topic_name(topic.topic_id)]
            if name is not None
            for answer in topic.partitions
        }

    def _absorb(self, reader: _Reader, answer: PartitionData) -> bool:
        """Read the answer ahead; True if the metadata must be refreshed."""
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE:
            reader.high_watermark = answer.high_watermark
            try:
                self._read_ahead(reader, answer)
            except CorruptBatch as error:
                reader.error = error
            return False
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._settings.start_when_out_of_range is None:
                reader.error = KafkaError(code, f"{reader.partition} at {reader.next_offset}")
            else:
                reader.in_flight = True
                self._nursery.start_soon(self._reset, reader, self._settings.start_when_out_of_range)
            return False
        if not code.retriable and code not in STALE_METADATA:
            reader.error = KafkaError(code, str(reader.partition))
            return False
        self._put_off(reader)
        leader = answer.current_leader
        return not self._cluster.learn_leader(reader.partition, leader.leader_id, leader.leader_epoch)

    async def _reset(self, reader: _Reader, timestamp: int) -> None:
        generation = reader.generation
        try:
            offsets = await self.offsets_at({reader.partition: timestamp})
            if generation == reader.generation:
                self.seek(reader.partition, offsets[reader.partition])
        except KafkaError as error:
            reader.error = error
        reader.in_flight = False
        self._news.set()

    def _put_off(self, reader: _Reader) -> None:
        reader.not_before_ms = self._cluster.now_ms() + self._backoff.next_ms()

    def _read_ahead(self, reader: _Reader, answer: PartitionData) -> None:
        """Decode what was fetched: no control records, nothing before the position, nothing aborted.

        An aborted transaction counts from its first offset to its marker (KIP-98).
        """
        buffer = answer.records or b""
        committed_only = self._settings.isolation is Isolation.READ_COMMITTED
        to_come = sorted(answer.aborted_transactions or (), key=lambda aborted: aborted.first_offset)
        aborted: dict[int, None] = {}
        topic, partition = reader.partition
        for position, header in iterate_batches(buffer):
            if not crc_is_valid(buffer, position, header):
                raise CorruptBatch(f"{reader.partition}: the CRC of the batch at {header.base_offset} is wrong")
            while to_come and to_come[0].first_offset <= header.last_offset:
                aborted[to_come.pop(0).producer_id] = None
            records: list[Record] = []
            if header.is_control:
                marker = read_end_txn(buffer, position)
                if marker is not None and not marker.committed:
                    aborted.pop(header.producer_id, None)
            elif not (committed_only and header.is_transactional and header.producer_id in aborted):
                records = decode_records(buffer, position)
            epoch = header.partition_leader_epoch
            reader.ahead += [
                ConsumedRecord(topic, partition, *record, epoch)
                for record in records
                if record.offset >= reader.next_offset
            ]
            last_offset = records[-1].offset if records and header.magic < 2 else header.last_offset
            reader.next_offset = max(reader.next_offset, last_offset + 1)


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    timeout_ms: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Ask the leaders for offsets by timestamp, again and again until all are known. KafkaError if they are
    not."""
    deadline_ms = cluster.now_ms() + timeout_ms
    found: dict[TopicPartition, int] = {}
    backoff = cluster.backoff()
    while True:
        error = await _list_offsets_once(cluster, timestamps, isolation, found)
        if len(found) == len(timestamps):
            return found
        wait_ms = backoff.next_ms()
        if not error.retriable or cluster.now_ms() + wait_ms > deadline_ms:
            missing = ", ".join(str(partition) for partition in timestamps if partition not in found)
            raise KafkaError(error, f"no offsets of {missing}")
        await trio.sleep(wait_ms / 1000)
        await cluster.refresh(dict.fromkeys(partition.topic for partition in timestamps))


async def _list_offsets_once(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation: Isolation,
    found: dict[TopicPartition, int],
) -> ErrorCode:
    """Put what the leaders answer into `found`; gives the last error, if any."""
    error = ErrorCode.NONE
    by_node: dict[int, list[TopicPartition]] = {}
    for partition in timestamps:
        leadership = cluster.leadership(partition)
        if leadership is None:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif partition not in found:
            by_node.setdefault(leadership.node_id, []).append(partition)
    for node_id, partitions in by_node.items():
        request = ListOffsetsRequest(
            isolation_level=isolation,
            replica_id=-1,
            topics=_by_topic(cluster, partitions, timestamps),
            timeout_ms=cluster.settings.request_timeout_ms,
        )
        try:
            response = await cluster.call(node_id, request)
        except ChannelError:
            error = ErrorCode.NETWORK_EXCEPTION
            continue
        for topic in response.topics:
            for answer in topic.partitions:
                code = error_code(answer.error_code)
                if code is ErrorCode.NONE:
                    found[TopicPartition(topic.name, answer.partition_index)] = answer.offset
                else:
                    error = code
    return error


def _by_topic(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamps: Mapping[TopicPartition, int]
) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition in partitions:
        leadership = cluster.leadership(partition)
        topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic)).partitions.append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=-1 if leadership is None else leadership.epoch,
                timestamp=timestamps[partition],
            )
        )
    return list(topics.values())
