"""Two replicas of a compacted, tiered partition with one store and one metadata log; either may believe that it leads.

At each record of the metadata the whole log is read as a consumer of each replica would, and compared with what was
written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import trio

from barnabas.broker.remote.copier import Copier
from barnabas.broker.remote.expirer import Expirer
from barnabas.broker.remote.recleaner import Recleaner
from barnabas.broker.remote.tended import Job, LeadershipEnded, Tended
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.record import Record, decode_records
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.object_store import StoreError
from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from barnabas.storage.names import LOG_SUFFIX
from barnabas.storage.producer_snapshot_format import encode_snapshot
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import MetadataRecord, PartitionDelete, RemoteSegment, SegmentState
from barnabas.storage.remote.shared_range import shared_end
from tests.broker.remote.tier_rig import KEY, MemoryMetadata, MemoryStore, Tier
from tests.storage.cleaning_rig import clean, close_segments, compacted, keyed, table
from tests.storage.rig import NOW_MS, append

TOMBSTONES_MS = 5_000


def untiered() -> TopicConfig:
    """A compacted topic that is tiered later."""
    return replace(compacted_tier(), remote_storage_enable=False)


def compacted_tier(**changes: Any) -> TopicConfig:
    config = compacted(
        remote_storage_enable=True,
        remote_log_storage_system_enable=True,
        local_retention_bytes=0,
        delete_retention_ms=TOMBSTONES_MS,
        file_delete_delay_ms=0,
        segment_bytes=600,
    )
    return replace(config, barnabas_remote_storage_compacted_enable=True, **changes)


class SharedMetadata(MemoryMetadata):
    """Each record is judged when it is applied."""

    def __init__(self, partition: Replicas) -> None:
        super().__init__()
        self._partition = partition

    def apply(self, record: MetadataRecord) -> bool:
        done = super().apply(record)
        self._partition.check()
        return done


class OwnMetadata:
    """The metadata as one broker uses it. `gate` holds up its next record of the state `held`."""

    def __init__(self, shared: SharedMetadata) -> None:
        self._shared = shared
        self.gate: trio.Event | None = None
        self.held = SegmentState.COPY_SEGMENT_FINISHED
        self.lost: str | None = None

    def segments(self, key: Any) -> PartitionSegments | None:
        return self._shared.segments(key)

    async def publish(self, record: MetadataRecord) -> None:
        if self.gate is not None and not isinstance(record, PartitionDelete) and record.state is self.held:
            await self.gate.wait()
        await self._shared.publish(record)


@dataclass
class Replicas:
    """Use it inside `trio.run` with a MockClock. Replica `leader` leads; `zombie`, if any, was the leader before and
    does not know that it is deposed."""

    nursery: trio.Nursery
    config: TopicConfig = field(default_factory=compacted_tier)
    store: MemoryStore = field(default_factory=MemoryStore)
    epoch: int = 1
    leader: int = 0
    zombie: int | None = None
    has_old_configs: int | None = None
    """A replica that does not know yet that the topic is tiered. It does not know the epoch that began then, either, so
    it gets no records."""
    written: list[Record] = field(default_factory=list)
    """All records."""
    broken: str = ""

    def __post_init__(self) -> None:
        self.metadata = SharedMetadata(self)
        self.tiers = [Tier(store=self.store, seed=number) for number in range(2)]
        self.own = [OwnMetadata(self.metadata) for _ in range(2)]
        self.tended: list[Tended] = []
        self.jobs: list[dict[Job, Any]] = []
        for tier, own in zip(self.tiers, self.own, strict=True):
            tier.metadata = own  # type: ignore[assignment]
            tier.open(self.config)
            ports = tier.ports(self.nursery)
            self.tended.append(Tended(tier.partition, {job: Backoff(1, 1) for job in Job}))
            self.jobs.append(
                {Job.COPY: Copier(ports), Job.EXPIRE: Expirer(ports), Job.RECLEAN: Recleaner(ports)}
            )
        self.tiers[0].lead(1)
        self.tiers[1].follow(1)

    def log(self, number: int) -> PartitionLog:
        return self.tiers[number].log

    @property
    def now_ms(self) -> int:
        return NOW_MS + round(trio.current_time() * 1000)

    # -- the log

    def put(self, key: str, value: str | None) -> None:
        """The leader appends a record; the other replica gets it unless it takes itself for the leader."""
        log = self.log(self.leader)
        append(log, keyed((key, value), timestamp=self.now_ms), leader_epoch=self.epoch)
        log.set_high_watermark(log.log_end_offset)
        self.written += decode_records(next(log.batches(log.log_end_offset - 1)))
        self.replicate()

    def replicate(self) -> None:
        source, other = self.log(self.leader), 1 - self.leader
        if self.zombie is not None or self.has_old_configs is not None:
            return
        target = self.log(other)
        if target.log_end_offset < source.local_log_start_offset:
            epochs = source.epochs.entries_in(-1, source.local_log_start_offset)
            start, at = source.log_start_offset, source.local_log_start_offset
            target.start_behind_remote(at, start, epochs, encode_snapshot(()), self.now_ms)
        for batch in source.batches(target.log_end_offset):
            target.append_as_follower(batch, self.now_ms, leaders_epochs=source.epochs.entries())
        target.set_high_watermark(source.high_watermark)

    def close(self, number: int) -> None:
        close_segments(self.log(number))

    def clean(self, number: int) -> None:
        log = self.log(number)
        if len(log.segments) > 1:
            clean(log, self.now_ms)
        self.check()

    def delete_local(self, number: int) -> None:
        self.log(number).delete_old_segments(self.now_ms)
        self.check()

    def begin_tiering(self, *, other_knows: bool) -> None:
        """The controller makes the topic tiered; the leader stays, in a new epoch."""
        self.config = compacted_tier()
        self.epoch += 1
        other = self.has_old_configs = 1 - self.leader
        self.log(self.leader).configure(self.config)
        self.tiers[self.leader].lead(self.epoch)
        if other_knows:
            self.learn()
        assert self.has_old_configs in (None, other)

    def learn(self) -> None:
        """The other replica gets to the metadata of the leader."""
        if self.has_old_configs is not None:
            other, self.has_old_configs = self.has_old_configs, None
            self.log(other).configure(self.config)
            self.tiers[other].follow(self.epoch)
            self.replicate()

    def elect(self, *, deposed_knows: bool) -> None:
        self.learn()
        if self.zombie is not None:
            self.wake()
        before, self.leader = self.leader, 1 - self.leader
        self.epoch += 1
        self.tiers[self.leader].lead(self.epoch)
        if deposed_knows:
            self.tiers[before].follow(self.epoch)
        else:
            self.zombie = before

    def wake(self) -> None:
        """The deposed leader learns that it is."""
        if self.zombie is not None:
            zombie, self.zombie = self.zombie, None
            self.tiers[zombie].follow(self.epoch)
            self.replicate()

    # -- work

    async def work(self, number: int, job: Job) -> None:
        try:
            await self.jobs[number][job].round(self.tended[number])
        except (KafkaError, StoreError, LeadershipEnded):
            return

    async def all(self, number: int) -> None:
        """Everything that can be done is done."""
        for job in (Job.COPY, Job.RECLEAN, Job.EXPIRE):
            await self.work(number, job)

    # -- what readers get

    def check(self) -> None:
        for number in (self.leader, 1 - self.leader):
            if number != self.zombie and not self.broken:
                self.broken = self._wrong(number)

    def _wrong(self, number: int) -> str:
        log = self.log(number)
        if log.log_end_offset != len(self.written):
            return ""
        found, problem = self.view(number)
        if problem:
            return problem
        for record in found:
            truth = self.written[record.offset]
            if (truth.key, truth.value) != (record.key, record.value):
                return f"{number} has {record} where {truth} was written"
        got, wanted = table(found), table(self.written)
        if got != wanted:
            missing = {key: value for key, value in wanted.items() if got.get(key) != value}
            back = {key: value for key, value in got.items() if key not in wanted}
            return f"{number} lacks {missing}, and has {back} although it was deleted"
        return ""

    def view(self, number: int) -> tuple[list[Record], str]:
        """The records of the whole log, and what is wrong."""
        log = self.log(number)
        segments = self.metadata.segments(KEY)
        assert segments is not None
        offset, found = log.log_start_offset, list[Record]()
        while offset < log.local_log_start_offset:
            epoch = log.epochs.epoch_for_offset(offset)
            segment = segments.segment_for(epoch, offset)
            if segment is None:
                return [], f"{number}: no remote segment has offset {offset} of epoch {epoch}"
            if segment.state is not SegmentState.COPY_SEGMENT_FINISHED:
                return [], f"{number}: {segment} is read"
            end = min(shared_end(segment, offset, log.epochs, log.log_end_offset), log.local_log_start_offset)
            starts = [each.start_offset for known, _ in log.epochs.entries() for each in segments.referenced(known)]
            end = min([end, *(each for each in starts if each > offset)])
            found += [record for record in self._stored(segment) if offset <= record.offset < end]
            offset = end
        for batch in log.batches(log.local_log_start_offset):
            found += [record for record in decode_records(batch) if record.offset >= log.local_log_start_offset]
        return found, ""

    def _stored(self, segment: RemoteSegment) -> list[Record]:
        name = f"{uuid_to_string(segment.segment_id)}{LOG_SUFFIX}"
        data = next((content for key, content in self.store.objects.items() if key.endswith(name)), None)
        assert data is not None, f"{segment} is not in the store"
        return [
            record
            for position, header in iterate_batches(data)
            for record in decode_records(data[position : position + header.size_bytes])
        ]
