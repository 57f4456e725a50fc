"""Compacted logs as stories: which records are kept, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import BatchHeader, CorruptBatch, crc_is_valid, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, decode_records
from barnabas.settings.topic import TopicConfig
from barnabas.storage.cleaner import CannotClean, CleanerSettings, CleaningAborted, LogCleaning, dirtiest, extent_of
from barnabas.storage.cleaning import Event, Phase
from barnabas.storage.log import PartitionLog
from barnabas.storage.offset_map import ENTRY_BYTES
from tests.examples import examples
from tests.protocol.records.test_legacy import message
from tests.storage.cleaning_rig import (
    DAY_MS,
    RETENTION_MS,
    clean,
    close_segments,
    committed,
    compacted,
    end_transaction,
    keyed,
    put,
    put_in_transaction,
    records_of,
    table,
    values,
)
from tests.storage.rig import DIRECTORY, NOW_MS, Rig, all_batches, append, heads

ROOMY = compacted(segment_bytes=1 << 20)
"""Everything that a test writes fits into one segment."""


def headers(log: PartitionLog) -> list[BatchHeader]:
    return [read_header(batch) for batch in all_batches(log)]


@pytest.mark.feature("CR-03")
def test_the_last_value_of_each_key_stays_where_it_was() -> None:
    log = Rig().open(ROOMY)
    put(log, ("a", "1"), ("b", "1"), ("a", "2"))
    put(log, ("c", "1"))
    put(log, ("b", "2"), ("d", "1"))
    close_segments(log)
    put(log, ("a", "3"))
    clean(log)
    assert values(log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "d", "1"), (6, "a", "3")]
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_to) == (0, 7, 6)


@pytest.mark.feature("CR-03")
def test_a_reader_in_a_hole_gets_what_comes_next() -> None:
    log = Rig().open(compacted())
    for number in range(40):
        put(log, ("a", str(number)))
    close_segments(log)
    put(log, ("b", "1"))
    clean(log)
    for offset in range(40):
        part = log.read(offset, 1 << 20, log.log_end_offset)
        assert part is not None
        first = read_header(part.file.pread(part.size_bytes, part.position))
        assert first.last_offset >= offset
        assert first.base_offset == 39


@pytest.mark.feature("CR-07")
def test_a_batch_that_keeps_its_records_keeps_its_bytes() -> None:
    log = Rig().open(ROOMY)
    put(log, ("a", "1"))
    put(log, ("b", "1"), ("c", "1"), producer_id=7, producer_epoch=0, base_sequence=0, compression=Compression.ZSTD)
    put(log, ("a", "2"))
    before = all_batches(log)
    close_segments(log)
    clean(log)
    assert all_batches(log) == before[1:]


@pytest.mark.feature("CR-07")
@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_that_loses_records_keeps_all_else(codec: Compression) -> None:
    log = Rig().open(ROOMY)
    options = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11, "compression": codec}
    append(log, keyed(("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"), options=options), leader_epoch=5)  # type: ignore[arg-type]
    append(log, keyed(("c", "2")), leader_epoch=6)
    log.set_high_watermark(log.log_end_offset)
    close_segments(log)
    before = headers(log)[0]
    clean(log)
    after = headers(log)[0]
    assert values(log) == [(1, "b", "1"), (3, "a", "2"), (4, "c", "2")]
    assert [record.timestamp for record in records_of(log)[:2]] == [NOW_MS + 1, NOW_MS + 3]
    unchanged = (
        "base_offset partition_leader_epoch attributes last_offset_delta max_timestamp producer_id "
        "producer_epoch base_sequence last_sequence"
    )
    for name in unchanged.split():
        assert getattr(after, name) == getattr(before, name), name
    assert after.records_count == 2
    assert after.base_timestamp == NOW_MS + 1, "the first record that is left"
    assert crc_is_valid(all_batches(log)[0], 0, after)


@pytest.mark.feature("CR-07")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("keys", ["abc", "aba"])
def test_messages_of_old_formats_become_batches(magic: int, keys: str) -> None:
    """Also those of which nothing is removed."""
    log = Rig().open(ROOMY)
    data = b"".join(message(at, b"v", magic=magic, key=key.encode()) for at, key in enumerate(keys))
    log.append_as_follower(bytearray(data), NOW_MS)
    log.set_high_watermark(3)
    close_segments(log)
    assert {header.magic for header in headers(log)} == {magic}
    clean(log)
    assert {header.magic for header in headers(log)} == {2}
    kept = [(at, key, "v") for at, key in enumerate(keys) if key not in keys[at + 1 :]]
    assert values(log) == kept


@pytest.mark.feature("CR-07")
def test_log_append_time_stays() -> None:
    log = Rig().open(replace(ROOMY, message_timestamp_type="LogAppendTime"))
    append(log, keyed(("a", "1"), ("b", "1")), now_ms=NOW_MS + 50)
    append(log, keyed(("a", "2")), now_ms=NOW_MS + 60)
    log.set_high_watermark(3)
    close_segments(log)
    clean(log)
    assert headers(log)[0].is_log_append_time
    assert [(record.offset, record.timestamp) for record in records_of(log)] == [(1, NOW_MS + 50), (2, NOW_MS + 60)]


@pytest.mark.feature("CR-07")
def test_small_segments_become_one() -> None:
    log = Rig().open(compacted())
    for number in range(40):
        put(log, ("abc"[number % 3], str(number)))
    close_segments(log)
    many = len(log.segments)
    clean(log)
    put(log, ("d", "1"))
    close_segments(log)
    clean(log)
    assert many > 5
    assert len(log.segments) == 2, "one, and the active one"
    assert values(log) == [(37, "b", "37"), (38, "c", "38"), (39, "a", "39"), (40, "d", "1")]


@pytest.mark.feature("CR-07")
def test_a_segment_that_fits_no_other_is_cleaned_once() -> None:
    rig = Rig()
    log = rig.open(compacted(segment_bytes=400))
    for number in range(4):
        put(log, (f"own {number}", "x" * 150), ("shared", "y" * 100))
        close_segments(log)
    log.cleaning.move(Event.BEGIN)
    cleaning = LogCleaning(log, extent_of(log, NOW_MS), CleanerSettings(), NOW_MS)
    pieces = 0
    for pieces, piece in enumerate(cleaning.slices(), 1):
        assert pieces <= 20
        piece()
    assert len(log.segments) == 5 and cleaning.records_read == 8
    assert [record.key for record in records_of(log)] == [b"own 0", b"own 1", b"own 2", b"own 3", b"shared"]


@pytest.mark.feature("CR-01")
def test_old_segments_are_readable_until_their_files_go() -> None:
    rig = Rig()
    log = rig.open(compacted(file_delete_delay_ms=1000))
    for number in range(20):
        put(log, ("a", str(number)))
    close_segments(log)
    part = log.read(0, 1 << 20, log.log_end_offset)
    assert part is not None
    before = part.file.pread(part.size_bytes, part.position)
    clean(log)
    assert part.file.pread(part.size_bytes, part.position) == before
    assert log.deletion_work(NOW_MS + 999) is None
    work = log.deletion_work(NOW_MS + 1000)
    assert work is not None
    work()
    assert not [name for name in rig.names() if name.endswith((".deleted", ".cleaned", ".swap"))]


@pytest.mark.feature("CR-07")
def test_reads_and_writes_go_on_while_a_log_is_cleaned() -> None:
    log = Rig().open(compacted())
    expected = {}
    for number in range(60):
        put(log, (f"k{number % 7}", str(number)))
    close_segments(log)
    log.cleaning.move(Event.BEGIN)
    for step, piece in enumerate(LogCleaning(log, extent_of(log, NOW_MS), CleanerSettings(), NOW_MS).slices()):
        piece()
        put(log, (f"n{step}", "new"))
        expected[f"n{step}".encode()] = b"new"
        assert table(records_of(log)).items() >= expected.items()
        assert [key for key in table(records_of(log)) if key.startswith(b"k")]
    log.cleaning.finish()
    assert len(expected) > 10
    assert {key: value for key, value in table(records_of(log)).items() if key.startswith(b"k")} == {
        f"k{number % 7}".encode(): str(number).encode() for number in range(53, 60)
    }


@pytest.mark.feature("CR-06")
def test_records_beyond_the_map_remain_dirty() -> None:
    log = Rig().open(compacted())
    for number in range(60):
        put(log, (f"k{number % 20}", str(number)))
    close_segments(log)
    few_keys = CleanerSettings(dedupe_buffer_bytes=ENTRY_BYTES * 12, load_factor=0.9)
    clean(log, settings=few_keys)
    assert log.cleaned_to == 10, "ten keys were all it could take"
    assert len(records_of(log)) == 60
    rounds = 0
    while extent_of(log, NOW_MS).dirty_bytes:
        clean(log, settings=few_keys)
        rounds += 1
    assert rounds == 5
    assert [offset for offset, _, _ in values(log)] == list(range(40, 60))


@pytest.mark.feature("CR-06")
def test_a_buffer_that_is_too_small_is_reported() -> None:
    log = Rig().open(compacted())
    put(log, ("a", "1"))
    close_segments(log)
    with pytest.raises(CannotClean, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        clean(log, settings=CleanerSettings(dedupe_buffer_bytes=10))


# -- tombstones


@pytest.mark.feature("CR-08")
def test_a_tombstone_stays_until_its_horizon() -> None:
    log = Rig().open(ROOMY)
    put(log, ("a", "1"))
    put(log, ("a", None), ("b", "1"))
    close_segments(log)
    clean(log)
    assert values(log) == [(1, "a", None), (2, "b", "1")]
    assert headers(log)[0].delete_horizon_ms == NOW_MS + RETENTION_MS
    assert [record.timestamp for record in records_of(log)] == [NOW_MS, NOW_MS + 1], "the records' time is their own"

    put(log, ("c", "1"))
    close_segments(log)
    clean(log, NOW_MS + RETENTION_MS - 1)
    assert values(log) == [(1, "a", None), (2, "b", "1"), (3, "c", "1")]
    assert headers(log)[0].delete_horizon_ms == NOW_MS + RETENTION_MS, "it does not move"

    put(log, ("d", "1"))
    close_segments(log)
    clean(log, NOW_MS + RETENTION_MS)
    assert values(log) == [(2, "b", "1"), (3, "c", "1"), (4, "d", "1")]
    assert headers(log)[0].delete_horizon_ms == NOW_MS + RETENTION_MS


@pytest.mark.feature("CR-08")
def test_a_key_that_came_back_is_not_deleted() -> None:
    log = Rig().open(ROOMY)
    put(log, ("a", "1"))
    put(log, ("a", None))
    close_segments(log)
    clean(log)
    put(log, ("a", "2"))
    close_segments(log)
    clean(log, NOW_MS + 2 * RETENTION_MS)
    assert values(log) == [(2, "a", "2")]


@pytest.mark.feature("CR-08")
def test_a_record_without_key_does_not_outlive_a_cleaning() -> None:
    """It was written before the topic became compacted."""
    log = Rig().open(ROOMY)
    append(log, build_batch([Record(0, NOW_MS, None, b"keyless"), Record(0, NOW_MS, b"a", b"1")]))
    log.set_high_watermark(2)
    close_segments(log)
    clean(log)
    assert values(log) == [(1, "a", "1")]


# -- producers and transactions


@pytest.mark.feature("CR-11")
def test_the_last_batch_of_a_producer_stays_as_a_shell() -> None:
    rig = Rig()
    log = rig.open(ROOMY)
    put(log, ("a", "1"), ("b", "1"), producer_id=7, producer_epoch=2, base_sequence=0)
    put(log, ("a", "2"), ("b", "2"), producer_id=7, producer_epoch=2, base_sequence=2)
    put(log, ("a", "3"), ("b", "3"), ("c", "3"))
    close_segments(log)
    clean(log)
    shell, last = headers(log)
    assert (shell.base_offset, shell.last_offset, shell.records_count) == (2, 3, 0)
    assert (shell.producer_id, shell.producer_epoch, shell.base_sequence, shell.last_sequence) == (7, 2, 2, 3)
    assert (shell.base_timestamp, shell.max_timestamp) == (-1, NOW_MS + 1)
    assert last.records_count == 3

    rig.kill()
    for name in rig.names():
        if name.endswith(".snapshot"):
            rig.disk.remove(f"{DIRECTORY}/{name}")
    log = rig.open(ROOMY, recovery_point=7)
    options = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 2}
    repeated = append(log, keyed(("a", "2"), ("b", "2"), options=options))  # type: ignore[arg-type]
    assert (repeated.duplicate, repeated.first_offset) == (True, 2), "it is known from the log alone"
    put(log, ("b", "4"), producer_id=7, producer_epoch=2, base_sequence=4)
    close_segments(log)
    clean(log)
    assert [header.base_offset for header in headers(log)] == [4, 7], "a newer batch took its place"


@pytest.mark.feature("CR-11")
def test_a_producer_that_is_forgotten_leaves_no_shell() -> None:
    log = Rig().open(ROOMY)
    put(log, ("a", "1"), producer_id=7, producer_epoch=2, base_sequence=0)
    put(log, ("a", "2"))
    close_segments(log)
    log.producers.remove_expired(NOW_MS + 2 * DAY_MS)
    clean(log)
    assert [header.base_offset for header in headers(log)] == [1]


@pytest.mark.feature("CR-03")
def test_the_last_batch_of_what_was_cleaned_stays_as_a_shell() -> None:
    """Otherwise a log that loses its active segment would assign offsets twice."""
    rig = Rig()
    log = rig.open(ROOMY)
    put(log, ("a", "1"))
    append(log, build_batch([Record(0, NOW_MS, None, b"keyless")]))
    log.set_high_watermark(2)
    close_segments(log)
    clean(log)
    assert [(header.base_offset, header.records_count) for header in headers(log)] == [(0, 1), (1, 0)]


@pytest.mark.feature("CR-12")
def test_aborted_records_are_removed_whatever_their_keys() -> None:
    log = Rig().open(ROOMY)
    put(log, ("a", "1"))
    put_in_transaction(log, 7, 0, ("a", "aborted"), ("b", "aborted"))
    put_in_transaction(log, 8, 0, ("b", "committed"))
    end_transaction(log, 7, commit=False)
    end_transaction(log, 8, commit=True)
    before = table(committed(log))
    close_segments(log)
    clean(log)
    assert values(log) == [(0, "a", "1"), (3, "b", "committed")]
    assert table(committed(log)) == before


@pytest.mark.feature("CR-12")
def test_an_open_transaction_holds_cleaning_up() -> None:
    log = Rig().open(compacted(segment_bytes=150))
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    put_in_transaction(log, 7, 0, ("a", "open"))
    put(log, ("b", "1"))
    put(log, ("b", "2"))
    close_segments(log)
    assert extent_of(log, NOW_MS).end_offset <= 2
    clean(log)
    assert [offset for offset, _, _ in values(log)] == [1, 2, 3, 4]
    end_transaction(log, 7, commit=False)
    close_segments(log)
    clean(log)
    assert [(key, value) for _, key, value in values(log)] == [("a", "2"), ("b", "2")]


@pytest.mark.feature("CR-13")
def test_a_marker_stays_until_its_batches_are_gone_and_its_horizon_is_over() -> None:
    log = Rig().open(ROOMY)
    put_in_transaction(log, 7, 0, ("a", "1"))
    marker = end_transaction(log, 7, commit=True)
    put(log, ("b", "1"))
    close_segments(log)
    log.producers.remove_expired(NOW_MS + 2 * DAY_MS)
    clean(log)
    assert [header.delete_horizon_ms for header in headers(log) if header.is_control] == [None]

    put(log, ("a", "2"))
    close_segments(log)
    clean(log)  # removes the batch of the transaction
    put(log, ("c", "1"))
    close_segments(log)
    clean(log)  # finds only the marker
    assert [h.delete_horizon_ms for h in headers(log) if h.is_control] == [NOW_MS + RETENTION_MS]
    assert [h.base_offset for h in headers(log) if h.is_control] == [marker]

    put(log, ("d", "1"))
    close_segments(log)
    clean(log, NOW_MS + RETENTION_MS - 1)
    assert [h.base_offset for h in headers(log) if h.is_control] == [marker]
    put(log, ("e", "1"))
    close_segments(log)
    clean(log, NOW_MS + RETENTION_MS)
    assert not [h for h in headers(log) if h.is_control]


@pytest.mark.feature("CR-13")
def test_the_marker_of_an_aborted_transaction_outlives_its_batches_too() -> None:
    log = Rig().open(ROOMY)
    put_in_transaction(log, 7, 0, ("a", "1"))
    put_in_transaction(log, 7, 1, ("a", "2"))
    marker = end_transaction(log, 7, commit=False)
    put(log, ("b", "1"))
    close_segments(log)
    log.producers.remove_expired(NOW_MS + 2 * DAY_MS)
    clean(log)
    assert [(h.base_offset, h.is_control, h.delete_horizon_ms) for h in headers(log)] == [
        (marker, True, None),
        (3, False, None),
    ]
    assert [each.last_offset for each in log.aborted_transactions(0, 10)] == [marker], "readers may be among them"
    for number in range(2):
        put(log, ("c", str(number)))
        close_segments(log)
        clean(log, NOW_MS + number * RETENTION_MS)
    assert not log.aborted_transactions(0, 10)
    assert [h.base_offset for h in headers(log) if h.is_control] == []


# -- aborted cleanings


def begun(log: PartitionLog) -> LogCleaning:
    log.cleaning.move(Event.BEGIN)
    return LogCleaning(log, extent_of(log, NOW_MS), CleanerSettings(), NOW_MS)


def filled(rig: Rig, config: TopicConfig | None = None) -> PartitionLog:
    log = rig.open(config or compacted())
    for number in range(40):
        put(log, ("abc"[number % 3], str(number)))
    close_segments(log)
    return log


@pytest.mark.feature("CR-09")
@pytest.mark.parametrize("after", range(0, 30, 3))
@pytest.mark.parametrize("what", ["truncated", "emptied", "deleted", "not compacted", "disk lost"])
def test_a_changed_log_aborts_its_cleaning(what: str, after: int) -> None:
    rig = Rig()
    log = filled(rig)
    cleaning = begun(log)
    slices = cleaning.slices()
    for _ in range(after):
        next(slices)()
    piece = next(slices)
    if what == "truncated":
        log.truncate_to(11)
    elif what == "emptied":
        log.truncate_fully_and_start_at(100)
    elif what == "deleted":
        log.rename_directory("/logs/orders-0.0123-delete")
    elif what == "not compacted":
        log.config = TopicConfig()
    else:
        log.health.failure = OSError("gone")
    piece()
    with pytest.raises(CleaningAborted):
        next(slices)
    cleaning.discard()
    log.cleaning.finish()
    assert log.cleaning.phase is Phase.IDLE
    assert log.cleaned_to is None
    assert not [name for name in rig.names(log.directory) if name.endswith((".cleaned", ".swap"))]
    if what == "truncated":
        assert log.log_end_offset <= 11
        assert all(offset < 11 for offset, _, _ in values(log))
        log.flush()
        rig.power_cut()
        again = rig.open(compacted(), recovery_point=log.recovery_point)
        assert all(offset < 11 for offset, _, _ in values(again))


@pytest.mark.feature("CR-07", "CR-09")
def test_a_copy_is_swapped_in_before_the_directory_gets_another_name() -> None:
    """The files of an unfinished swap have names that only a start would put right."""
    rig = Rig()
    log = filled(rig)
    slices = begun(log).slices()
    piece = next(slices)
    while log._files.swaps.unfinished is None:
        piece()
        piece = next(slices)
    before = values(log)
    log.rename_directory("/logs/orders-0.0123-future")
    assert log._files.swaps.unfinished is None
    assert not [name for name in rig.names(log.directory) if name.endswith((".cleaned", ".swap"))]
    assert values(log) == before
    log.close_files()
    assert values(log) == before


@pytest.mark.feature("CR-09")
def test_a_truncation_of_the_active_segment_aborts_nothing() -> None:
    log = filled(Rig())
    put(log, ("a", "x"))
    cleaning = begun(log)
    for piece in cleaning.slices():
        piece()
        log.truncate_to(40)
        put(log, ("a", "x"))
    log.cleaning.finish()
    assert log.cleaned_to == 40


@pytest.mark.feature("CR-02", "CR-09")
def test_retention_goes_on_while_a_log_is_cleaned() -> None:
    """compact,delete: what retention deletes meanwhile is gone; the rest is cleaned, now or the next time."""
    rig = Rig()
    given_up = 0
    for after in range(0, 50, 2):
        log = rig.open(
            compacted(cleanup_policy=frozenset(["compact", "delete"]), retention_bytes=1500),
            directory=f"/logs/orders-{after}",
        )
        for number in range(40):
            put(log, (f"k{number}", "x" * 20), ("same", str(number)))
        close_segments(log)
        start = 0
        try:
            for step, piece in enumerate(begun(log).slices()):
                if step == after:
                    assert log.delete_old_segments(NOW_MS)
                    start = log.log_start_offset
                piece()
        except CleaningAborted:
            given_up += 1
        log.cleaning.finish()
        assert start
        if extent_of(log, NOW_MS).dirty_bytes:
            clean(log)
        assert [offset for offset, _, _ in values(log)] == [*range(start, 78, 2), 78, 79]
        assert log.cleaned_to == 80
    assert given_up < 10


@pytest.mark.feature("CR-07")
def test_damage_is_found_and_never_passed_on() -> None:
    rig = Rig()
    log = filled(rig)
    rig.store.flip_bits(f"{DIRECTORY}/{0:020}.log", 70, 1)
    before = values(log)
    with pytest.raises(CorruptBatch):
        clean(log)
    assert values(log) == before


@pytest.mark.feature("CR-04")
def test_unflushed_records_are_not_cleaned() -> None:
    log = Rig().open(ROOMY)
    put(log, ("a", "1"))
    log.roll(NOW_MS)
    assert not extent_of(log, NOW_MS).dirty_bytes
    log.flush()
    assert extent_of(log, NOW_MS).dirty_bytes


@pytest.mark.feature("CR-05")
def test_the_dirtiest_log_comes_first() -> None:
    rig = Rig()
    logs = [rig.open(compacted(), directory=f"/logs/orders-{number}") for number in range(4)]
    for log, count in zip(logs, (10, 30, 20, 0), strict=True):
        for number in range(10):
            put(log, ("a", str(number)))
        close_segments(log)
        clean(log)
        for number in range(count):
            put(log, (f"k{number}", "x"))
        close_segments(log)
    order = []
    while (found := dirtiest(logs, NOW_MS)) is not None:
        order.append(logs.index(found[0]))
        clean(found[0])
    assert order == [1, 2, 0]
    logs[0].config = TopicConfig()
    put(logs[0], ("a", "1"))
    close_segments(logs[0])
    assert dirtiest(logs, NOW_MS) is None, "it is no longer compacted"


@pytest.mark.feature("CR-05")
def test_an_uncleanable_or_busy_log_is_skipped() -> None:
    log = filled(Rig())
    log.cleaning.problem = "damaged"
    assert dirtiest([log], NOW_MS) is None
    log.cleaning.problem = None
    log.cleaning.move(Event.BEGIN)
    assert dirtiest([log], NOW_MS) is None
    log.cleaning.finish()
    assert dirtiest([log], NOW_MS) is not None


@pytest.mark.feature("CR-07")
def test_an_unchanged_segment_is_not_rewritten() -> None:
    rig = Rig()
    log = rig.open(compacted())
    for number in range(20):
        put(log, (f"k{number}", "x" * 30))
    close_segments(log)
    before = list(log.segments)
    clean(log)
    assert list(log.segments) == before
    assert log.cleaned_to == 20
    assert not [name for name in rig.names() if name.endswith((".deleted", ".cleaned", ".swap"))]


# -- random histories


WRITES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), min_size=1, max_size=4)
ACTIONS = st.one_of(
    st.tuples(st.just("put"), WRITES),
    st.tuples(st.just("transaction"), st.integers(7, 8), WRITES),
    st.tuples(st.just("end"), st.integers(7, 8), st.booleans()),
    st.tuples(st.just("clean"), st.integers(2, 12)),
    st.tuples(st.just("later")),
    st.tuples(st.just("reopen")),
)


@pytest.mark.feature("CR-03", "CR-08", "CR-11", "CR-12", "CR-13")
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(ACTIONS, min_size=5, max_size=50), st.integers(150, 700))
def test_readers_build_the_same_table_after_any_history(actions: list[tuple[object, ...]], segment_bytes: int) -> None:
    """A reader of the complete log builds the same table from a cleaned log as from one that was never cleaned."""
    rig = Rig()
    config = compacted(segment_bytes=segment_bytes)
    log = rig.open(config)
    original: dict[int, Record] = {}
    """All records ever written, by offset."""
    fate: dict[int, str] = {}
    open_offsets: dict[int, list[int]] = {7: [], 8: []}
    sequences = {7: 0, 8: 0}
    now_ms, written = NOW_MS, 0

    def note(first: int, data: list[tuple[str, str | None]], is_open: bool) -> list[int]:
        offsets = []
        for place, (key, value) in enumerate(data):
            offset = first + place
            original[offset] = Record(offset, NOW_MS + place, key.encode(), None if value is None else value.encode())
            fate[offset] = "open" if is_open else "committed"
            offsets.append(offset)
        return offsets

    for name, *details in actions:
        if name in ("put", "transaction"):
            pairs: list[tuple[str, str | None]] = []
            for key, chance in details[-1]:  # type: ignore[attr-defined]
                written += 1
                pairs.append((key, None if chance == 0 else str(written)))
            if name == "put":
                note(put(log, *pairs), pairs, False)
            else:
                producer = details[0]
                assert isinstance(producer, int)
                first = put_in_transaction(log, producer, sequences[producer], *pairs)
                sequences[producer] += len(pairs)
                open_offsets[producer] += note(first, pairs, True)
        elif name == "end":
            producer, commit = details
            assert isinstance(producer, int)
            if open_offsets[producer]:
                end_transaction(log, producer, commit=bool(commit))
                for offset in open_offsets[producer]:
                    fate[offset] = "committed" if commit else "aborted"
                open_offsets[producer] = []
        elif name == "later":
            now_ms += RETENTION_MS // 2
        elif name == "clean":
            entries = details[0]
            assert isinstance(entries, int)
            close_segments(log)
            if extent_of(log, now_ms).dirty_bytes:
                clean(log, now_ms, CleanerSettings(dedupe_buffer_bytes=entries * ENTRY_BYTES, slice_bytes=200))
        else:
            log.close()
            for snapshot in [each for each in rig.names() if each.endswith(".snapshot")]:
                # The producer state is derived from the remaining batches.
                rig.disk.remove(f"{DIRECTORY}/{snapshot}")
            high_watermark, cleaned_to = log.high_watermark, log.cleaned_to
            log = rig.open(config, clean_shutdown=True)
            log.set_high_watermark(high_watermark)
            log.cleaned_to = cleaned_to

        stable = log.last_stable_offset
        visible = [offset for offset in sorted(original) if fate[offset] == "committed" and offset < stable]
        assert table(committed(log)) == table([original[offset] for offset in visible])
        left = records_of(log)
        assert [record.offset for record in left] == sorted({record.offset for record in left})
        assert all(record == original[record.offset] for record in left)
        edge = log.cleaned_to or 0
        still = {record.offset for record in left}
        assert still >= {offset for offset in original if offset >= edge and fate[offset] != "aborted"}
        assert log.producers is not None
        for producer, sequence in sequences.items():
            if sequence:
                assert log.producers.entries[producer].last_sequence == sequence - 1
    ends = [header.next_offset for header in headers(log)]
    assert (ends[-1] if ends else 0) == log.log_end_offset or log.active_segment.base_offset == log.log_end_offset
    assert [head.base_offset for _, head in heads(b"".join(all_batches(log)))] == [h.base_offset for h in headers(log)]
    assert all(decode_records(batch) is not None for batch in all_batches(log))
