"""Replicas are equal up to the high watermark, or it is said where they part."""

from __future__ import annotations

import pytest

from broker.replication.verification import first_difference
from protocol.records.builder import build_batch
from protocol.records.record import Record

pytestmark = pytest.mark.feature("RE-21")


def batch(offset: int, value: bytes = b"v", records: int = 1, epoch: int = 3) -> bytes:
    contents = [Record(0, 1_000, None, value, ()) for _ in range(records)]
    return build_batch(contents, base_offset=offset, leader_epoch=epoch)


def test_equal_logs_have_no_difference_even_if_one_has_more_above_the_watermark() -> None:
    logs = {
        "1": [batch(0), batch(1), batch(2)],
        "2": [batch(0), batch(1)],
        "3": [batch(0), batch(1), batch(2, b"x")],
    }
    assert first_difference(logs, 0, 2) is None


def test_logs_that_start_at_different_offsets_are_compared_from_the_later_one() -> None:
    assert first_difference({"1": [batch(0), batch(1), batch(2)], "2": [batch(1), batch(2)]}, 1, 3) is None


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ([batch(0), batch(1, b"x"), batch(2)], "at offset 1: other bytes in 1 than in 2"),
        ([batch(0), batch(1, epoch=4), batch(2)], "at offset 1: other bytes in 1 than in 2"),
        ([batch(0), batch(1, records=2)], "at offset 1: 1 has offsets 1 to 1, 2 has 1 to 2"),
        ([batch(0), batch(2)], "at offset 1: 1 has offsets 1 to 1, 2 has 2 to 2"),
        ([batch(0), batch(1)], "at offset 2: 2 ends, 1 goes on"),
        ([batch(0), batch(1)[:-1] + b"?", batch(2)], "at offset 1: wrong CRC in 2"),
    ],
)
def test_the_first_difference_is_named(other: list[bytes], says: str) -> None:
    logs = {"1": [batch(0), batch(1), batch(2)], "2": other}
    assert str(first_difference(logs, 0, 3)) == says
