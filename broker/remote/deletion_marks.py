"""Shell: finishes what the broker that was to delete the remote segments of a deleted topic has not finished.

That broker marks each partition in `__remote_log_metadata` (DELETE_PARTITION_MARKED) before it deletes anything, and
marks there that nothing is left (DELETE_PARTITION_FINISHED). The leader of the metadata partition looks for marks
without an end, and deletes the rest if their broker is gone, or takes too long. Only a mark in this cluster's own
metadata counts: a topic that is merely unknown here may be alive, or be one of another cluster in the same store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import trio

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.replication.reads import FetchKind, ReadRequest
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.messages.remote_log_metadata import RemotePartitionDeleteMetadataRecord
from barnabas.protocol.records.batch import CorruptBatch, iterate_batches
from barnabas.protocol.records.metadata import read_frame
from barnabas.protocol.records.record import SERVED_LIMIT_BYTES, SERVED_LIMIT_RECORDS, decode_in_slices
from barnabas.runtime.world import FileRegion, World
from barnabas.settings.remote_metadata import REMOTE_METADATA_TOPIC
from barnabas.storage.remote.metadata_records import decode
from barnabas.storage.remote.segment import PartitionDelete, PartitionDeleteState, RemotePartitionKey

log = logging.getLogger(__name__)

LOOK_INTERVAL_MS = 600_000
GONE_AFTER_MS = 600_000
"""Age of a mark whose broker does not run, before another one goes on."""
LATE_AFTER_MS = 6 * 3600 * 1000
"""The same for a broker that runs: it may have lost its disk, and with it what it had to do."""
READ_BYTES = 1024 * 1024


@dataclass(slots=True)
class _Mark:
    broker_id: int
    """The broker that deletes."""
    seen_ms: int
    """Monotonic time at which this broker read the mark."""


@dataclass(slots=True)
class _Place:
    """A metadata partition that this broker leads in one epoch."""

    leader_epoch: int
    position: int = 0
    """Offset of the next record to read."""
    marks: dict[RemotePartitionKey, _Mark] = field(default_factory=dict)
    """Deletions that have not ended."""


@dataclass(frozen=True, slots=True)
class MarksPorts:
    world: World
    partitions: Partitions
    image: Callable[[], MetadataImage]
    delete: Callable[[Iterable[RemotePartitionKey]], None]
    """Begin to delete the remote segments of these partitions, and mark them as deleted by this broker."""


class DeletionMarks:
    def __init__(self, ports: MarksPorts) -> None:
        self._ports = ports
        self._places: dict[tuple[bytes, int], _Place] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await trio.sleep(LOOK_INTERVAL_MS / 1000)
            try:
                await self.look()
            except Exception:
                # A mistake here must not end the looks for good.
                log.exception("the deletions in %s cannot be looked up", REMOTE_METADATA_TOPIC)

    async def look(self) -> None:
        """Read on in all metadata partitions that this broker leads, and take over what is due."""
        topic = self._ports.image().topics.by_name.get(REMOTE_METADATA_TOPIC)
        led: dict[tuple[bytes, int], _Place] = {}
        for index in () if topic is None else topic.partitions:
            assert topic is not None
            partition = self._ports.partitions.find(topic.id, index)
            if partition is None or not partition.is_leader:
                continue
            place = self._places.get(partition.key)
            if place is None or place.leader_epoch != partition.leader_epoch:
                place = _Place(partition.leader_epoch)
            led[partition.key] = place
            await self._read(partition, place)
        self._places = led
        for place in led.values():
            self._take_over(place)

    async def _read(self, partition: Partition, place: _Place) -> None:
        """Read up to the high watermark, as far as this broker leads."""
        while place.position < partition.log.high_watermark:
            request = ReadRequest(FetchKind.READ_UNCOMMITTED, place.position, READ_BYTES, place.leader_epoch, -1)
            try:
                records = partition.read(request).records
                if records is None:
                    return
                deletions, place.position = await self._ports.world.run_blocking(partial(_deletions, records.region))
            except (KafkaError, OSError) as error:
                if isinstance(error, KafkaError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    place.position = max(place.position + 1, partition.log.log_start_offset)
                    continue
                log.info("%s cannot be read for deletions now: %s", partition, error)
                return
            now_ms = self._ports.world.monotonic.now_ms()
            for each in deletions:
                if each.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                    place.marks.pop(each.key, None)
                else:
                    place.marks[each.key] = _Mark(each.broker_id, now_ms)

    def _take_over(self, place: _Place) -> None:
        image, now_ms = self._ports.image(), self._ports.world.monotonic.now_ms()
        due = []
        for key, mark in place.marks.items():
            broker = image.cluster.brokers.get(mark.broker_id)
            is_gone = broker is None or broker.fenced
            if now_ms - mark.seen_ms < (GONE_AFTER_MS if is_gone else LATE_AFTER_MS):
                continue
            if key.topic_id in image.topics.by_id:
                # Metadata from before the deletion was restored.
                log.warning("%s is marked as deleted, and exists: its remote segments stay", key)
                continue
            log.info("%s: broker %d has not deleted its remote segments: this one goes on", key, mark.broker_id)
            mark.seen_ms = now_ms
            due.append(key)
        if due:
            self._ports.delete(due)


def _deletions(region: FileRegion) -> tuple[list[PartitionDelete], int]:
    return deletions_in(region.file.pread(region.count, region.offset))


def deletions_in(data: bytes | memoryview) -> tuple[list[PartitionDelete], int]:
    """Deletions in whole batches of a metadata partition, and the offset after these. Raises CorruptBatch."""
    found: list[PartitionDelete] = []
    next_offset = -1
    for position, header in iterate_batches(data):
        next_offset = header.next_offset
        if header.is_control:
            continue
        batch = memoryview(data)[position : position + header.size_bytes]
        for records in decode_in_slices(batch, SERVED_LIMIT_BYTES, SERVED_LIMIT_RECORDS):
            for record in records:
                deletion = _deletion(record.value or b"")
                if deletion is not None:
                    found.append(deletion)
    if next_offset < 0:
        raise CorruptBatch("there is no whole batch")
    return found, next_offset


def _deletion(value: bytes | memoryview) -> PartitionDelete | None:
    """None for another record, and for one that cannot be read: those who follow its partition report it."""
    try:
        if read_frame(value)[0] != RemotePartitionDeleteMetadataRecord.API_KEY:
            return None
        record = decode(value)
    except MalformedMessage:
        return None
    return record if isinstance(record, PartitionDelete) else None
