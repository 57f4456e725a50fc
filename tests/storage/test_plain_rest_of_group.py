"""The rest that compaction leaves of remote segments beside a plain list of the records that stay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, CorruptBatch, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record, decode_records
from barnabas.storage.compaction import Compaction, Transactions
from barnabas.storage.names import SCRATCH_SUFFIX
from barnabas.storage.offset_map import OffsetMap
from barnabas.storage.remote.index_bytes import entry_after, last_position, last_timestamp, offset_at_time, position_of
from barnabas.storage.rest_of_group import RestOfGroup
from barnabas.storage.transaction_index import AbortedTransaction, read_entries
from tests.examples import examples
from tests.storage.cleaning_rig import compacted
from tests.storage.rig import NOW_MS, Rig, all_offsets, append, heads

KEYS = [None, b"a", b"b", b"c"]


def some_batches(draw: Any) -> list[tuple[BatchHeader, bytes]]:
    found, offset = [], 0
    for _ in range(draw(st.integers(1, 8))):
        offset += draw(st.sampled_from([0, 0, 2]))
        records = [
            Record(offset + place, NOW_MS + draw(st.integers(0, 9)), draw(st.sampled_from(KEYS)), b"value")
            for place in range(draw(st.integers(1, 3)))
        ]
        data = build_batch(records, base_offset=offset)
        found.append((read_header(data), data))
        offset = found[-1][0].next_offset
    return found


@pytest.mark.feature("CR-04", "TS-05")
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_what_is_left_has_the_last_record_of_each_key_and_its_indexes(data: st.DataObject) -> None:
    draw = data.draw
    rig = Rig(seed=draw(st.integers(0, 9)))
    index_bytes = draw(st.sampled_from([4096, 24]))  # two entries by offset, and one by time before it is full
    log = rig.open(compacted(segment_index_bytes=index_bytes))
    append(log)
    batches = some_batches(draw)
    end = batches[-1][0].next_offset
    known_to = draw(st.integers(0, end))
    last: dict[bytes, int] = {}
    offsets = OffsetMap(1 << 16, 100, 0.9)
    for _, batch in batches:
        for record in decode_records(batch):
            if record.key is not None and record.offset < known_to:
                offsets.put(record.key, record.offset)
                last[record.key] = record.offset
    offsets.latest_offset = known_to - 1
    if draw(st.booleans()):
        later = draw(st.sampled_from([b"a", b"b", b"c"]))
        offsets.put(later, end + 5)  # in a later segment
        last[later] = end + 5
        offsets.latest_offset = known_to - 1

    interval = draw(st.sampled_from([0, 100, 1 << 20]))
    scratch = log.begin_scratch(0, NOW_MS)
    compaction = Compaction(offsets, Transactions(()), upper_offset=end + 100, now_ms=NOW_MS, delete_retention_ms=1)
    rest = RestOfGroup(scratch, compaction)
    places = sorted(draw(st.lists(st.integers(0, len(batches)), max_size=3)))
    for first, after in zip([0, *places], [*places, len(batches)], strict=True):
        rest.add(batches[first:after], interval)

    kept: list[tuple[int, int, list[int]]] = []
    """(last offset, largest timestamp, offsets) of each batch that stays."""
    for header, batch in batches:
        records = decode_records(batch)
        stays = [
            it.offset
            for it in records
            if it.offset >= known_to or (it.key is not None and it.offset >= last.get(it.key, -1))
        ]
        if stays:
            kept.append((header.last_offset, max(it.timestamp for it in records if it.offset in stays), stays))
    count = sum(header.records_count for header, _ in batches)
    assert rest.is_changed == (sum(len(stays) for _, _, stays in kept) < count)
    aborted = [AbortedTransaction(7, 1, 3, 4)] if draw(st.booleans()) else []
    for each in aborted:
        scratch.aborted.append(each)
    offset_index, time_index, transaction_index = rest.seal()

    content = scratch.log_file().pread(scratch.size_bytes, 0)
    found = [(header.last_offset, [it.offset for it in decode_records(content, at)]) for at, header in heads(content)]
    positions = [at for at, _ in heads(content)]
    if kept:
        assert found == [(last_offset, stays) for last_offset, _, stays in kept]
    else:
        assert (found, len(content)) == ([(end - 1, [])], BATCH_HEADER_BYTES), "no segment is empty"
    check_indexes(offset_index, time_index, found, positions, kept)
    assert transaction_index is None or list(read_entries(transaction_index, "x")) == aborted
    assert (transaction_index is None) == (not aborted)
    assert {name for name in rig.names() if name.endswith(SCRATCH_SUFFIX)}
    rig.kill()
    again = rig.open(compacted())
    assert all_offsets(again) == [0] and not [name for name in rig.names() if name.endswith(SCRATCH_SUFFIX)]


def check_indexes(
    offset_index: bytes,
    time_index: bytes,
    found: list[tuple[int, list[int]]],
    positions: list[int],
    kept: list[tuple[int, int, list[int]]],
) -> None:
    """Each entry leads to a batch at or before what is looked for."""
    ends = [last_offset for last_offset, _ in found]
    for offset in range(ends[-1] + 2):
        place = position_of(offset_index, 0, offset)
        assert (place.offset, place.position) == (0, 0) or place.position == positions[ends.index(place.offset)]
        assert place.offset <= offset
    entry = entry_after(offset_index, 0, -1)
    while entry is not None:
        assert positions[ends.index(entry.offset)] == entry.position
        entry = entry_after(offset_index, 0, entry.position)
    assert last_position(offset_index[-8:], 0) in (0, *positions)
    largest = max((time for _, time, _ in kept), default=-1)
    assert last_timestamp(time_index[-12:]) == largest or len(time_index) >= 24
    for time in range(NOW_MS - 1, NOW_MS + 10):
        behind = offset_at_time(time_index, 0, time)
        first = next((last_offset for last_offset, at, _ in kept if at > time), None)
        assert first is None or behind <= first, "a later record is not skipped"


@pytest.mark.feature("CR-04", "TS-05")
def test_a_damaged_batch_of_a_store_is_not_passed_on() -> None:
    log = Rig().open(compacted())
    batch = bytearray(build_batch([Record(0, NOW_MS, b"a", b"value")]))
    batch[-1] ^= 1
    compaction = Compaction(
        OffsetMap(1 << 10, 1, 0.9), Transactions(()), upper_offset=9, now_ms=NOW_MS, delete_retention_ms=1
    )
    rest = RestOfGroup(log.begin_scratch(0, NOW_MS), compaction)
    with pytest.raises(CorruptBatch, match="the remote batch at offset 0 is damaged"):
        rest.add([(read_header(batch), bytes(batch))], 0)
    assert rest.segment.size_bytes == 0
