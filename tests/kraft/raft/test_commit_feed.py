"""Large batches reach the listener in parts, which together are the batch."""

from __future__ import annotations

import pytest

from barnabas.kraft.commit_feed import STEP_RECORDS, CommittedBatch
from barnabas.protocol.messages.metadata_log import NoOpRecord
from barnabas.protocol.schema import Message


@pytest.mark.parametrize("count", [0, 1, STEP_RECORDS, STEP_RECORDS + 1, 5 * STEP_RECORDS, 5 * STEP_RECORDS + 7])
def test_the_parts_of_a_batch_are_consecutive_and_only_the_last_ends_it(count: int) -> None:
    records: list[Message] = [NoOpRecord() for _ in range(count)]
    batch = CommittedBatch(1000, 1000 + max(count, 1) - 1, 3, 5, records)
    parts = list(batch.parts())
    assert [record for part in parts for record in part.records] == records
    assert [part.continues for part in parts] == [True] * (len(parts) - 1) + [False]
    assert all(len(part.records) <= STEP_RECORDS for part in parts)
    next_offset = 1000
    for part in parts:
        assert part.base_offset == next_offset
        next_offset = part.last_offset + 1
    assert next_offset == batch.last_offset + 1
    assert {(part.epoch, part.append_time_ms) for part in parts} == {(3, 5)}
