"""An old consumer reads a log that holds formats of all ages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.apis.fetch_conversion import down_converted
from barnabas.broker.traffic import Conversions
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.conversion import build_message_set
from barnabas.protocol.records.layout import Fields
from barnabas.protocol.records.record import decode_fields
from barnabas.runtime.world import FileRegion
from tests.storage.rig import Rig

pytestmark = pytest.mark.feature("PF-17")


def some(base_offset: int, count: int, value: bytes = b"value") -> list[Fields]:
    return [(base_offset + place, 1_000 + place, b"k", value, ()) for place in range(count)]


def convert(content: bytes, magic: int, from_offset: int, conversions: Conversions) -> tuple[list[Fields], int, int]:
    """(records, next offset, number of tasks that the worker got)"""
    rig = Rig()
    file = rig.disk.open("/logs-of-all-ages", create=True)
    file.pwrite(content, 0)
    steps = down_converted(FileRegion(file, 0, len(content)), magic, from_offset, conversions)
    work: Callable[[], Any] | None = next(steps)
    tasks = 0
    while True:
        assert work is not None
        tasks += 1
        try:
            work = steps.send(work())
        except StopIteration as end:
            messages, next_offset = end.value
            break
    records: list[Fields] = []
    for position, header in iterate_batches(messages):
        assert header.magic <= magic
        records += decode_fields(messages, position)
    return records, next_offset, tasks


def test_messages_and_batches_of_one_log_come_in_the_order_of_their_offsets() -> None:
    marker = bytearray(build_end_txn_batch(EndTxn(True, 0), 7, 0, 5))
    marker[:8] = (18).to_bytes(8, "big")
    content = b"".join(
        (
            build_message_set(some(0, 3), 0),
            build_message_set(some(3, 4), 1, 1),
            build_message_set(some(7, 2), 1),
            build_batch(some(9, 9), base_offset=9, compression=2),
            marker,
            build_batch(some(19, 5), base_offset=19),
        )
    )
    for magic in (0, 1):
        conversions = Conversions(lambda: 0.0)
        records, next_offset, _ = convert(content, magic, 0, conversions)
        assert [record[0] for record in records] == [*range(18), *range(19, 24)]
        assert {(record[2], record[3]) for record in records} == {(b"k", b"value")}
        assert next_offset == 24
        assert conversions.records == (14 if magic else 20)


def test_a_task_of_the_worker_gets_a_bounded_number_of_bytes() -> None:
    content = b"".join(build_batch(some(place, 1, bytes(10_000)), base_offset=place) for place in range(50))
    records, next_offset, tasks = convert(content, 1, 0, Conversions(lambda: 0.0))
    assert (len(records), next_offset) == (50, 50)
    assert tasks > 8


def test_nothing_but_markers_gives_nothing_and_the_offset_after_them() -> None:
    marker = build_end_txn_batch(EndTxn(False, 0), 7, 0, 5)
    assert convert(marker, 1, 0, Conversions(lambda: 0.0))[:2] == ([], 1)


@pytest.mark.feature("TS-06")
def test_records_of_remote_segments_are_converted_from_memory() -> None:
    content = build_batch(some(0, 9), compression=2)
    steps = down_converted(content, 1, 0, Conversions(lambda: 0.0))
    work = next(steps)
    with pytest.raises(StopIteration) as end:
        while work is not None:
            work = steps.send(work())
    messages, next_offset = end.value.value
    from_file = convert(content, 1, 0, Conversions(lambda: 0.0))
    records = [each for position, _ in iterate_batches(messages) for each in decode_fields(messages, position)]
    assert (records, next_offset) == from_file[:2]
