"""Other tasks run between the steps in which committed metadata are decoded and applied."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kraft.commit_feed import (
    PAUSE_SECONDS,
    STEP_DECODED_RECORDS,
    STEPS_WITHOUT_PAUSE,
    CommitFeed,
    CommittedBatch,
    read_batch,
)
from barnabas.kraft.metadata.record_versions import encode_records
from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.protocol.messages.metadata_log import ConfigRecord
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.simulated.work import WorkCounter

STEPS = 5
"""Steps of the listener below."""


def batch_of(records: list[Message], base_offset: int) -> bytes:
    values = encode_records(records, 30)
    return build_batch([Record(0, 5, None, value) for value in values], base_offset=base_offset, leader_epoch=3)


def configs(count: int) -> list[Message]:
    return [ConfigRecord(resource_type=4, resource_name="1", name=f"key {it}", value="v") for it in range(count)]


@pytest.mark.parametrize("count", [1, STEP_DECODED_RECORDS, STEP_DECODED_RECORDS + 1, 40 * STEP_DECODED_RECORDS + 7])
def test_a_batch_is_decoded_in_steps_of_the_same_length(count: int) -> None:
    records = configs(count)
    data = b"before it" + batch_of(records, 1000)
    calls: list[int] = []
    counter = WorkCounter(lambda _name, made: calls.append(made))
    steps = read_batch(data, 9, read_header(data, 9))
    while True:
        try:
            counter("", lambda: next(steps))
        except StopIteration as end:
            read = end.value
            break
    assert read == CommittedBatch(1000, 1000 + count - 1, 3, 5, records)
    assert len(calls) >= count // STEP_DECODED_RECORDS
    assert max(calls) <= 1.5 * calls[0] + 100, "the first step decodes as much as any other"


def test_others_run_while_a_snapshot_and_a_batch_are_applied() -> None:
    snapshot_records, batch_records = configs(3), configs(200)
    seen: list[str] = []

    class Listener:
        def handle_commit(self, batch: CommittedBatch) -> Stepwise[None]:
            assert batch == CommittedBatch(500, 699, 3, 5, batch_records)
            yield from self._slowly("batch")

        def handle_snapshot(
            self, records: list[Message], offset: int, epoch: int, timestamp_ms: int
        ) -> Stepwise[None]:
            assert (records, offset, epoch, timestamp_ms) == (snapshot_records, 499, 3, 5)
            yield from self._slowly("snapshot")

        def _slowly(self, what: str) -> Stepwise[None]:
            for _ in range(STEPS):
                assert feed.next_offset == (None if what == "snapshot" else 500), "it takes effect with the last step"
                seen.append(what)
                yield

        def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
            raise AssertionError("there is no leader")

    class Snapshots:
        latest = OffsetAndEpoch(offset=500, epoch=3)

        def records(self, snapshot: OffsetAndEpoch) -> tuple[int, list[Message]]:
            return 5, snapshot_records

    class Log:
        snapshots = Snapshots()
        start_offset = 500

        def read(self, offset: int, max_bytes: int, upper_offset: int) -> bytes:
            assert (offset, upper_offset) == (500, 700)
            return batch_of(batch_records, 500)

    async def at_once(work: Callable[[], Any]) -> Any:
        return work()

    async def others() -> None:
        while True:
            seen.append("others")
            await trio.lowlevel.checkpoint()

    feed = CommitFeed(Log(), Listener(), at_once)  # type: ignore[arg-type]  # no more of the log is used

    async def story() -> None:
        feed.high_watermark_moved(700)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed.run)
            nursery.start_soon(others)
            while feed.next_offset != 700:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    trio.run(story)
    for what in ("snapshot", "batch"):
        times = [number for number, each in enumerate(seen) if each == what]
        assert len(times) == STEPS
        assert seen[times[0] : times[-1]].count("others") >= STEPS - 2, "trio runs each task once in a pass"


def test_a_node_pauses_while_it_applies_the_newest_batch_and_not_while_it_catches_up() -> None:
    """Other nodes on the same cores are busy with the same batch."""
    large = configs(2_000)
    times: dict[int, set[float]] = {0: set(), 2_000: set()}

    class Listener:
        def handle_commit(self, batch: CommittedBatch) -> Stepwise[None]:
            for _ in range(2 * STEPS_WITHOUT_PAUSE * STEPS):
                times[batch.base_offset].add(trio.current_time())
                yield

        def handle_snapshot(
            self, records: list[Message], offset: int, epoch: int, timestamp_ms: int
        ) -> Stepwise[None]:
            raise AssertionError("there is no snapshot")

        def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
            raise AssertionError("there is no leader")

    class Log:
        snapshots = SimpleNamespace(latest=None)
        start_offset = 0

        def read(self, offset: int, max_bytes: int, upper_offset: int) -> bytes:
            return batch_of(large, 0) + batch_of(large, 2_000)

    async def at_once(work: Callable[[], Any]) -> Any:
        return work()

    feed = CommitFeed(Log(), Listener(), at_once)  # type: ignore[arg-type]  # no more of the log is used

    async def story() -> None:
        feed.high_watermark_moved(4_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed.run)
            while feed.next_offset != 4_000:
                await trio.sleep(PAUSE_SECONDS / 10)
            nursery.cancel_scope.cancel()

    trio.run(story, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(times[0]) == 1
    assert len(times[2_000]) == 2 * STEPS
