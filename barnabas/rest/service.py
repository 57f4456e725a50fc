"""Shell: the clients of the REST interface: administration, one producer for all, a consumer for each reader."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import trio

from barnabas.client.admin import Admin
from barnabas.client.cluster import NoBrokerAvailable
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.producer import Producer
from barnabas.cluster.errors import ClusterError
from barnabas.page.asking import Asker
from barnabas.protocol.errors import KafkaError
from barnabas.rest.errors import RestError, of_kafka, refused
from barnabas.rest.reading import Wanted, event_id
from barnabas.rest.records import GivenRecord, failed_json, record_json, records_in, written_json
from barnabas.rest.schema_values import SchemaValues
from barnabas.rest.shapes import Json, Shapes

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_READERS = 32
MOST_SCANNED = 50_000
"""Records that a list looks at, if it wants only those with a text."""
HEARTBEAT_MS = 10_000
COMMIT_MS = 1_000
"""Longest time from the delivery of records to a group until they are committed."""
PRODUCER_SECONDS = 10.0
"""Longest wait until the producer is open."""
_FAILURES = (KafkaError, NoBrokerAvailable, ClusterError, OSError)
_READER = {"max_poll_records": 200, "enable_auto_commit": False, "fetch_max_bytes": 1 << 20}
_WRITER = {"max_block_ms": 5_000, "delivery_timeout_ms": 30_000, "request_timeout_ms": 10_000}


@dataclass
class Rest:
    """The REST interface of one cluster."""

    asker: Asker
    reader_settings: Callable[[], Mapping[str, Any]]
    """Returns the settings of a consumer."""
    writer_settings: Callable[[], Mapping[str, Any]]
    """Returns the settings of a producer."""
    allow_writes: bool = False
    schemas: SchemaValues | None = None
    """Decodes keys and values by a schema registry; None: there is none."""
    readers: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._producer: Producer | None = None
        self._has_producer = trio.Event()
        self._cluster_id: str | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            if self.allow_writes:
                async with Producer(**{**_WRITER, **self.writer_settings()}) as self._producer:
                    self._has_producer.set()
                    await trio.sleep_forever()
            await trio.sleep_forever()

    # ---- administration

    async def call(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """The result of `work`. Raises `RestError`."""
        try:
            return await self.asker.call(work)
        except KafkaError as error:
            raise of_kafka(error) from None
        except _FAILURES as error:
            raise RestError(503, 50301, " ".join(str(error).split())) from None

    async def shapes(self, base: str, cluster_id: str) -> Shapes:
        """Raises `RestError` if the cluster has another id."""
        if cluster_id != self._cluster_id:
            # It may have been asked before the cluster was there, or for another one.
            self._cluster_id = (await self.call(lambda admin: admin.describe_cluster())).cluster_id
        if cluster_id != self._cluster_id:
            raise RestError(404, 404, f"the cluster is {self._cluster_id}; got {cluster_id}")
        return Shapes(base, cluster_id)

    # ---- writing

    async def write(self, topic: str, body: bytes, cluster_id: str) -> AsyncIterator[Json]:
        """Write the records of a body, in order, and yield an answer for each. A record that is not as it must be ends
        the body; those before it are written."""
        producer = await self._open_producer()
        sent: list[tuple[GivenRecord, Any]] = []
        refusal: RestError | None = None
        try:
            for given in records_in(body):
                future = await producer.enqueue(
                    topic,
                    given.value,
                    key=given.key,
                    headers=given.headers,
                    partition=given.partition,
                    timestamp_ms=given.timestamp_ms,
                )
                sent.append((given, future))
        except RestError as error:
            refusal = error
        except (*_FAILURES, ValueError) as error:
            refusal = _refusal_of(error)
        for given, future in sent:
            try:
                yield written_json(given, await future, cluster_id)
            except _FAILURES as error:
                yield failed_json(_refusal_of(error))
        if refusal is not None:
            yield failed_json(refusal)

    async def _open_producer(self) -> Producer:
        with trio.move_on_after(PRODUCER_SECONDS):
            await self._has_producer.wait()
        if self._producer is None:
            raise RestError(503, 50301, "the producer is not open")
        return self._producer

    # ---- reading

    async def records(self, topic: str, wanted: Wanted) -> Json:
        """A list of records, and where it ends. Raises `RestError`."""
        found: list[ConsumerRecord] = []
        scanned, partitions = 0, await self._partitions(topic, wanted)
        with self._as_reader():
            async with self._consumer(topic, wanted, partitions) as consumer:
                while len(found) < wanted.most and scanned < MOST_SCANNED:
                    block = await consumer.poll(wanted.wait_ms if not scanned else 200)
                    if not block:
                        break
                    for place, record in enumerate(block):
                        if len(found) == wanted.most:
                            consumer.put_back(block[place:])
                            break
                        scanned += 1
                        if _has(record, wanted.contains):
                            found.append(record)
                positions = {each.partition: place.offset for each, place in consumer.positions().items()}
        data = await self._shown(found, wanted)
        return {"kind": "RecordList", "metadata": {"after": event_id(positions)}, "data": data}

    async def events(self, topic: str, wanted: Wanted) -> AsyncIterator[bytes]:
        """Records as server-sent events, until the reader goes. Raises `RestError` before the first."""
        partitions = await self._partitions(topic, wanted)
        self._check_room()
        assert self._nursery is not None
        blocks, events = trio.open_memory_channel[bytes](0)
        self._nursery.start_soon(self._read, topic, wanted, partitions, blocks)
        return _until_closed(events)

    async def _read(
        self, topic: str, wanted: Wanted, partitions: Sequence[int], blocks: trio.MemorySendChannel[bytes]
    ) -> None:
        """Task: reads for one reader. A block was delivered if the reader takes the next one; then it is committed."""
        with self._as_reader():
            async with blocks:
                try:
                    async with self._consumer(topic, wanted, partitions) as consumer:
                        await self._deliver(consumer, wanted, blocks)
                except trio.BrokenResourceError:
                    pass  # the reader is gone
                except _FAILURES as error:
                    failure = json.dumps(_refusal_of(error).to_json())
                    with trio.move_on_after(HEARTBEAT_MS / 1000):
                        await blocks.send(f"event: error\ndata: {failure}\n\n".encode())

    async def _deliver(self, consumer: Consumer, wanted: Wanted, blocks: trio.MemorySendChannel[bytes]) -> None:
        await blocks.send(b": connected\n\n")
        delivered: dict[TopicPartition, int] = {}
        while True:
            records = await consumer.poll(COMMIT_MS if delivered else HEARTBEAT_MS)
            found = await self._shown([each for each in records if _has(each, wanted.contains)], wanted)
            lines = [f"data: {json.dumps(each)}\n\n" for each in found]
            if lines and wanted.group is None:
                positions = {each.partition: place.offset for each, place in consumer.positions().items()}
                lines[-1] = f"id: {event_id(positions)}\n{lines[-1]}"
            await blocks.send("".join(lines).encode() or b": still here\n\n")
            if wanted.group is not None and delivered:
                await consumer.commit(delivered)
            delivered = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}

    async def _shown(self, records: Sequence[ConsumerRecord], wanted: Wanted) -> list[Json]:
        if "schema" not in wanted.formats or self.schemas is None or not records:
            return [record_json(each, wanted.formats) for each in records]
        decode = self.schemas.batch().decode
        return await self.asker.in_thread(lambda: [record_json(each, wanted.formats, decode) for each in records])

    async def _partitions(self, topic: str, wanted: Wanted) -> list[int]:
        """Numbers of the partitions to be read. Raises `RestError`."""
        if "schema" in wanted.formats and self.schemas is None:
            raise refused("format schema needs a registry: start the page with --schema-registry")
        described = (await self.call(lambda admin: admin.describe_topics(topic))).outcomes[topic]
        if isinstance(described, KafkaError):
            raise of_kafka(described)
        known = [each.partition for each in described.partitions]
        if wanted.partition is not None and wanted.partition not in known:
            raise RestError(404, 40403, f"topic {topic} has no partition {wanted.partition}")
        return known if wanted.partition is None else [wanted.partition]

    @asynccontextmanager
    async def _consumer(self, topic: str, wanted: Wanted, partitions: Sequence[int]) -> AsyncIterator[Consumer]:
        settings = {**self.reader_settings(), **_READER}
        reset = wanted.start if wanted.start in ("earliest", "latest") else "latest"
        if wanted.group is not None:
            consumer = Consumer(topic, group_id=wanted.group, auto_offset_reset=reset, **settings)
            async with consumer:
                yield consumer
            return
        async with Consumer(auto_offset_reset=reset, **settings) as consumer:
            places = [TopicPartition(topic, number) for number in partitions]
            consumer.assign(places)
            await _seek(consumer, places, wanted)
            yield consumer

    def _check_room(self) -> None:
        if self.readers >= MOST_READERS:
            raise RestError(503, 50302, f"there are {MOST_READERS} readers already")

    def _as_reader(self) -> _Reading:
        self._check_room()
        return _Reading(self)


class _Reading:
    """Counts one reader for the length of a block."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def __enter__(self) -> None:
        self._rest.readers += 1

    def __exit__(self, *_: object) -> None:
        self._rest.readers -= 1


async def _seek(consumer: Consumer, places: Iterable[TopicPartition], wanted: Wanted) -> None:
    if wanted.start_ms is not None:
        found = await consumer.offsets_for_times(dict.fromkeys(places, wanted.start_ms))
        for place, offset in found.items():
            if offset is not None:
                consumer.seek(place, offset.offset)
    for place in places:
        offset_of = wanted.positions.get(place.partition, wanted.start_offset)
        if offset_of is not None:
            consumer.seek(place, offset_of)


def _has(record: ConsumerRecord, text: str) -> bool:
    wanted = text.encode()
    return not wanted or wanted in (record.value or b"") or wanted in (record.key or b"")


async def _until_closed(events: trio.MemoryReceiveChannel[bytes]) -> AsyncIterator[bytes]:
    async with events:
        async for block in events:
            yield block


def _refusal_of(error: Exception) -> RestError:
    if isinstance(error, RestError):
        return error
    if isinstance(error, KafkaError):
        return of_kafka(error)
    if isinstance(error, ValueError):
        return refused(str(error))
    return RestError(503, 50301, " ".join(str(error).split()))


