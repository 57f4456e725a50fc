"""Segments on their way to a remote store, beside what the log knew when it closed them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import CorruptBatch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.settings.topic import TopicConfig
from barnabas.storage.checkpoints import parse_epochs
from barnabas.storage.producer_snapshot_format import decode_snapshot
from barnabas.storage.producers import ProducerEntry
from barnabas.storage.segment_export import SegmentBytes, export_segment
from barnabas.storage.transaction_index import read_entries
from tests.examples import examples
from tests.storage.rig import DIRECTORY, NOW_MS, Rig, append, batch, producer_batch


class Known(NamedTuple):
    """The state of one producer."""

    epoch: int
    last_sequence: int
    last_offset: int
    coordinator_epoch: int
    open_from: int

    @classmethod
    def of(cls, entry: ProducerEntry) -> Known:
        last_offset = entry.batches[-1].last_offset if entry.batches else -1
        ends = (entry.epoch, entry.last_sequence, last_offset)
        return cls(*ends, entry.coordinator_epoch, entry.transaction_first_offset)


@dataclass
class Closed:
    """A segment, and its end as the log knew it then."""

    base_offset: int
    end_offset: int = 0
    producers: dict[int, Known] = field(default_factory=dict)
    """At its end."""
    seen: dict[int, Known] = field(default_factory=dict)
    """At its end, by the batches of the segment alone."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(producer id, first offset, offset of the marker)"""
    max_timestamp: int = -1


class Story:
    """A log that some producers fill, with transactions and without."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.rig = Rig(seed=draw(st.integers(0, 99)))
        self.log = self.rig.open(TopicConfig(index_interval_bytes=1, segment_index_bytes=1 << 12))
        self.known: dict[int, Known] = {}
        self.seen: dict[int, Known] = {}
        self.closed: list[Closed] = []
        self.active = Closed(0)
        self.epoch = 0

    def apply(self, producer_id: int, *, is_marker: bool, committed: bool, count: int, offset: int) -> None:
        for states, is_own in ((self.known, True), (self.seen, False)):
            before = states.get(producer_id, Known(0, -1, -1, -1, -1))
            if is_marker:
                if is_own and not committed and before.open_from >= 0:
                    self.active.aborted.append((producer_id, before.open_from, offset))
                states[producer_id] = before._replace(coordinator_epoch=7, open_from=-1)
                continue
            open_from = before.open_from
            if producer_id >= 10 and open_from < 0:
                open_from = offset
            last_sequence = self.known[producer_id].last_sequence if not is_own else before.last_sequence + count
            states[producer_id] = before._replace(
                last_sequence=last_sequence, last_offset=offset + count - 1, open_from=open_from
            )

    def produce(self) -> None:
        producer_id, count = self.draw(st.sampled_from([-1, 1, 2, 10, 11])), self.draw(st.integers(1, 3))
        if producer_id < 0:
            append(self.log, batch(count), leader_epoch=self.epoch)
        else:
            sequence = self.known.get(producer_id, Known(0, -1, -1, -1, -1)).last_sequence + 1
            data = producer_batch(producer_id, 0, sequence, count, transactional=producer_id >= 10)
            offset = append(self.log, data, leader_epoch=self.epoch).first_offset
            self.apply(producer_id, is_marker=False, committed=False, count=count, offset=offset)
        self.active.max_timestamp = max(self.active.max_timestamp, NOW_MS + count - 1)

    def end_transaction(self) -> None:
        producer_id, committed = self.draw(st.sampled_from([10, 11])), self.draw(st.booleans())
        if producer_id not in self.known:
            return
        data = build_end_txn_batch(EndTxn(committed, 7), producer_id, 0, NOW_MS)
        offset = append(self.log, data, leader_epoch=self.epoch).first_offset
        self.apply(producer_id, is_marker=True, committed=committed, count=1, offset=offset)
        self.active.max_timestamp = max(self.active.max_timestamp, NOW_MS)

    def roll(self) -> None:
        if self.log.log_end_offset == self.active.base_offset:
            return
        self.log.roll(NOW_MS)
        self.active.end_offset = self.log.log_end_offset
        self.active.producers, self.active.seen = {**self.known}, {**self.seen}
        self.closed.append(self.active)
        self.seen.clear()
        self.active = Closed(self.log.log_end_offset)

    def elect(self) -> None:
        self.epoch += 1

    # -- exports

    def export(self) -> None:
        if not self.closed:
            return
        segment = self.draw(st.sampled_from(self.closed))
        lost = self.draw(st.sampled_from(["nothing", "the end", "the end", "both"]))
        torn = [] if lost == "nothing" else [segment.end_offset]
        torn += [segment.base_offset] if lost == "both" else []
        whole = {path: self.tear(path) for path in (f"{DIRECTORY}/{at:020}.snapshot" for at in torn if at)}
        found = decode_snapshot(self.exported(segment).producer_snapshot)
        assert {entry.producer_id: Known.of(entry) for entry in found} == (
            segment.seen if lost == "both" else segment.producers
        )
        for path, content in whole.items():
            self.rig.disk.open(path).pwrite(content, 0)

    def tear(self, path: str) -> bytes:
        """A snapshot is lost in part; returns all of it."""
        content = self.rig.disk.read_bytes(path)
        self.rig.disk.open(path).truncate(self.draw(st.integers(0, len(content) - 1)))
        return content

    def exported(self, segment: Closed) -> SegmentBytes:
        export = export_segment(self.log, segment.base_offset)
        assert export is not None
        assert (export.base_offset, export.end_offset) == (segment.base_offset, segment.end_offset)
        assert (export.name, export.max_timestamp_ms) == ("orders-0", segment.max_timestamp)
        assert list(export.leader_epochs) == self.log.epochs.entries_in(segment.base_offset, segment.end_offset)
        assert export.has_aborted == bool(segment.aborted)
        content = export.read(NOW_MS)
        export.close()
        found = read_entries(content.transaction_index or b"", "index")
        assert [tuple(entry)[:3] for entry in found] == segment.aborted
        assert parse_epochs(content.leader_epochs, "epochs") == self.log.epochs.entries_in(-1, segment.end_offset)
        files = f"{DIRECTORY}/{segment.base_offset:020}"
        assert content.offset_index == self.rig.disk.read_bytes(f"{files}.index")
        assert content.time_index == self.rig.disk.read_bytes(f"{files}.timeindex")
        return content

    def damage(self) -> None:
        """A byte of a batch, or the offset of the last one."""
        if not self.closed:
            return
        segment = self.draw(st.sampled_from(self.closed))
        real = next(each for each in self.log.segments if each.base_offset == segment.base_offset)
        [*_, (position, header)] = real.headers()
        if self.draw(st.booleans()):
            at, data = position + header.size_bytes - 1, b"\xff"
        else:
            at, data = position, (header.base_offset + 1_000).to_bytes(8, "big")
        before = bytes(real.log_file().pread(len(data), at))
        if before == data:
            return
        real.log_file().pwrite(data, at)
        export = export_segment(self.log, segment.base_offset)
        assert export is not None
        with pytest.raises(CorruptBatch, match=f"segment {segment.base_offset} of orders-0: "):
            export.read(NOW_MS)
        real.log_file().pwrite(before, at)


OFTEN = ["produce", "produce", "roll", "export"]
SOMETIMES = ["end_transaction", "end_transaction", "elect", "damage"]


@pytest.mark.feature("TS-05")
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_a_segment_goes_with_what_its_log_knew(data: st.DataObject) -> None:
    story = Story(data.draw)
    steps = [*OFTEN, *data.draw(st.lists(st.sampled_from(SOMETIMES), min_size=1, max_size=4))]
    for _ in range(data.draw(st.integers(4, 25))):
        getattr(story, data.draw(st.sampled_from(steps)))()
    story.roll()
    story.export()
