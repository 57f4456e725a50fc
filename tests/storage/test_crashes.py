"""The log on a disk that is killed or loses its power at every single operation of a workload.

A small workload appends, rolls, flushes, truncates, deletes old segments and closes. It runs once to count the
operations that change the disk, then once for each of them with a crash right there, some with a torn write. Afterwards
the log must be a prefix of what was appended, contain everything durable, and accept appends.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import decode_records
from barnabas.runtime.simulated.process import NodeKilled
from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from tests.examples import examples
from tests.storage.rig import NOW_MS, Rig, all_batches, append, batch, producer_batch
from tests.storage.test_aborted import Facts, marker

CONFIG = TopicConfig(
    segment_bytes=700,
    index_interval_bytes=100,
    segment_index_bytes=400,
    retention_bytes=1200,
    file_delete_delay_ms=0,
)


@dataclass
class Workload:
    """Does random things to a log, and remembers what the log must contain."""

    rig: Rig
    chance: random.Random
    log: PartitionLog = field(init=False)
    batches: list[bytes] = field(default_factory=list)
    """Every batch in the log, in order; also those before its start."""
    start_offset: int = 0
    durable_offset: int = 0
    """The smallest end the log may have after a power cut."""
    uncertain: list[bytes] = field(default_factory=list)
    """Batches that were being appended, or about to be truncated, when the crash came."""
    undone: list[list[bytes]] = field(default_factory=list)
    """The log before each truncation that a power cut may still undo."""
    retaining: bool = False
    checkpointed: int = 0
    clean: bool = False

    def open(self) -> None:
        self.log = self.rig.open(CONFIG, recovery_point=self.checkpointed, clean_shutdown=self.clean)
        self.clean = False
        self.log.on_recovery_point_lowered = self.recovery_point_lowered

    def recovery_point_lowered(self, log: PartitionLog) -> None:
        self.checkpointed = min(self.checkpointed, log.recovery_point)

    def on(self, rig: Rig) -> Workload:
        """The same expectations for another disk."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("rig", "log")}
        other = Workload(rig, values.pop("chance"))
        for name, value in values.items():
            setattr(other, name, list(value) if isinstance(value, list) else value)
        return other

    def run(self, steps: int) -> None:
        self.open()
        actions = [self.append] * 8 + [self.flush] * 2 + [self.retain] * 2 + [self.truncate, self.roll, self.reopen]
        for _ in range(steps):
            self.chance.choice(actions)()

    def append(self) -> None:
        kind = self.chance.random()
        if kind < 0.2:
            data = [producer_batch(7, 0, self.sequence)]
        elif kind < 0.5:
            data = [self.transactional_batch()]
        else:
            data = [
                batch(self.chance.randint(1, 3), value=bytes(self.chance.randint(0, 60)))
                for _ in range(self.chance.randint(1, 2))
            ]
        start = self.log.log_end_offset
        epoch = self.log.latest_epoch if self.chance.random() < 0.7 else self.log.latest_epoch + 1
        epoch = max(epoch, 0)
        numbered = []
        for one in data:
            copy = bytearray(one)
            copy[0:8] = start.to_bytes(8, "big")
            copy[12:16] = epoch.to_bytes(4, "big")
            start = read_header(copy).next_offset
            numbered.append(bytes(copy))
        self.uncertain = numbered
        segments = len(self.log.segments)
        append(self.log, *data, leader_epoch=epoch)
        self.batches = self.batches + numbered
        if len(self.log.segments) > segments:
            self.undone.clear()
        self.uncertain = []

    def transactional_batch(self) -> bytes:
        """Two producers that begin, continue and sometimes end transactions."""
        facts = Facts.in_batches(self.batches)
        producer_id = self.chance.choice((8, 9))
        if producer_id in facts.open and self.chance.random() < 0.5:
            return marker(producer_id, 0, commit=self.chance.random() < 0.3)
        sequence = facts.sequences.get(producer_id, -1) + 1
        return producer_batch(producer_id, 0, sequence, transactional=True)

    @property
    def sequence(self) -> int:
        """The next sequence of the only producer in the log."""
        mine = [header for header in map(read_header, self.batches) if header.producer_id == 7]
        return mine[-1].last_sequence + 1 if mine else 0

    def flush(self) -> None:
        if self.chance.random() < 0.5:
            self.log.flush()
            self.undone.clear()
        else:
            work = self.log.flushes.work(rolled_only=True)
            if work is None:
                return
            work()
            self.log.flushes.done(work.offset)
        self.durable_offset = self.log.recovery_point
        if self.chance.random() < 0.5:
            self.checkpointed = self.log.recovery_point

    def truncate(self) -> None:
        kept = len(self.batches) - self.chance.randint(0, 4)
        offset = read_header(self.batches[kept]).base_offset if 0 <= kept < len(self.batches) else None
        if offset is None or offset <= self.start_offset:
            return
        self.durable_offset = min(self.durable_offset, offset)
        self.undone.append(self.batches)
        self.uncertain, self.batches = self.batches[kept:], self.batches[:kept]
        self.log.truncate_to(offset)
        self.uncertain = []

    def retain(self) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        self.retaining = True
        self.log.delete_old_segments(NOW_MS)
        self.start_offset = self.log.log_start_offset
        self.retaining = False
        work = self.log.deletion_work(NOW_MS)
        if work is not None:
            work()

    def roll(self) -> None:
        segments = len(self.log.segments)
        self.log.roll(NOW_MS)
        if len(self.log.segments) > segments:
            self.undone.clear()

    def reopen(self) -> None:
        self.log.close()
        self.durable_offset = self.checkpointed = self.log.log_end_offset
        self.undone.clear()
        # A later start finds the marker only if the stop was complete.
        self.clean = self.chance.random() < 0.7
        self.open()

    def check_after(self, *, power_cut: bool) -> None:
        """Recover after a crash, then check the guarantees."""
        self.clean = False
        self.open()
        log = self.log
        found = all_batches(log)
        last = read_header(self.batches[-1]).next_offset if self.batches else 0
        end = log.log_start_offset
        for data in found:
            header = read_header(data)
            assert header.base_offset == end, f"a gap: {end} to {header.base_offset}"
            end = header.next_offset
        assert end == log.log_end_offset
        histories = [self.batches + self.uncertain] + (self.undone if power_cut else [])
        matching = [history for history in histories if is_part(found, history)]
        assert matching, "not a part of anything that was appended"
        self.batches, self.uncertain = matching[0], []
        assert end >= (self.durable_offset if power_cut else last), log.recovery_events
        assert self.retaining or log.log_start_offset <= self.start_offset, "records at the front are lost"
        self.check_producers(log)
        self.check_transactions(log)
        self.check_inside(log, found)

    def check_producers(self, log: PartitionLog) -> None:
        """The state follows from the batches in the log and the snapshots before them."""
        assert log.producers is not None
        mine = [header for header in map(read_header, self.batches + self.uncertain) if header.producer_id == 7]
        mine = [header for header in mine if header.last_offset < log.log_end_offset]
        entry = log.producers.entries.get(7)
        if entry is None:
            assert not mine or mine[-1].last_offset < log.log_start_offset
        else:
            assert entry.last_sequence == mine[-1].last_sequence

    def check_transactions(self, log: PartitionLog) -> None:
        """Open and aborted transactions follow from all batches that ever were in the log."""
        end = log.log_end_offset
        facts = Facts.in_batches([data for data in self.batches if read_header(data).last_offset < end])
        log.set_high_watermark(end)
        unstable = facts.last_stable_offset(end)
        assert log.last_stable_offset == max(unstable, log.log_start_offset)
        entries = [entry[:3] for segment in log.segments for entry in segment.aborted]
        first = log.segments[0].base_offset
        assert entries == [each for each in facts.aborted(0, end) if each[2] >= first]

    def check_inside(self, log: PartitionLog, found: list[bytes]) -> None:
        """Indexes, epochs and lookups agree with the batches."""
        for data in found:
            header = read_header(data)
            part = log.read(header.last_offset, 1, log.log_end_offset)
            assert part is not None
            assert part.file.pread(part.size_bytes, part.position) == data
            assert log.epochs.epoch_for_offset(header.base_offset) == header.partition_leader_epoch
        for segment in log.segments:
            for index in (segment.offset_index, segment.time_index):
                entries = [index.entry(slot) for slot in range(index.entries)]
                assert entries == sorted(entries)
        append(log, batch(2), leader_epoch=max(log.latest_epoch, 0))
        assert [record.offset for record in decode_records(all_batches(log)[-1])] == [
            log.log_end_offset - 2,
            log.log_end_offset - 1,
        ]


def is_part(found: list[bytes], history: list[bytes]) -> bool:
    """True if `found` is a contiguous part of `history`."""
    if not found:
        return True
    return found[0] in history and history[history.index(found[0]) :][: len(found)] == found


def run_until(seed: int, steps: int, crash_at: int | None, power_cut: bool) -> tuple[Workload, int]:
    rig = Rig(seed=seed)
    rig.process.dies_at_change = crash_at
    rig.process.dies_by_power_cut = power_cut
    workload = Workload(rig, random.Random(seed))
    try:
        workload.run(steps)
    except NodeKilled:
        rig.start()
    else:
        rig.power_cut() if power_cut else rig.kill()
    return workload, rig.process.changes


def operations(seed: int, steps: int) -> int:
    rig = Rig(seed=seed)
    Workload(rig, random.Random(seed)).run(steps)
    return rig.process.changes


@pytest.mark.feature("ST-10", "ST-13", "ST-20")
@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_every_operation(seed: int, power_cut: bool) -> None:
    steps = 30
    for crash_at in range(1, operations(seed, steps) + 1):
        workload, _ = run_until(seed, steps, crash_at, power_cut)
        try:
            workload.check_after(power_cut=power_cut)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, crash at operation {crash_at}: {error}") from error


@pytest.mark.feature("ST-10")
@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 200), st.booleans())
@example(33554432, 124, True)
@example(96592770, 133, True)
@example(320284832, 90, True)
@example(73740369, 183, False)
def test_crash_after_crash(seed: int, crash_at: int, power_cut: bool) -> None:
    """Recovery itself is interrupted as well."""
    workload, _ = run_until(seed, 40, crash_at, power_cut)
    for second in range(1, 12):
        workload.rig.process.dies_at_change = second
        workload.rig.process.dies_by_power_cut = power_cut
        try:
            workload.open()
        except NodeKilled:
            workload.rig.start()
            workload.clean = False
        else:
            break
    workload.rig.process.dies_at_change = None
    workload.check_after(power_cut=power_cut)
