"""A batch ends once, and completes its futures once and in order."""

from __future__ import annotations

import pytest
import trio

from barnabas.client.errors import IllegalStateException
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.memory_records_builder import BatchFormat, MemoryRecordsBuilder, ProducerId
from barnabas.client.producer.producer_batch import FinalState, ProducerBatch
from barnabas.client.producer.record_metadata import Acked, Failed, RecordMetadata, Unknown
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import Record, decode_records

FORMAT = BatchFormat(200)
ERROR = RuntimeError("no")


def filled(count: int = 3) -> ProducerBatch:
    batch = ProducerBatch(TopicPartition("t", 4), MemoryRecordsBuilder(FORMAT, 1.0), 100, trio.Event)
    for number in range(count):
        assert batch.try_append(Record(0, 1000 + number, None, b"%d" % number)) is not None
    return batch


@pytest.mark.feature("PR-04")
def test_there_is_no_future_where_there_is_no_room() -> None:
    batch = filled(1)
    assert batch.try_append(Record(0, 0, None, b"x" * 500)) is None
    assert batch.is_full
    assert batch.try_append(Record(0, 0, None, b"x")) is None, "it was closed, so that records keep their order"


@pytest.mark.feature("PR-04")
async def test_an_offset_is_that_of_the_batch_and_the_place_in_it() -> None:
    batch = filled()
    batch.complete(40, -1)
    found = [await future for future in batch.futures]
    assert found == [RecordMetadata("t", 4, 40 + n, 1000 + n, -1, 1) for n in range(3)]
    assert [await future.outcome() for future in batch.futures] == [Acked(4, 40 + n, 1000 + n) for n in range(3)]


async def test_the_brokers_time_is_used_if_there_is_one() -> None:
    batch = filled()
    batch.complete(40, 5000)
    assert [(await future).timestamp_ms for future in batch.futures] == [5000] * 3


@pytest.mark.feature("PR-04")
async def test_many_may_wait_for_one_record_and_one_may_stop() -> None:
    batch = filled(1)
    seen: list[int] = []

    async def wait() -> None:
        seen.append((await batch.futures[0]).offset)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        with trio.move_on_after(0.01):
            await batch.futures[0]
        assert not batch.futures[0].done
        batch.complete(7, -1)
    assert seen == [7, 7]


@pytest.mark.feature("PR-05")
def test_callbacks_fire_once_and_in_order() -> None:
    batch = filled()
    called: list[tuple[int, Exception | None]] = []
    for future in batch.futures:
        future.callback = lambda metadata, error: called.append((metadata.offset, error))
    assert batch.complete_exceptionally(ERROR)
    assert called == [(-1, ERROR)] * 3
    assert not batch.complete(5, -1)
    assert not batch.abort(ERROR)
    assert len(called) == 3


@pytest.mark.feature("PR-05")
def test_late_outcomes() -> None:
    for end in (lambda batch: batch.abort(ERROR), lambda batch: batch.complete_exceptionally(ERROR)):
        batch = filled()
        assert end(batch)
        state = batch.final_state
        assert not batch.complete(9, -1), "a success that came too late changes nothing"
        assert not batch.complete_exceptionally(RuntimeError("other"))
        assert batch.final_state is state
        assert batch.futures[0].exception() is ERROR
    batch = filled()
    assert batch.complete(9, -1)
    assert batch.final_state is FinalState.SUCCEEDED
    for again in (lambda: batch.complete(9, -1), lambda: batch.abort(ERROR)):
        with pytest.raises(IllegalStateException, match="succeeded"):
            again()
    assert batch.futures[0].result().offset == 9


async def test_a_failure_reports_whether_it_may_be_in_the_log() -> None:
    for maybe_written, kind in ((False, Failed), (True, Unknown)):
        batch = filled(1)
        batch.complete_exceptionally(ERROR, maybe_written=maybe_written)
        assert await batch.futures[0].outcome() == kind(ERROR)
        with pytest.raises(RuntimeError, match="no"):
            await batch.futures[0]


async def test_single_records_may_fail_in_ways_of_their_own() -> None:
    batch = filled()
    other = ValueError("that one")
    batch.complete_exceptionally(ERROR, {1: other})
    assert [future.exception() for future in batch.futures] == [ERROR, other, ERROR]


def test_a_future_that_is_asked_too_early() -> None:
    [future] = filled(1).futures
    assert not future.done
    assert future.exception() is None
    with pytest.raises(IllegalStateException, match="not acknowledged yet"):
        future.result()


@pytest.mark.feature("PR-04")
async def test_after_a_split_every_future_ends_as_its_part() -> None:
    batch = filled(4)
    batch.close(ProducerId(5, 1), 2**31 - 2)
    called: list[int] = []
    for future in batch.futures:
        future.callback = lambda metadata, error: called.append(metadata.offset)
    builders = [MemoryRecordsBuilder(FORMAT, 1.0), MemoryRecordsBuilder(FORMAT, 1.0)]
    for number, record in enumerate(batch.records):
        builders[number // 3].try_append(record)
    first, second = batch.split(builders)
    assert read_header(first.encoded).base_sequence == 2**31 - 2
    assert read_header(second.encoded).base_sequence == 1, "sequences begin again at 0 after 2^31 - 1"
    assert [record.value for record in decode_records(second.encoded)] == [b"3"]
    assert not any(future.done for future in batch.futures)
    whole = trio.Event()

    async def wait_for_all() -> None:
        await batch.result.wait_for_all()
        whole.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_all)
        second.complete(90, -1)
        await trio.testing.wait_all_tasks_blocked()
        assert not whole.is_set()
        first.complete(50, -1)
        await whole.wait()
    assert [(await future).offset for future in batch.futures] == [50, 51, 52, 90]
    assert called == [90, 50, 51, 52]
