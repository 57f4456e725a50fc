"""A segment is described by its objects alone as its leader has announced it, and what is no whole segment is not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.remote.segment_store import RemoteSegmentStore, SegmentFiles
from barnabas.broker.remote.stored_segments import NO_BROKER, NotWhole, described
from barnabas.storage.log import PartitionLog
from barnabas.storage.remote.segment import RemoteSegment, SegmentState
from barnabas.storage.segment_export import export_segment
from tests.broker.remote.rig import KEY, run
from tests.broker.remote.tier_rig import MemoryStore
from tests.examples import examples
from tests.storage.rig import NOW_MS, Rig, append, batch, small_segments
from tests.storage.test_aborted import begin, end

pytestmark = pytest.mark.feature("TS-04", "TS-03")


def copied(log: PartitionLog, store: MemoryStore) -> list[RemoteSegment]:
    """The closed segments of the log, as they were announced, and stored."""
    segments = []
    for number, each in enumerate(log.segments[:-1]):
        export = export_segment(log, each.base_offset)
        assert export is not None
        segment = RemoteSegment(
            key=KEY,
            segment_id=number.to_bytes(16, "big"),
            start_offset=export.base_offset,
            end_offset=export.end_offset - 1,
            max_timestamp_ms=export.max_timestamp_ms,
            broker_id=NO_BROKER,
            event_timestamp_ms=NOW_MS,
            size_bytes=export.log.count,
            state=SegmentState.COPY_SEGMENT_STARTED,
            leader_epochs=export.leader_epochs,
            transaction_index_is_empty=not export.has_aborted,
        )
        files = SegmentFiles(export.log, *export.read(NOW_MS))
        run(lambda segment=segment, files=files: RemoteSegmentStore(store).copy(segment, files))  # type: ignore[misc]
        export.close()
        segments.append(segment)
    return segments


def found(store: MemoryStore) -> list[RemoteSegment]:
    """Read all segments from their objects, in the order of the log. Raises `NotWhole`."""

    async def read() -> list[RemoteSegment]:
        segments = RemoteSegmentStore(store)
        return [await described(segments, KEY, each, NOW_MS) for each in (await segments.everything())[KEY]]

    return run(read)


Batch = tuple[int, int, int, int]
"""(records, milliseconds after the batch before, bytes of each value, leader epochs later)"""


@given(
    batches=st.lists(
        st.tuples(st.integers(1, 5), st.integers(-50, 50), st.sampled_from((1, 50, 150)), st.integers(0, 1)),
        min_size=2,
        max_size=30,
    ),
    index_interval_bytes=st.sampled_from((1, 500, 1 << 20)),
)
@settings(max_examples=examples(40), deadline=None)
def test_all_that_a_leader_announced_is_in_the_objects(batches: list[Batch], index_interval_bytes: int) -> None:
    log = Rig().open(small_segments(index_interval_bytes=index_interval_bytes))
    now_ms, epoch = NOW_MS, 0
    for count, later_ms, size_bytes, epochs in batches:
        now_ms, epoch = now_ms + later_ms, epoch + epochs
        append(log, batch(count, now_ms, b"x" * size_bytes), leader_epoch=epoch)
    store = MemoryStore()
    assert copied(log, store) == (found(store) if store.objects else [])


def test_a_segment_with_aborted_transactions_says_so() -> None:
    log = Rig().open(small_segments())
    begin(log, 7)
    end(log, 7, commit=False)
    for _ in range(10):
        append(log, batch(1, value=b"x" * 300))
    store = MemoryStore()
    segments = copied(log, store)
    assert [each.transaction_index_is_empty for each in segments][:2] == [False, True]
    assert found(store) == segments


def a_segment() -> tuple[MemoryStore, RemoteSegment, str]:
    """One segment, and the beginning of its keys."""
    log = Rig().open(small_segments())
    for _ in range(6):
        append(log, batch(1, value=b"x" * 300))
    store = MemoryStore()
    segment = copied(log, store)[0]
    [name] = {key.rpartition(".")[0] for key in store.objects if f"-{'A' * 22}" in key}
    for key in [each for each in store.objects if not each.startswith(name)]:
        del store.objects[key]
    return store, segment, name


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"])
def test_a_segment_that_was_being_copied_or_deleted_is_none(suffix: str) -> None:
    store, segment, name = a_segment()
    assert found(store) == [segment]
    del store.objects[name + suffix]
    with pytest.raises(NotWhole, match=f"{suffix} is missing"):
        found(store)


def test_a_damaged_segment_is_none() -> None:
    store, _, name = a_segment()
    whole = dict(store.objects)

    def damaged(suffix: str, data: bytes, problem: str) -> None:
        store.objects = {**whole, name + suffix: data}
        with pytest.raises(NotWhole, match=problem):
            found(store)

    log = whole[name + ".log"]
    damaged(".log", log[:-1], "ends behind byte")
    damaged(".log", log[:-1] + b"?", "checksum")
    damaged(".log", b"", "it has no batch")
    damaged(".index", b"1234567", "not a multiple of 8")
    damaged(".index", whole[name + ".index"][:-4] + b"\x7f\xff\xff\xff", "it has no batch at byte")
    damaged(".timeindex", b"1234567", "not a multiple of 12")
    damaged(".leader_epoch_checkpoint", b"0\n1\n5 0\n", "has epoch 0")
    damaged(".leader_epoch_checkpoint", b"nonsense", "its leader epochs")


def test_other_objects_in_the_store_are_left_alone() -> None:
    store, segment, name = a_segment()
    store.objects |= {"notes.txt": b"1", name + ".metadata": b"2", f"x/{name}.log": b"3", "orders-0/1.log": b"4"}
    assert found(store) == [segment]
    elsewhere = KEY._replace(partition=7)
    assert run(lambda: RemoteSegmentStore(store).stored(elsewhere)) == []
