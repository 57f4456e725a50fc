"""Reads of remote segments give what the log would give, from the lineage that the log has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.remote.segment_store import IndexKind
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import CorruptBatch, iterate_batches, read_header
from barnabas.runtime.object_store import NoSuchObject, StoreError
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.remote.compacted_copy import CompactedCopy
from barnabas.storage.remote.segment import RemoteSegment, SegmentState, SegmentUpdate
from tests.broker.remote.rig import KEY, Seam, Tiers, run
from tests.examples import examples
from tests.storage.cleaning_rig import clean, close_segments, compacted, put
from tests.storage.rig import NOW_MS, Rig, all_batches, append, batch, small_segments
from tests.storage.test_aborted import begin, end

pytestmark = pytest.mark.feature("TS-06")


def log_of(*sizes: int) -> PartitionLog:
    """Batches with so many records each, in segments of a few batches; every batch is in the next second."""
    log = Rig().open(small_segments())
    for place, size in enumerate(sizes):
        append(log, batch(size, NOW_MS + place * 1_000))
    log.set_high_watermark(log.log_end_offset)
    return log


@pytest.fixture
def tiers() -> Tiers:
    tiers = Tiers(log_of(*[3, 1, 7, 2] * 10))
    tiers.copy_closed()
    assert len(tiers.segments) > 3
    return tiers


def test_each_offset_is_read_with_the_bytes_of_the_log(tiers: Tiers) -> None:
    by_offset = {}
    for data in all_batches(tiers.log):
        header = read_header(data)
        by_offset |= dict.fromkeys(range(header.base_offset, header.next_offset), data)
    for offset in range(tiers.seam().local_log_start_offset):
        data = tiers.read(offset).data
        assert data.startswith(by_offset[offset])
        last = [header for _, header in iterate_batches(data)][-1]
        segment = tiers.segments.segment_for(0, offset)
        assert segment is not None
        assert last.last_offset == segment.end_offset, "a read goes on to the end of its segment"


def test_a_read_is_bounded_but_gives_the_first_batch_if_it_must(tiers: Tiers) -> None:
    whole = tiers.read(0).data
    first = read_header(whole).size_bytes
    assert tiers.read(0, first + 20).data == whole[: first + 20]
    assert tiers.read(0, 20).data == whole[:first]
    assert tiers.read(0, 20, least=False).data == b""
    assert tiers.read(0, first, least=False).data == whole[:first]


def test_a_read_costs_one_request_when_the_index_is_known(tiers: Tiers) -> None:
    tiers.read(0)
    tiers.store.reads.clear()
    tiers.read(5)
    assert tiers.store.reads == {"log": 1}


def test_large_batches_before_the_wanted_one_are_not_transferred() -> None:
    log = Rig().open(small_segments(segment_bytes=2_000_000, index_interval_bytes=1_000_000, segment_index_bytes=1024))
    for _ in range(12):
        append(log, batch(1, value=b"v" * 300_000))
    tiers = Tiers(log)
    tiers.copy_closed()
    data = tiers.read(4, 1_000).data
    assert read_header(data).base_offset == 4
    assert tiers.store.reads["log"] <= 6


@pytest.mark.parametrize("offset", [-1, 10_000])
def test_an_offset_that_no_segment_has_is_out_of_range(tiers: Tiers, offset: int) -> None:
    with pytest.raises(OffsetOutOfRange):
        tiers.read(offset)


def test_a_segment_that_was_deleted_meanwhile(tiers: Tiers) -> None:
    segment = tiers.segments.all()[0]
    del tiers.store.logs[segment.segment_id]
    with pytest.raises(NoSuchObject):
        tiers.read(0)
    tiers.log.advance_log_start_offset(segment.end_offset + 1)
    with pytest.raises(OffsetOutOfRange):
        tiers.read(0, seam=Seam(tiers.log, tiers.seam().local_log_start_offset, LeaderEpochs([(0, 0)])))


def test_a_segment_on_its_way_out_is_not_read(tiers: Tiers) -> None:
    tiers.move(tiers.segments.all()[0], SegmentState.DELETE_SEGMENT_STARTED)
    with pytest.raises(OffsetOutOfRange):
        tiers.read(0)


def test_errors_of_the_store_are_passed_on(tiers: Tiers) -> None:
    tiers.store.error = StoreError("get x: 503")
    with pytest.raises(StoreError, match="503"):
        tiers.read(0)


def test_segments_that_are_not_known_yet(tiers: Tiers) -> None:
    tiers.reader._segments = lambda _key: None
    with pytest.raises(KafkaError) as caught:
        tiers.read(0)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("position", "value"), [(0, b"\x7f"), (8, b"\x7f\xff\xff\xff"), (16, b"\x09"), (8, b"\0\0\0\0"), (23, b"\x7f")]
)
def test_a_damaged_segment_gives_corrupt_message(tiers: Tiers, position: int, value: bytes) -> None:
    segment_id = tiers.segments.all()[0].segment_id
    data = bytearray(tiers.store.logs[segment_id])
    data[position : position + len(value)] = value
    tiers.store.logs[segment_id] = bytes(data)
    with pytest.raises(CorruptBatch):
        tiers.read(0)


def test_a_segment_that_was_cut_gives_corrupt_message(tiers: Tiers) -> None:
    segment_id = tiers.segments.all()[0].segment_id
    tiers.store.logs[segment_id] = tiers.store.logs[segment_id][:70]
    with pytest.raises(CorruptBatch):
        tiers.read(3)


# ---- lineage


def diverging(*, own_end: int) -> tuple[Tiers, Seam]:
    """A segment of epoch 0 in a log that leaves it at `own_end`, where epoch 2 begins."""
    tiers = Tiers(log_of(*[1] * 30))
    tiers.copy(0)
    return tiers, Seam(tiers.log, 1_000, LeaderEpochs([(0, 0), (2, own_end)]))


@pytest.mark.feature("TS-07")
@pytest.mark.parametrize("own_end", range(1, 7))
def test_copies_of_a_deposed_leader_are_not_read_beyond_the_log(own_end: int) -> None:
    tiers, seam = diverging(own_end=own_end)
    for offset in range(own_end):
        headers = [header for _, header in iterate_batches(tiers.read(offset, seam=seam).data)]
        assert headers[0].base_offset == offset
        assert headers[-1].last_offset < own_end
    with pytest.raises(OffsetOutOfRange):
        tiers.read(own_end, seam=seam)


def test_a_segment_with_many_epochs_is_read_to_its_end_if_the_log_has_them_all() -> None:
    log = Rig().open(small_segments())
    for place in range(20):
        append(log, batch(1), leader_epoch=place // 2)
    tiers = Tiers(log)
    segment = tiers.copy(0)
    assert len(segment.leader_epochs) > 2
    headers = [header for _, header in iterate_batches(tiers.read(0).data)]
    assert headers[-1].last_offset == segment.end_offset
    other = Seam(log, 1_000, LeaderEpochs([(0, 0), (1, 2), (7, 4)]))
    headers = [header for _, header in iterate_batches(tiers.read(0, seam=other).data)]
    assert headers[-1].last_offset in (2, 3)


# ---- aborted transactions


def committed_values(data: bytes, aborted: list[tuple[int, int]]) -> list[int]:
    """Offsets that a read_committed consumer delivers, as Kafka's client computes them."""
    waiting = sorted(aborted, key=lambda each: each[1])
    active: set[int] = set()
    offsets = []
    for _, header in iterate_batches(data):
        while waiting and waiting[0][1] <= header.last_offset:
            active.add(waiting.pop(0)[0])
        if header.is_control:
            active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            offsets += range(header.base_offset, header.next_offset)
    return offsets


Act = tuple[str, int]


@st.composite
def acts(draw: st.DrawFn) -> list[Act]:
    kinds = st.tuples(st.sampled_from(("plain", "begin", "begin", "commit", "abort")), st.integers(0, 3))
    return draw(st.lists(kinds, min_size=20, max_size=80))


@given(story=acts(), seam_at=st.integers(0, 1 << 10), max_bytes=st.integers(1, 2_000))
@settings(max_examples=examples(40), deadline=None)
def test_readers_of_committed_records_get_the_same_as_from_the_log(
    story: list[Act], seam_at: int, max_bytes: int
) -> None:
    log = Rig().open(small_segments())
    sequences: dict[int, int] = {}
    for kind, producer in story:
        if kind == "plain":
            append(log, batch(1))
        elif kind == "begin":
            begin(log, producer, sequence=sequences.get(producer, 0))
            sequences[producer] = sequences.get(producer, 0) + 1
        elif producer in sequences:
            end(log, producer, commit=kind == "commit")
    for producer in sequences:
        end(log, producer, commit=True)
    log.set_high_watermark(log.log_end_offset)
    tiers = Tiers(log)
    tiers.copy_closed()
    bases = [segment.base_offset for segment in log.segments]
    seam = tiers.seam(bases[seam_at % len(bases)])
    start = log.log_start_offset
    for offset in range(start, seam.local_log_start_offset):
        found = tiers.read(offset, max_bytes, aborted=True, seam=seam)
        headers = [header for _, header in iterate_batches(found.data)]
        all_aborted = log.aborted_transactions(start, log.log_end_offset)
        listed = [(each.producer_id, each.first_offset) for each in found.aborted]
        wanted = [
            (each.producer_id, each.first_offset)
            for each in all_aborted
            if each.last_offset >= headers[0].base_offset and each.first_offset <= headers[-1].last_offset
        ]
        assert set(wanted) <= set(listed) <= {(each.producer_id, each.first_offset) for each in all_aborted}
        assert committed_values(found.data, listed) == committed_values(found.data, wanted)


def test_a_transaction_that_only_a_deposed_leader_ended_is_not_listed_as_its_marker_said() -> None:
    log = Rig().open(small_segments())
    begin(log, 7)
    append(log, batch(1), batch(1))
    end(log, 7, commit=False)
    for _ in range(12):
        append(log, batch(1))
    log.set_high_watermark(log.log_end_offset)
    tiers = Tiers(log)
    tiers.copy(0)
    seam = Seam(log, 1_000, LeaderEpochs([(0, 0), (2, 3)]))
    seam.aborted_transactions = lambda _from, _upper: []  # type: ignore[method-assign]
    found = tiers.read(0, aborted=True, seam=seam)
    assert found.aborted == []
    assert [header.base_offset for _, header in iterate_batches(found.data)][-1] < 3


# ---- by time


@pytest.mark.feature("TS-09")
@given(
    gaps=st.lists(st.integers(-2_000, 3_000), min_size=20, max_size=60),
    asked=st.integers(-5_000, 60_000),
    seam_at=st.integers(0, 1 << 10),
)
@settings(max_examples=examples(40), deadline=None)
def test_offsets_by_time_are_those_of_the_whole_log(gaps: list[int], asked: int, seam_at: int) -> None:
    log, time_ms = Rig().open(small_segments()), NOW_MS
    for gap in gaps:
        time_ms = max(1, time_ms + gap)
        append(log, batch(2, time_ms))
    tiers = Tiers(log)
    tiers.copy_closed()
    bases = [segment.base_offset for segment in log.segments]
    seam = tiers.seam(bases[seam_at % len(bases)])
    found = run(lambda: tiers.reader.find_time(KEY, seam, NOW_MS + asked))
    whole = log.offset_for_timestamp(NOW_MS + asked)
    assert found == (whole if whole is not None and whole.offset < seam.local_log_start_offset else None)


def test_a_time_that_only_a_deposed_leader_wrote_is_not_found() -> None:
    tiers, seam = diverging(own_end=3)
    seam.local_log_start_offset = 3
    assert run(lambda: tiers.reader.find_time(KEY, seam, NOW_MS + 4_000)) is None
    found = run(lambda: tiers.reader.find_time(KEY, seam, NOW_MS + 1_001))
    assert found is not None
    assert found.offset == 2


# ---- the cache


def test_indexes_are_read_once_and_dropped_when_there_are_too_many(tiers: Tiers) -> None:
    first, second = tiers.segments.all()[:2]
    size = len(run(lambda: tiers.indexes.get(first, IndexKind.OFFSET)))
    tiers.indexes._limit_bytes = lambda: size
    for _ in range(3):
        run(lambda: tiers.indexes.get(first, IndexKind.OFFSET))
    assert tiers.store.reads["OFFSET"] == 1
    run(lambda: tiers.indexes.get(second, IndexKind.OFFSET))
    assert tiers.indexes.size_bytes <= size
    run(lambda: tiers.indexes.get(first, IndexKind.OFFSET))
    assert tiers.store.reads["OFFSET"] == 3


def test_an_index_that_nobody_used_for_long_is_dropped(tiers: Tiers) -> None:
    first, second = tiers.segments.all()[:2]
    run(lambda: tiers.indexes.get(first, IndexKind.OFFSET))
    tiers.clock.time_ms += 60_001
    run(lambda: tiers.indexes.get(second, IndexKind.OFFSET))
    assert tiers.indexes.size_bytes == len(tiers.store.indexes[second.segment_id, IndexKind.OFFSET])


def test_a_missing_transaction_index_is_an_empty_one(tiers: Tiers) -> None:
    segment = tiers.segments.all()[0]
    assert run(lambda: tiers.indexes.get(segment, IndexKind.TRANSACTION)) == b""


@pytest.mark.feature("CR-03")
def test_a_read_goes_on_behind_what_compaction_removed_before_the_seam() -> None:
    log = Rig().open(compacted(segment_bytes=300))
    for key in "abb":
        put(log, (key, "1"))
    close_segments(log)
    put(log, ("b", "2" * 200))
    close_segments(log)
    put(log, ("c", "1"))
    clean(log)
    tiers = Tiers(log)
    tiers.copy(0)
    seam = tiers.seam(3)
    [(_, first)] = iterate_batches(tiers.read(0, seam=seam).data)
    assert first.last_offset == 0
    for offset in (1, 2):
        [(_, gap)] = iterate_batches(tiers.read(offset, seam=seam).data)
        assert (gap.base_offset, gap.next_offset, gap.records_count) == (offset, 3, 0)


@pytest.mark.feature("CR-03")
def test_a_read_finds_the_segment_that_has_replaced_its_own(tiers: Tiers) -> None:
    first = tiers.segments.segment_for(0, 0)
    assert first is not None
    whole, copy = tiers.read(0).data, replace(first, segment_id=b"n" * 16, state=SegmentState.COPY_SEGMENT_STARTED)
    copy = replace(copy, custom_metadata=CompactedCopy(0, 100).encode())
    for kind in IndexKind:
        if (index := tiers.store.indexes.get((first.segment_id, kind))) is not None:
            tiers.store.indexes[copy.segment_id, kind] = index
    tiers.store.logs[copy.segment_id] = tiers.store.logs.pop(first.segment_id)
    original = tiers.store.read

    async def late(segment: RemoteSegment, start: int, count: int) -> bytes:
        if segment.segment_id == first.segment_id:
            tiers.segments.apply(copy)
            state = SegmentState.COPY_SEGMENT_FINISHED
            tiers.segments.apply(SegmentUpdate(KEY, copy.segment_id, NOW_MS, state, 1, copy.custom_metadata))
        return await original(segment, start, count)

    tiers.store.read = late  # type: ignore[method-assign]
    assert tiers.read(0).data == whole
