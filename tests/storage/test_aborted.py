"""Transactions in one log: open ones, the last stable offset, and the aborted ones.

`Facts` derives all of that from the batches in the log alone; the log is compared with it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import CorruptBatch, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch, read_end_txn
from barnabas.protocol.records.record import Record, decode_records
from barnabas.runtime.simulated.process import NodeKilled
from barnabas.settings.topic import TopicConfig
from barnabas.storage.indexes import PAGE_BYTES, CorruptIndex
from barnabas.storage.log import PartitionLog
from barnabas.storage.producers import ProducerStateConfig, Warrant
from barnabas.storage.segment import Folder
from barnabas.storage.transaction_index import ENTRY_BYTES, AbortedIndex, AbortedTransaction
from tests.examples import examples
from tests.storage.rig import DIRECTORY, NOW_MS, Rig, all_batches, append, batch, heads, producer_batch

CONFIG = TopicConfig(segment_bytes=900, index_interval_bytes=200, segment_index_bytes=1024, file_delete_delay_ms=0)


def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> bytes:
    return bytes(build_end_txn_batch(EndTxn(commit, coordinator_epoch), producer_id, epoch, NOW_MS))


def begin(log: PartitionLog, producer_id: int, epoch: int = 0, sequence: int = 0, value: bytes = b"v") -> int:
    data = producer_batch(producer_id, epoch, sequence, transactional=True, value=value)
    return append(log, data).first_offset


def end(log: PartitionLog, producer_id: int, epoch: int = 0, *, commit: bool) -> int:
    return append(log, marker(producer_id, epoch, commit=commit)).first_offset


def replicate(log: PartitionLog) -> None:
    log.set_high_watermark(log.log_end_offset)


@dataclass
class Facts:
    """Facts derived from the batches of a log by the rules of KIP-98."""

    open: dict[int, int] = field(default_factory=dict)
    """Producer id to the first offset of its transaction."""
    ended: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """(producer id, first offset, offset of the marker, committed)"""
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    values: list[tuple[int, int, bytes, int]] = field(default_factory=list)
    """(offset, last offset of its batch, value, producer id or -1 outside of transactions)"""

    @classmethod
    def in_batches(cls, batches: list[bytes]) -> Facts:
        facts = cls()
        for data in batches:
            header = read_header(data)
            producer_id, offset = header.producer_id, header.base_offset
            if header.is_control:
                end_txn = read_end_txn(data)
                assert end_txn is not None
                first = facts.open.pop(producer_id, None)
                if first is not None:
                    facts.ended.append((producer_id, first, offset, end_txn.committed))
            else:
                if header.is_transactional:
                    facts.open.setdefault(producer_id, offset)
                owner = producer_id if header.is_transactional else -1
                facts.values += [(it.offset, header.last_offset, it.value or b"", owner) for it in decode_records(data)]
            if producer_id >= 0:
                if header.producer_epoch != facts.epochs.get(producer_id):
                    facts.sequences[producer_id] = -1
                facts.epochs[producer_id] = header.producer_epoch
                if not header.is_control:
                    facts.sequences[producer_id] = header.last_sequence
        return facts

    def last_stable_offset(self, high_watermark: int) -> int:
        unstable = [*self.open.values(), *(first for _, first, last, _ in self.ended if last >= high_watermark)]
        return min([*unstable, high_watermark])

    def aborted(self, from_offset: int, upper_offset: int) -> list[tuple[int, int, int]]:
        return [
            (producer_id, first, last)
            for producer_id, first, last, committed in self.ended
            if not committed and last >= from_offset and first < upper_offset
        ]

    def committed_values(self, from_offset: int, upper_offset: int) -> list[bytes]:
        """Complete batches only: if a power cut restored a truncated batch, the high watermark may be inside it."""
        lost = [(producer_id, first, last) for producer_id, first, last, committed in self.ended if not committed]
        return [
            value
            for offset, last_offset, value, owner in self.values
            if from_offset <= offset
            and last_offset < upper_offset
            and not any(owner == producer_id and first <= offset < last for producer_id, first, last in lost)
        ]


def read_committed(log: PartitionLog, from_offset: int, max_bytes: int) -> list[bytes]:
    """Values that a read_committed consumer returns from fetches of `max_bytes`."""
    values: list[bytes] = []
    offset = from_offset
    while (part := log.read(offset, max_bytes, log.last_stable_offset)) is not None:
        waiting = [(it.first_offset, it.producer_id) for it in log.aborted_transactions(offset, part.upper_offset)]
        heapq.heapify(waiting)
        aborting: set[int] = set()
        data = part.file.pread(part.size_bytes, part.position)
        for position, header in heads(data):
            one = data[position : position + header.size_bytes]
            while waiting and waiting[0][0] <= header.last_offset:
                aborting.add(heapq.heappop(waiting)[1])
            if header.is_control:
                end_txn = read_end_txn(one)
                assert end_txn is not None
                if not end_txn.committed:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                values += [it.value or b"" for it in decode_records(one) if it.offset >= offset]
            assert header.last_offset < part.upper_offset
            offset = header.next_offset
    return values


def check(log: PartitionLog) -> Facts:
    """Compare the log with its batches."""
    facts = Facts.in_batches(all_batches(log))
    stable = facts.last_stable_offset(log.high_watermark)
    assert log.last_stable_offset == stable
    end_offset = log.log_end_offset
    for from_offset in range(0, end_offset + 1, max(1, end_offset // 7)):
        for upper in {from_offset + 1, from_offset + 3, end_offset}:
            found = log.aborted_transactions(from_offset, upper)
            assert [each[:3] for each in found] == facts.aborted(from_offset, upper), (from_offset, upper)
        if from_offset <= stable:
            expected = facts.committed_values(from_offset, stable)
            assert read_committed(log, from_offset, 250) == expected
            assert read_committed(log, from_offset, 1 << 20) == expected
    entries = [entry for segment in log.segments for entry in segment.aborted]
    stables = [entry.last_stable_offset for entry in entries]
    assert stables == sorted(stables)
    return facts


@pytest.mark.feature("ST-08", "TX-09")
def test_an_aborted_transaction_is_in_the_index_of_its_markers_segment() -> None:
    rig = Rig()
    log = rig.open(CONFIG)
    append(log, batch(2))
    begin(log, 5, value=bytes(400))
    begin(log, 6, value=bytes(400))
    append(log, batch(1, value=bytes(400)))
    end(log, 6, commit=False)
    end(log, 5, commit=True)
    assert len(log.segments) > 1
    log.close()
    (name,) = [name for name in rig.names() if name.endswith(".txnindex")]
    assert name == f"{log.segments[-1].base_offset:020d}.txnindex", "only where there is something to say"
    data = rig.disk.read_bytes(f"{DIRECTORY}/{name}")
    assert data.hex() == "0000" + "".join(f"{each:016x}" for each in (6, 3, 5, 2)), "producer 5 was still open"


@pytest.mark.feature("TX-10")
def test_a_transaction_is_readable_once_its_marker_is_replicated() -> None:
    log = Rig().open()
    append(log, batch(1))
    begin(log, 5)
    replicate(log)
    assert log.last_stable_offset == 1
    end(log, 5, commit=True)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 1, "the marker could still be lost"
    log.set_high_watermark(3)
    assert log.last_stable_offset == 3


@pytest.mark.feature("TX-10")
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_not_even_a_restart_makes_an_unreplicated_end_readable(stop: str) -> None:
    """The snapshot of the clean stop does not contain the transaction that was open below the high watermark."""
    rig = Rig()
    log = rig.open()
    begin(log, 5)
    append(log, batch(3))
    log.set_high_watermark(3)
    end(log, 5, commit=True)
    if stop == "clean":
        log.close()
    rig.kill()
    again = rig.open(clean_shutdown=stop == "clean", high_watermark=3)
    again.set_high_watermark(3)
    assert again.last_stable_offset == 0
    replicate(again)
    assert again.last_stable_offset == 5


@pytest.mark.feature("TX-10")
def test_nor_does_a_rebuilt_index_make_it_readable() -> None:
    """The index of the second segment is rebuilt from the snapshot between the two, which does not contain it either.
    """
    rig = Rig()
    log = rig.open()
    begin(log, 5)
    append(log, batch(3))
    log.set_high_watermark(3)
    end(log, 5, commit=True)
    log.roll(NOW_MS)
    append(log, batch(1))
    log.flush()
    rig.kill()
    again = rig.open(recovery_point=log.recovery_point, high_watermark=3)
    again.set_high_watermark(3)
    assert again.last_stable_offset == 0


@pytest.mark.feature("ST-08")
def test_truncation_removes_aborted_transactions() -> None:
    rig = Rig()
    log = rig.open()
    begin(log, 5)
    end(log, 5, commit=False)
    begin(log, 6)
    end(log, 6, commit=False)
    log.flush()
    log.truncate_to(3)
    check(log)
    assert [it.producer_id for it in log.aborted_transactions(0, 10)] == [5]
    end(log, 6, commit=True)
    replicate(log)
    check(log)
    log.truncate_to(0)
    assert log.aborted_transactions(0, 10) == []
    append(log, batch(3))
    rig.power_cut()
    check(rig.open())


@pytest.mark.feature("ST-08", "ST-10")
@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4, 5, 6])
def test_a_file_truncated_after_a_clean_stop_loses_its_aborted_transactions(kept: int) -> None:
    """The file itself is valid, and a follower continues at its end."""
    rig = Rig()
    log = rig.open()
    for producer_id in (5, 6):
        begin(log, producer_id)
        begin(log, producer_id, sequence=1)
        end(log, producer_id, commit=False)
    log.close()
    sizes = [len(data) for data in all_batches(log)]
    rig.kill()
    rig.disk.open(f"{DIRECTORY}/{0:020d}.log").truncate(sum(sizes[:kept]))
    again = rig.open(clean_shutdown=True, recovery_point=6, high_watermark=6)
    assert again.log_end_offset == kept
    replicate(again)
    check(again)
    begin(again, 7)
    end(again, 7, commit=False)
    replicate(again)
    check(again)
    expected = again.aborted_transactions(0, 100)
    again.roll(NOW_MS)
    again.close()
    rig.kill()
    third = rig.open(clean_shutdown=True)
    assert third.recovery_events == []
    assert third.aborted_transactions(0, 100) == expected


@pytest.mark.feature("ST-08")
@pytest.mark.parametrize("room", [0, 1, ENTRY_BYTES - 1, ENTRY_BYTES, ENTRY_BYTES + 1, 2 * ENTRY_BYTES - 1])
def test_truncation_repairs_an_index_that_a_full_disk_left_incomplete(room: int) -> None:
    """The log cannot be rolled, because its index does not fit; then all of that is truncated."""
    rig = Rig()
    log = rig.open()
    for producer_id in (5, 6):
        begin(log, producer_id)
        end(log, producer_id, commit=False)
    time_entry = 12
    rig.store.capacity_bytes = rig.store.used_bytes + time_entry + room
    with pytest.raises(KafkaError):
        log.roll(NOW_MS)
    rig.store.capacity_bytes = 1 << 40
    log.truncate_to(0)
    for _ in range(2):
        begin(log, 7)
        end(log, 7, commit=True)
    append(log, batch(3))
    replicate(log)
    log.close()
    rig.kill()
    again = rig.open(clean_shutdown=True, high_watermark=log.log_end_offset)
    assert again.recovery_events == []
    replicate(again)
    check(again)


@pytest.mark.feature("ST-08")
def test_the_index_goes_with_its_segment() -> None:
    rig = Rig()
    config = TopicConfig(segment_bytes=400, retention_bytes=1, file_delete_delay_ms=0)
    log = rig.open(config)
    for sequence in range(8):
        begin(log, 5, sequence=sequence)
        end(log, 5, commit=False)
    replicate(log)
    log.flush()
    count = len(log.segments)
    assert count > 3
    assert len([name for name in rig.names() if name.endswith(".txnindex")]) == count
    assert log.delete_old_segments(NOW_MS) == count - 1
    assert len([name for name in rig.names() if ".txnindex.expired.deleted" in name]) == count - 1
    work = log.deletion_work(NOW_MS)
    assert work is not None
    work()
    assert len([name for name in rig.names() if ".txnindex" in name]) == 1
    assert [it.last_offset for it in log.aborted_transactions(0, 100)] == [15]


@pytest.mark.feature("ST-08", "ST-10")
def test_a_segment_that_retention_had_begun_to_take_is_not_served_without_its_index() -> None:
    config = TopicConfig(segment_bytes=400, retention_bytes=1, file_delete_delay_ms=0)
    crash_at, has_crashed = 0, True
    while has_crashed:
        crash_at += 1
        rig = Rig()
        log = rig.open(config)
        for sequence in range(8):
            begin(log, 5, sequence=sequence)
            end(log, 5, commit=False)
        replicate(log)
        log.flush()
        facts = Facts.in_batches(all_batches(log))
        rig.process.dies_at_change = rig.process.changes + crash_at
        try:
            log.delete_old_segments(NOW_MS)
        except NodeKilled:
            rig.start()
        else:
            has_crashed = False
            rig.kill()
        again = rig.open(config, recovery_point=log.recovery_point)
        found = [each[:3] for each in again.aborted_transactions(0, 100)]
        assert found == facts.aborted(again.log_start_offset, 100), f"crash at operation {crash_at}"
    assert crash_at > 8


@pytest.mark.feature("ST-08")
@pytest.mark.parametrize("damage", ["torn", "zeros", "noise", "unordered"])
def test_a_damaged_index_is_rebuilt_from_the_batches(damage: str) -> None:
    rig = Rig()
    log = rig.open(CONFIG)
    for sequence in range(6):
        begin(log, 5, sequence=sequence, value=bytes(100))
        append(log, batch(1, value=bytes(100)))
        end(log, 5, commit=sequence % 3 == 0)
    replicate(log)
    log.close()
    expected = check(log).aborted(0, 100)
    names = [name for name in rig.names() if name.endswith(".txnindex")]
    assert len(names) > 1
    path = f"{DIRECTORY}/{names[0]}"
    data = rig.disk.read_bytes(path)
    file = rig.disk.open(path)
    if damage == "torn":
        file.truncate(len(data) - 1)
    elif damage == "zeros":
        file.pwrite(bytes(3 * ENTRY_BYTES), len(data))
    elif damage == "noise":
        file.pwrite(b"\xff" * len(data), 0)
    else:
        file.pwrite(data + data, 0)
    file.close()
    rig.kill()
    again = rig.open(CONFIG, clean_shutdown=True, high_watermark=log.log_end_offset)
    replicate(again)
    check(again)
    assert [each[:3] for each in again.aborted_transactions(0, 100)] == expected
    again.flush()
    rig.power_cut()
    third = rig.open(CONFIG, clean_shutdown=True)
    assert third.recovery_events == [], "what was rebuilt is durable, too"
    assert [each[:3] for each in third.aborted_transactions(0, 100)] == expected


def test_an_offset_index_is_rebuilt_without_touching_the_transaction_index() -> None:
    """If it were emptied first, another crash could lose it: a missing file means that nothing was aborted."""
    rig = Rig()
    log = rig.open(CONFIG)
    for sequence in range(6):
        begin(log, 5, sequence=sequence, value=bytes(100))
        append(log, batch(1, value=bytes(100)))
        end(log, 5, commit=False)
    log.close()
    expected = Facts.in_batches(all_batches(log)).aborted(0, 100)
    first = log.segments[0]
    rig.disk.remove(f"{DIRECTORY}/{first.base_offset:020d}.index")
    rig.kill()
    again = rig.open(CONFIG, clean_shutdown=True)
    assert any("rebuilt the indexes of segment 0" in event for event in again.recovery_events)
    rig.power_cut()
    third = rig.open(CONFIG, clean_shutdown=True)
    assert [each[:3] for each in third.aborted_transactions(0, 100)] == expected


@pytest.mark.feature("ST-08")
@pytest.mark.parametrize("seed", range(20))
def test_an_index_that_was_flushed_is_there_after_a_power_cut(seed: int) -> None:
    rig = Rig(seed)
    log = rig.open()
    append(log, batch(1))
    log.flush()
    begin(log, 5)
    end(log, 5, commit=False)
    log.flush()
    recovery_point = log.recovery_point
    log.roll(NOW_MS)
    append(log, batch(1))
    rig.power_cut()
    again = rig.open(recovery_point=recovery_point)
    assert len(again.aborted_transactions(0, 10)) == 1


def damaged_log(seed: int = 0) -> tuple[Rig, list[tuple[int, int, int]]]:
    """A clean stop, after which a flushed transaction index lost its last byte; also returns the aborted transactions.
    """
    rig = Rig(seed)
    log = rig.open(CONFIG)
    for sequence in range(4):
        begin(log, 5, sequence=sequence, value=bytes(100))
        append(log, batch(1, value=bytes(100)))
        end(log, 5, commit=False)
    log.close()
    expected = Facts.in_batches(all_batches(log)).aborted(0, 100)
    name = next(name for name in rig.names() if name.endswith(".txnindex"))
    file = rig.disk.open(f"{DIRECTORY}/{name}")
    file.truncate(file.size() - 1)
    file.sync()
    return rig, expected


@pytest.mark.feature("ST-08", "ST-10")
@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
def test_a_crash_while_an_index_is_rebuilt(power_cut: bool) -> None:
    """The damaged file stays until the new one is complete: an empty file would mean that nothing was aborted."""
    crash_at, has_crashed = 0, True
    while has_crashed:
        crash_at += 1
        rig, expected = damaged_log(seed=crash_at)
        rig.process.dies_at_change = rig.process.changes + crash_at
        rig.process.dies_by_power_cut = power_cut
        try:
            rig.open(CONFIG, clean_shutdown=True)
        except NodeKilled:
            rig.start()
        else:
            has_crashed = False
            rig.process.dies_at_change = None
        again = rig.open(CONFIG, clean_shutdown=True)
        assert [each[:3] for each in again.aborted_transactions(0, 100)] == expected, f"crash at operation {crash_at}"
        assert not [name for name in rig.names() if name.endswith(".tmp")]
    assert crash_at > 4


def test_a_transaction_index_that_got_lost_with_the_others_is_rebuilt_with_them() -> None:
    rig = Rig()
    log = rig.open(CONFIG)
    begin(log, 5)
    end(log, 5, commit=False)
    log.roll(NOW_MS)
    log.close()
    for suffix in ("index", "timeindex", "txnindex"):
        rig.disk.remove(f"{DIRECTORY}/{0:020d}.{suffix}")
    rig.kill()
    assert len(rig.open(CONFIG, clean_shutdown=True).aborted_transactions(0, 10)) == 1


def remember_recovery_point(known: list[int], log: PartitionLog) -> None:
    known.append(log.recovery_point)


@pytest.mark.feature("ST-08", "ST-13")
@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_while_the_log_is_emptied(seed: int) -> None:
    """Remaining segments are valid, though a segment may have lost some of its files."""
    crash_at, has_crashed = 0, True
    while has_crashed:
        crash_at += 1
        rig = Rig(seed)
        log = rig.open(TopicConfig(segment_bytes=400))
        for sequence in range(6):
            begin(log, 5, sequence=sequence)
            end(log, 5, commit=False)
        log.flush()
        checkpointed = [log.recovery_point]
        log.on_recovery_point_lowered = partial(remember_recovery_point, checkpointed)
        facts = Facts.in_batches(all_batches(log))
        rig.process.dies_by_power_cut = True
        rig.process.dies_at_change = rig.process.changes + crash_at
        try:
            log.truncate_fully_and_start_at(100)
        except NodeKilled:
            rig.start()
        else:
            has_crashed = False
            rig.power_cut()
        again = rig.open(TopicConfig(segment_bytes=400), recovery_point=checkpointed[-1])
        found = [each[:3] for each in again.aborted_transactions(0, 100)]
        start, end_offset = again.log_start_offset, again.log_end_offset
        assert found == [each for each in facts.aborted(start, 100) if each[2] < end_offset], crash_at
    assert crash_at > 6


@pytest.mark.feature("ST-08", "ST-10")
@pytest.mark.parametrize("seed", range(20))
def test_rebuilt_indexes_are_durable_before_a_roll_at_the_recovery_point(seed: int) -> None:
    """No later start would check an index before the new segment."""
    rig = Rig(seed)
    log = rig.open(CONFIG)
    for sequence in range(2):
        begin(log, 5, sequence=sequence)
        end(log, 5, commit=False)
    log.flush()
    again = rig.open(CONFIG, recovery_point=log.recovery_point)
    again.roll(NOW_MS)
    append(again, batch(1))
    rig.power_cut()
    third = rig.open(CONFIG, recovery_point=log.recovery_point)
    replicate(third)
    assert len(check(third).aborted(0, 10)) == 2
    first = third.segments[0]
    assert first.max_timestamp.timestamp == NOW_MS


@pytest.mark.feature("ST-08", "ST-10")
@pytest.mark.parametrize("seed", range(20))
def test_an_abort_truncated_before_a_roll_is_not_restored(seed: int) -> None:
    """If it were restored, the producer's next committed transaction would count as aborted."""
    rig = Rig(seed)
    log = rig.open(CONFIG)
    begin(log, 5)
    middle = append(log, batch(1)).last_offset + 1
    end(log, 5, commit=False)
    log.flush()
    log.truncate_to(middle)
    recovery_point = log.recovery_point
    log.roll(NOW_MS)
    end(log, 5, commit=True)
    rig.power_cut()
    again = rig.open(CONFIG, recovery_point=recovery_point)
    replicate(again)
    check(again)
    assert again.aborted_transactions(0, 10) == []


@pytest.mark.feature("ST-08")
def test_a_search_ends_where_no_later_transaction_can_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Rig().open(TopicConfig(segment_bytes=400))
    for sequence in range(40):
        begin(log, 5, sequence=sequence)
        end(log, 5, commit=False)
    looked_at: list[int] = []
    collect = AbortedIndex.collect

    def spy(index: AbortedIndex, from_offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        looked_at.append(index.base_offset)
        return collect(index, from_offset, upper_offset)

    monkeypatch.setattr(AbortedIndex, "collect", spy)
    assert len(log.aborted_transactions(0, 2)) == 1
    assert looked_at == [0]


def test_lookups_in_an_index_of_many_pages() -> None:
    rig = Rig()
    rig.disk.make_directories(DIRECTORY)
    index = AbortedIndex(rig.disk, f"{DIRECTORY}/00000000000000000100.txnindex", 100)
    index.load()
    entries = [AbortedTransaction(7, 100 + 10 * each, 105 + 10 * each, 106 + 10 * each) for each in range(1000)]
    for entry in entries:
        index.append(entry)
        if index.unwritten_bytes > PAGE_BYTES:
            index.write_out()
    for state in ("warm", "sealed", "loaded"):
        assert list(index) == entries, state
        assert index.collect(5000, 5020)[0] == entries[490:492], state
        assert index.collect(5006, 5010)[0] == [], state
        assert index.collect(5000, 5001) == ([entries[490]], True), state
        if state == "warm":
            index.seal()
        else:
            index.close()
            index = AbortedIndex(rig.disk, index.path, 100)
            index.load()
    index.truncate_to(5005)
    assert list(index) == entries[:490]
    index.append(entries[490])
    assert list(index) == entries[:491]


def test_an_index_of_another_segment_is_refused() -> None:
    rig = Rig()
    rig.disk.make_directories(DIRECTORY)
    path = f"{DIRECTORY}/00000000000000000100.txnindex"
    index = AbortedIndex(rig.disk, path, 100)
    index.load()
    index.append(AbortedTransaction(7, 90, 105, 106))
    index.write_out()
    with pytest.raises(CorruptIndex):
        AbortedIndex(rig.disk, path, 110).load()


@pytest.mark.feature("TX-07")
@pytest.mark.parametrize(("key", "value"), [(b"", b""), (bytes(4), b""), (bytes(4), b"\xff" * 6), (b"\xff" * 4, b"")])
def test_a_malformed_marker_is_not_accepted_from_a_leader(key: bytes, value: bytes) -> None:
    log = Rig().open()
    log.append_as_follower(batch(1), NOW_MS)
    nonsense = build_batch(
        [Record(0, NOW_MS, key, value)],
        base_offset=1,
        producer_id=5,
        producer_epoch=0,
        leader_epoch=0,
        transactional=True,
        control=True,
    )
    before = log.size_bytes
    with pytest.raises(CorruptBatch):
        log.append_as_follower(nonsense, NOW_MS)
    assert (log.log_end_offset, log.size_bytes) == (1, before)


# -- begin and end of transactions


def verifying_log(rig: Rig | None = None) -> PartitionLog:
    rig = rig or Rig()
    config = ProducerStateConfig(requires_verification=True)
    return PartitionLog.open(
        Folder(rig.disk, DIRECTORY),
        key=("orders", 0),
        config=TopicConfig(),
        now_ms=NOW_MS,
        producer_state=config,
    )


def ask(log: PartitionLog, producer_id: int, epoch: int, sequence: int, *, bumps: bool = False) -> Warrant:
    assert log.producers is not None
    return Warrant(log.producers.begin_verification(producer_id, epoch, sequence, NOW_MS, supports_epoch_bump=bumps))


def write(log: PartitionLog, data: bytes, warrant: Warrant) -> ErrorCode:
    buffer = bytearray(data)
    try:
        log.append_as_leader(buffer, heads(buffer), 0, NOW_MS, warrant)
    except KafkaError as refusal:
        return refusal.code
    return ErrorCode.NONE


def transactional(producer_id: int, epoch: int, sequence: int) -> bytes:
    return producer_batch(producer_id, epoch, sequence, transactional=True)


@pytest.mark.feature("TX-05")
def test_only_the_first_batch_of_a_transaction_needs_verification() -> None:
    log = verifying_log()
    assert write(log, transactional(5, 0, 0), Warrant()) is ErrorCode.INVALID_TXN_STATE
    warrant = ask(log, 5, 0, 0)
    assert warrant.verification is not None
    assert write(log, transactional(5, 0, 0), warrant) is ErrorCode.NONE
    assert ask(log, 5, 0, 1).verification is None
    assert write(log, transactional(5, 0, 1), Warrant()) is ErrorCode.NONE
    end(log, 5, commit=True)
    assert write(log, transactional(5, 0, 2), warrant) is ErrorCode.INVALID_TXN_STATE, "that was the one before"
    assert write(log, producer_batch(5, 0, 2), Warrant()) is ErrorCode.NONE, "in no transaction"


@pytest.mark.feature("TX-05")
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_marker_between_verification_and_append_rejects_the_late_batch(role: str) -> None:
    log = verifying_log()
    warrant = ask(log, 5, 0, 0)
    if role == "leader":
        end(log, 5, commit=False)
    else:
        log.append_as_follower(marker(5, 0, commit=False), NOW_MS)
    assert write(log, transactional(5, 0, 0), warrant) is ErrorCode.INVALID_TXN_STATE
    again = ask(log, 5, 0, 0)
    assert again.verification is not warrant.verification
    assert write(log, transactional(5, 0, 0), warrant) is ErrorCode.INVALID_TXN_STATE, "not by the old one (ABA)"
    assert write(log, transactional(5, 0, 0), again) is ErrorCode.NONE


@pytest.mark.feature("TX-05", "TX-15")
@pytest.mark.parametrize("epoch_after", [7, 8])
def test_the_late_marker_of_the_transaction_before_does_not_hinder_the_next(epoch_after: int) -> None:
    """By transaction.version 2 it has the epoch of the next transaction, or a lower one if another producer recovered
    a prepared transaction.
    """
    log = verifying_log()
    warrant = ask(log, 5, epoch_after, 0, bumps=True)
    assert write(log, marker(5, 7, commit=True), Warrant(transaction_version=2)) is ErrorCode.NONE
    assert write(log, transactional(5, epoch_after, 0), warrant) is ErrorCode.NONE


@pytest.mark.feature("TX-05")
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_marker_without_epoch_bump_rejects_batches_of_version_2(role: str) -> None:
    """A client may write by version 2 and end by version 1: then its late batch would begin a transaction that never
    ends.
    """
    log = verifying_log()
    warrant = ask(log, 5, 7, 0, bumps=True)
    if role == "leader":
        assert write(log, marker(5, 7, commit=False), Warrant(transaction_version=0)) is ErrorCode.NONE
    else:
        log.append_as_follower(marker(5, 7, commit=False), NOW_MS)
    assert write(log, transactional(5, 7, 0), warrant) is ErrorCode.INVALID_TXN_STATE
    assert log.producers is not None and log.producers.first_unstable_offset < 0
    assert write(log, transactional(5, 7, 0), ask(log, 5, 7, 0, bumps=True)) is ErrorCode.NONE, "verified again"


@pytest.mark.feature("TX-05", "PR-12")
def test_a_later_batch_does_not_overtake_one_to_be_retried() -> None:
    log = verifying_log()
    ask(log, 5, 0, 10)
    later = ask(log, 5, 0, 11)
    assert write(log, transactional(5, 0, 11), later) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    retried = ask(log, 5, 0, 10)
    assert write(log, transactional(5, 0, 10), retried) is ErrorCode.NONE
    assert write(log, transactional(5, 0, 11), Warrant()) is ErrorCode.NONE


@pytest.mark.feature("TX-05", "PR-12")
def test_with_an_epoch_for_each_transaction_it_begins_at_sequence_zero() -> None:
    log = verifying_log()
    warrant = ask(log, 5, 3, 4, bumps=True)
    assert write(log, transactional(5, 3, 4), warrant) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    warrant = ask(log, 5, 3, 0, bumps=True)
    assert write(log, transactional(5, 3, 0), warrant) is ErrorCode.NONE


def test_an_old_epoch_need_not_even_be_verified() -> None:
    log = verifying_log()
    assert write(log, transactional(5, 4, 0), ask(log, 5, 4, 0)) is ErrorCode.NONE
    with pytest.raises(KafkaError) as refused:
        ask(log, 5, 3, 0)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    newer = ask(log, 5, 5, 0)
    assert newer.verification is not None, "the open transaction is of another epoch"


@pytest.mark.feature("CR-11")
def test_unused_verifications_expire_with_their_producers() -> None:
    log = verifying_log()
    warrant = ask(log, 5, 0, 0)
    log.producers.remove_expired(NOW_MS + 86_400_000)
    assert write(log, transactional(5, 0, 0), warrant) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.feature("TX-07")
def test_markers_by_transaction_version_2_have_the_next_epoch() -> None:
    log = Rig().open()
    second = Warrant(transaction_version=2)
    begin(log, 5, epoch=3)
    assert write(log, marker(5, 3, commit=True), second) is ErrorCode.INVALID_PRODUCER_EPOCH, "of the one before"
    assert log.producers is not None
    assert log.producers.entries[5].transaction_first_offset == 0
    assert write(log, marker(5, 4, commit=True), second) is ErrorCode.NONE
    assert write(log, marker(5, 4, commit=True), second) is ErrorCode.NONE, "a repetition"
    assert write(log, marker(5, 3, commit=True), second) is ErrorCode.INVALID_PRODUCER_EPOCH
    begin(log, 5, epoch=4)
    assert write(log, marker(5, 4, commit=True), second) is ErrorCode.INVALID_PRODUCER_EPOCH, "repeated too late"
    assert write(log, marker(5, 4, commit=False), Warrant(transaction_version=1)) is ErrorCode.NONE
    assert write(log, marker(8, 0, commit=False), second) is ErrorCode.NONE, "unknown producers have no epoch yet"


@pytest.mark.feature("TX-07")
def test_the_last_epoch_cannot_be_bumped() -> None:
    log = Rig().open()
    begin(log, 5, epoch=0x7FFF)
    assert write(log, marker(5, 0x7FFF, commit=True), Warrant(transaction_version=2)) is ErrorCode.NONE
    replicate(log)
    assert log.last_stable_offset == 2


@pytest.mark.feature("TX-07")
def test_markers_of_an_older_coordinator_are_fenced() -> None:
    log = Rig().open()
    begin(log, 5)
    assert write(log, marker(5, 0, commit=True, coordinator_epoch=3), Warrant()) is ErrorCode.NONE
    begin(log, 5, sequence=1)
    late = marker(5, 0, commit=False, coordinator_epoch=2)
    assert write(log, late, Warrant()) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write(log, marker(5, 0, commit=True, coordinator_epoch=3), Warrant()) is ErrorCode.NONE


# -- random histories


ACTIONS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 4), st.integers(1, 3)),
    st.tuples(st.just("begin"), st.integers(1, 4), st.integers(1, 3)),
    st.tuples(st.just("begin"), st.integers(1, 4), st.integers(1, 3)),
    st.tuples(st.sampled_from(["commit", "abort", "abort"]), st.integers(1, 4), st.integers(0, 1)),
    st.tuples(st.just("replicate"), st.integers(0, 6), st.just(0)),
    st.tuples(st.sampled_from(["truncate", "flush", "roll"]), st.integers(1, 6), st.just(0)),
    st.tuples(st.sampled_from(["clean", "kill", "power cut"]), st.just(0), st.integers(0, 1)),
)


class Story:
    """A log and its follower, which has everything below the high watermark, through a random history."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.log = self.rig.open(CONFIG)
        self.log.on_recovery_point_lowered = self.recovery_point_lowered
        self.checkpointed = 0
        self.count = 0

    def recovery_point_lowered(self, log: PartitionLog) -> None:
        self.checkpointed = min(self.checkpointed, log.recovery_point)

    def play(self, action: str, first: int, second: int) -> None:
        facts = check(self.log)
        stable = self.log.last_stable_offset
        if action in ("write", "begin"):
            self.write(facts, first, second, transactional=action == "begin")
        elif action in ("commit", "abort"):
            self.end(facts, first, second, commit=action == "commit")
        elif action == "replicate":
            # Followers have complete batches.
            ends = [header.next_offset for header in map(read_header, all_batches(self.log))]
            later = [offset for offset in ends if offset > self.log.high_watermark]
            self.log.set_high_watermark((later[:first] or [self.log.high_watermark])[-1])
        elif action == "truncate":
            self.log.truncate_to(max(self.log.high_watermark, self.log.log_end_offset - first))
        elif action == "flush":
            self.log.flush()
            self.checkpointed = self.log.recovery_point
        elif action == "roll":
            self.log.roll(NOW_MS)
        else:
            self.restart(action, second)
        assert self.log.last_stable_offset >= stable or action == "power cut", "it only rises"
        check(self.log)

    def write(self, facts: Facts, producer_id: int, count: int, *, transactional: bool) -> None:
        self.count += 1
        value = b"%d" % self.count + bytes(self.count % 90)
        if not transactional and producer_id in facts.open:
            append(self.log, batch(count, value=value))
            return
        epoch, sequence = facts.epochs.get(producer_id, 0), facts.sequences.get(producer_id, -1) + 1
        append(self.log, producer_batch(producer_id, epoch, sequence, count, transactional, value))

    def end(self, facts: Facts, producer_id: int, bump: int, *, commit: bool) -> None:
        epoch = facts.epochs.get(producer_id, 0) + bump
        write(self.log, marker(producer_id, epoch, commit=commit), Warrant(transaction_version=2 * bump))

    def restart(self, how: str, torn: int) -> None:
        high_watermark = self.log.high_watermark
        if how == "clean":
            self.log.close()
            self.checkpointed = self.log.recovery_point
        if how == "power cut":
            self.rig.power_cut()
        else:
            self.rig.kill()
        self.log = self.rig.open(
            CONFIG,
            recovery_point=self.checkpointed,
            clean_shutdown=how == "clean",
            high_watermark=high_watermark,
        )
        self.log.on_recovery_point_lowered = self.recovery_point_lowered
        self.log.set_high_watermark(high_watermark)


@pytest.mark.feature("ST-08", "TX-08", "TX-09", "TX-10", "TX-16")
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(ACTIONS, max_size=40))
@example(
    [("write", 1, 1)] * 5
    + [("begin", 3, 1)]
    + [("write", 1, 1)] * 4
    + [("commit", 3, 0), ("write", 1, 1), ("flush", 1, 0), ("replicate", 6, 0), ("kill", 0, 0)]
)
def test_read_committed_consumers_see_exactly_the_committed_records(actions: list[tuple[str, int, int]]) -> None:
    story = Story()
    for action in actions:
        story.play(*action)
    follower = Rig(seed=1).open(CONFIG)
    for data in all_batches(story.log):
        follower.append_as_follower(data, NOW_MS)
    follower.set_high_watermark(story.log.high_watermark)
    assert follower.last_stable_offset == story.log.last_stable_offset
    check(follower)


@pytest.mark.feature("ST-13", "TX-08")
def test_an_emptied_log_keeps_no_transactions() -> None:
    """A follower whose data the leader no longer has starts at the leader's log start."""
    log = Rig().open(CONFIG)
    begin(log, 5)
    replicate(log)
    assert log.last_stable_offset == 0
    log.truncate_fully_and_start_at(100)
    assert log.last_stable_offset == 100
    begin(log, 6)
    end(log, 6, commit=False)
    replicate(log)
    assert log.last_stable_offset == log.log_end_offset == 102
    assert [tuple(each)[:3] for each in log.aborted_transactions(0, 102)] == [(6, 100, 101)]
