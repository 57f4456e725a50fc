"""Large batches and snapshots reach the listener in parts, which together are the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from barnabas.kraft.commit_feed import STEP_RECORDS, CommitFeed, CommittedBatch
from barnabas.kraft.raft.history import OffsetAndEpoch
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


@pytest.mark.parametrize("count", [0, 1, STEP_RECORDS, STEP_RECORDS + 1, 5 * STEP_RECORDS + 7])
def test_the_parts_of_a_snapshot_are_short_and_others_run_between_them(count: int) -> None:
    records: list[Message] = [NoOpRecord() for _ in range(count)]
    seen: list[Any] = []

    class Listener:
        def handle_commit(self, batch: CommittedBatch) -> None:
            raise AssertionError("nothing follows the snapshot")

        def handle_snapshot(
            self, records: list[Message], offset: int, epoch: int, timestamp_ms: int, *, continues: bool
        ) -> None:
            assert (offset, epoch, timestamp_ms) == (499, 3, 5)
            seen.append((records, continues))

        def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
            raise AssertionError("there is no leader")

    class Snapshots:
        latest = OffsetAndEpoch(offset=500, epoch=3)

        def records(self, snapshot: OffsetAndEpoch) -> tuple[int, list[Message]]:
            return 5, records

    class Log:
        snapshots = Snapshots()
        start_offset = 500

    async def at_once(work: Callable[[], Any]) -> Any:
        return work()

    async def others() -> None:
        while True:
            seen.append("others")
            await trio.lowlevel.checkpoint()

    async def story() -> None:
        feed = CommitFeed(Log(), Listener(), at_once)  # type: ignore[arg-type]  # no more of the log is used
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed.run)
            nursery.start_soon(others)
            while feed.next_offset != 500:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    trio.run(story)
    parts = [part for part in seen if part != "others"]
    assert [record for part, _ in parts for record in part] == records
    assert [continues for _, continues in parts] == [True] * (len(parts) - 1) + [False]
    assert all(len(part) <= STEP_RECORDS for part, _ in parts)
    last = seen.index(parts[-1])
    assert seen[:last].count("others") >= len(parts) - 1
