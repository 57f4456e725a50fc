"""Reads from a partition beside a plain list of its batches, from which every answer is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.partition import Partition, PartitionHost
from barnabas.broker.replication.reads import FetchKind, OffsetIsRemote, ReadRequest, ReadResult
from barnabas.broker.replication.replica import Replica, ReplicaSettings
from barnabas.kraft.metadata.image import PartitionImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.settings.topic import TopicConfig
from tests.broker.replication.test_replica import broker
from tests.examples import examples
from tests.storage.rig import NOW_MS, Rig, append, batch, producer_batch

SELF = 1
LED = PartitionImage((1, 2), (bytes(16),) * 2, (1, 2), leader=SELF, leader_epoch=0, partition_epoch=0)
SIZE = len(batch(2))
PRODUCERS = (7, 8)


@dataclass(frozen=True)
class Batch:
    first: int
    last: int
    epoch: int
    size: int


@dataclass(frozen=True)
class Aborted:
    producer: int
    first: int
    marker: int


class Pair:
    """A partition that this broker leads, whose other replica never fetches."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.may_be_fenced = False
        tiered = draw(st.booleans())
        config = TopicConfig(
            segment_bytes=3 * SIZE,
            index_interval_bytes=1,
            segment_index_bytes=1 << 14,
            retention_ms=-1,
            local_retention_bytes=0 if tiered else -2,
            remote_storage_enable=tiered,
            remote_log_storage_system_enable=tiered,
        )
        clock: Any = SimpleNamespace(now_ms=lambda: 10_000)
        nothing: Any = lambda *arguments: None  # noqa: E731
        host = PartitionHost(clock, clock, nothing, nothing, nothing, may_be_fenced=lambda: self.may_be_fenced)
        self.log = Rig(seed=draw(st.integers(0, 9))).open(config)
        replica = Replica(SELF, {node: broker(node) for node in (1, 2)}.get, ReplicaSettings(), 0, 0)
        self.partition = Partition("orders", bytes(16), self.log, replica, host)
        self.partition.partition_changed(LED)
        self.batches: list[Batch] = []
        self.open: dict[int, int] = {}
        """The first offset of each open transaction."""
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.ended: list[tuple[int, int, int, bool]] = []
        """(producer, first offset, offset of the marker, aborted)"""
        self.epoch = self.start = self.local_start = self.watermark = 0

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    # -- the life of the log

    def write(self, data: bytes, count: int) -> int:
        first = self.end
        append(self.log, data, leader_epoch=self.epoch)
        self.batches.append(Batch(first, first + count - 1, self.epoch, len(data)))
        return first

    def append(self) -> None:
        count = self.draw(st.integers(1, 3))
        self.write(batch(count), count)

    def append_in_transaction(self) -> None:
        producer, count = self.draw(st.sampled_from(PRODUCERS)), self.draw(st.integers(1, 2))
        data = producer_batch(producer, 0, self.sequences[producer], count, transactional=True)
        self.open.setdefault(producer, self.write(data, count))
        self.sequences[producer] += count

    def end_transaction(self) -> None:
        if self.open:
            producer, aborted = self.draw(st.sampled_from(sorted(self.open))), self.draw(st.booleans())
            marker = self.write(build_end_txn_batch(EndTxn(not aborted, 0), producer, 0, NOW_MS), 1)
            self.ended.append((producer, self.open.pop(producer), marker, aborted))

    def next_epoch(self) -> None:
        self.epoch += self.draw(st.integers(1, 2))

    def commit(self) -> None:
        self.watermark = self.draw(st.integers(self.watermark, self.end))
        self.log.set_high_watermark(self.watermark)

    def delete_records(self) -> None:
        self.start = self.draw(st.integers(self.start, self.watermark))
        self.log.advance_log_start_offset(self.start)
        self.local_start = max(self.local_start, self.start)

    def copy_to_remote(self) -> None:
        """What is remote leaves the disk."""
        log = self.log
        if log.config.is_tiered:
            log.flush()
            log.highest_copied_offset = max(log.highest_copied_offset, self.watermark - 1)
            log.delete_old_segments(NOW_MS)
            self.local_start = max(self.local_start, log.segments[0].base_offset)

    # -- answers

    @property
    def last_stable(self) -> int:
        pending = [first for _, first, marker, _ in self.ended if marker >= self.watermark]
        unstable = min([*self.open.values(), *pending], default=self.watermark)
        return min(self.watermark, max(unstable, self.start))

    def end_of_epoch(self, asked: int) -> tuple[int, int]:
        """(the largest epoch of the log up to it, its end)"""
        starts: dict[int, int] = {}
        for each in self.batches:
            if each.last >= self.start:
                starts.setdefault(each.epoch, max(each.first, self.start))
        if not starts:
            starts = {self.known_at_end(): self.end}
        if asked > max(starts):
            return -1, -1
        known = [epoch for epoch in starts if epoch <= asked]
        later = [start for epoch, start in sorted(starts.items()) if epoch > asked]
        return (known[-1] if known else asked), (later[0] if later else self.end)

    def known_at_end(self) -> int:
        return self.batches[-1].epoch if self.batches else 0

    def expected(self, request: ReadRequest) -> int | tuple[int, int] | None:
        """An error, where the logs diverge, or None for a read."""
        if request.last_fetched_epoch >= 0:
            epoch, end = self.end_of_epoch(request.last_fetched_epoch)
            if epoch < 0 or request.offset < self.start:
                return int(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < request.last_fetched_epoch or end < request.offset:
                return epoch, end
        if not self.start <= request.offset <= self.end:
            return int(ErrorCode.OFFSET_OUT_OF_RANGE)
        if request.offset < self.local_start:
            return int(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        return None

    def upper(self, kind: FetchKind) -> int:
        bounds = {FetchKind.REPLICA: self.end, FetchKind.READ_COMMITTED: self.last_stable}
        return bounds.get(kind, self.watermark)

    def check(self) -> None:
        draw = self.draw
        self.may_be_fenced = draw(st.booleans())
        request = ReadRequest(
            draw(st.sampled_from(FetchKind)),
            draw(st.integers(max(0, self.start - 1), self.end + 1)),
            draw(st.sampled_from([1, SIZE, 2 * SIZE, 1 << 20])),
            last_fetched_epoch=draw(st.integers(-1, self.epoch + 1)),
            at_least_one_batch=draw(st.booleans()),
        )
        expected, upper = self.expected(request), self.upper(request.kind)
        for read in (self.partition.read, self.copied):
            bound = upper if read == self.partition.read else self.end
            forgotten = read == self.partition.read and self.may_be_fenced and request.kind is not FetchKind.REPLICA
            try:
                found = read(request)
            except KafkaError as error:
                if expected is None:
                    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and forgotten and request.offset >= bound
                else:
                    assert error.code == expected
                    assert isinstance(error, OffsetIsRemote) == (expected == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
                continue
            offsets = (self.watermark, self.last_stable, self.start, self.end)
            assert found[1:5] == offsets
            if isinstance(expected, tuple):
                assert (found.records, found.diverging_epoch, found.aborted) == (None, expected, ())
                continue
            assert expected is None and found.diverging_epoch is None
            assert not (forgotten and request.offset >= bound), "it may be deposed"
            kind = request.kind if read == self.partition.read else FetchKind.REPLICA
            at_least_one = request.at_least_one_batch or read != self.partition.read
            self.check_records(found, request._replace(kind=kind, at_least_one_batch=at_least_one), bound)

    def copied(self, request: ReadRequest) -> ReadResult:
        """A copy on this broker reads up to the log end, at least one batch."""
        return self.partition.read_copy(request.offset, request.last_fetched_epoch, request.max_bytes)

    def check_records(self, found: ReadResult, request: ReadRequest, bound: int) -> None:
        wanted = [each for each in self.batches if request.offset <= each.last < bound]
        if found.records is None:
            assert not wanted or (wanted[0].size > request.max_bytes and not request.at_least_one_batch)
            assert found.aborted == ()
            return
        size, taken = found.records.size_bytes, list[Batch]()
        while size > 0:
            taken.append(wanted[len(taken)])
            size -= taken[-1].size
        assert size == 0 and taken, "whole batches, from the one with the offset on"
        assert found.records.size_bytes <= request.max_bytes or (len(taken) == 1 and request.at_least_one_batch)
        upper = found.records.upper_offset
        assert taken[-1].last < upper <= max(bound, taken[-1].last + 1)
        aborted = [
            (producer, first, marker)
            for producer, first, marker, is_aborted in self.ended
            if is_aborted and first < upper and marker >= request.offset and request.kind is FetchKind.READ_COMMITTED
        ]
        assert [each[:3] for each in found.aborted] == aborted


STEPS = ["append", "append", "append_in_transaction", "append_in_transaction", "end_transaction", "commit"]
STEPS += ["next_epoch", "commit", "delete_records", "copy_to_remote"]


@pytest.mark.feature("RE-05", "RE-13", "TS-01", "TX-07")
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_a_reader_gets_what_it_may_see_from_where_it_asks(data: st.DataObject) -> None:
    pair = Pair(data.draw)
    for _ in range(data.draw(st.integers(2, 20))):
        getattr(pair, data.draw(st.sampled_from(STEPS)))()
        pair.check()
