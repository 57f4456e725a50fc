"""The tasks of a leader: copies in order, failures of the store, deposed leaders, expiry, deleted topics."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.broker.remote.pending_deletions import read_pending
from barnabas.storage.remote.segment import RemoteSegment, SegmentState, SegmentUpdate
from tests.broker.remote.tier_rig import KEY, NodeKilled, Tier, tiered, until
from tests.storage.rig import NOW_MS, small_segments

STARTED, FINISHED = SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED


def leading(tier: Tier, count: int = 20, **config: Any) -> Tier:
    tier.open(tiered(**config))
    tier.lead(1)
    tier.fill(count)
    return tier


async def stopped(nursery: trio.Nursery) -> None:
    nursery.cancel_scope.cancel()


@pytest.mark.feature("TS-05")
async def test_all_closed_segments_are_copied_in_order(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    closed = tier.log.segments[:-1]
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(closed))
        nursery.cancel_scope.cancel()
    bases = [each.base_offset for each in tier.log.segments]
    assert tier.states() == [(base, end - 1, FINISHED) for base, end in pairwise(bases)]
    assert tier.log.highest_copied_offset == bases[-1] - 1
    assert tier.traffic.copied_bytes["orders"] == sum(each.size_bytes for each in closed)
    sizes = {key: len(data) for key, data in tier.store.objects.items() if key.endswith(".log")}
    assert sorted(sizes.values()) == sorted(each.size_bytes for each in closed)
    assert tier.log.delete_old_segments(NOW_MS) == len(closed)
    assert tier.log.log_start_offset == 0


@pytest.mark.feature("TS-05")
async def test_nothing_beyond_the_last_stable_offset_is_copied(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    tier.log.high_watermark = tier.log.segments[3].base_offset
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == 3)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert len(tier.copied()) == 3


@pytest.mark.feature("TS-05")
async def test_while_the_store_is_away_local_data_is_kept_and_one_attempt_goes_on(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    tier.store.failing = lambda operation, key: operation == "put" and key.endswith(".log")
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await trio.sleep(3600)
        assert tier.log.highest_copied_offset == -1
        assert tier.log.delete_old_segments(NOW_MS) == 0
        assert len(tier.segments) == 1, "an hour of attempts leaves one record"
        assert tier.traffic.failed_copies["orders"] > 50
        tier.store.failing = lambda operation, key: False
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        nursery.cancel_scope.cancel()
    assert all(state is FINISHED for _, _, state in tier.states())


@pytest.mark.feature("TS-05")
async def test_an_answer_of_the_metadata_that_is_lost_does_no_harm(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    lost = [0]

    def fails(record: Any) -> bool:
        lost[0] += 1
        return lost[0] % 2 == 1

    tier.metadata.failing = fails
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1, 1000)
        nursery.cancel_scope.cancel()
    assert len(tier.segments) == len(tier.log.segments) - 1
    assert len(tier.store.objects) == 5 * len(tier.segments)


@pytest.mark.feature("TS-05", "TS-07")
async def test_a_leader_that_is_deposed_in_a_copy_does_not_finish_it(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    deposed = trio.Event()

    def fails(operation: str, key: str) -> bool:
        if operation == "put" and key.endswith(".log") and not deposed.is_set():
            deposed.set()
            tier.follow(2)
        return False

    tier.store.failing = fails
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(deposed.is_set)
        await trio.sleep(100)
        assert [state for _, _, state in tier.states()] == [STARTED]
        assert tier.log.highest_copied_offset == -1
        # The same broker leads again: it copies again, and deletes the rest of the former attempt once it is old.
        tier.lead(3)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        assert len(tier.segments) == len(tier.log.segments)
        await trio.sleep(1200)
        assert len(tier.segments) == len(tier.log.segments) - 1
        nursery.cancel_scope.cancel()
    ids = {key.partition("-0-")[2] for key in tier.store.objects}
    assert len(tier.store.objects) == 5 * len(tier.segments), sorted(ids)


@pytest.mark.feature("TS-05")
async def test_a_follower_learns_what_is_copied(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    tier.follow(2)
    first = tier.log.segments[0]
    end = tier.log.segments[1].base_offset - 1
    segment = RemoteSegment(
        KEY, b"s" * 16, 0, end, first.largest_timestamp(), 2, NOW_MS, first.size_bytes, STARTED, ((1, 0),)
    )
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        tier.metadata.apply(segment)
        await trio.sleep(60)
        assert tier.log.highest_copied_offset == -1
        tier.metadata.apply(SegmentUpdate(KEY, segment.segment_id, NOW_MS, FINISHED, 2))
        await until(lambda: tier.log.highest_copied_offset == end)
        nursery.cancel_scope.cancel()
    assert tier.log.delete_old_segments(NOW_MS) == 1
    assert not tier.store.objects, "a follower copies nothing"


@pytest.mark.feature("TS-04")
async def test_without_the_metadata_topic_nothing_that_is_remote_leaves_the_disk(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        tier.metadata.lost = "it was deleted"
        await until(lambda: tier.log.highest_copied_offset == -1)
        nursery.cancel_scope.cancel()
    assert tier.log.delete_old_segments(NOW_MS) == 0


@pytest.mark.feature("TS-07")
async def test_retention_deletes_remote_segments_after_the_log_start_has_moved(autojump_clock: MockClock) -> None:
    tier = leading(Tier(), retention_ms=-1)
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        tier.log.delete_old_segments(NOW_MS)
        keep = tier.log.segments[-1].size_bytes + 2 * tier.copied()[-1].size_bytes
        tier.configure(retention_bytes=keep)
        await until(lambda: len(tier.segments) == 2)
        nursery.cancel_scope.cancel()
    assert tier.log.log_start_offset == tier.copied()[0].start_offset > 0
    assert tier.passed.index("remote.delete.start_moved") < tier.passed.index("remote.delete.started")
    assert len(tier.store.objects) == 10
    assert tier.traffic.deletions["orders"] > 0


@pytest.mark.feature("TS-07")
async def test_records_that_a_client_deletes_leave_the_store(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        tier.log.delete_old_segments(NOW_MS)
        third = tier.copied()[3]
        assert tier.log.local_log_start_offset > third.start_offset
        tier.partition.delete_records(third.start_offset + 1)
        await until(lambda: third.start_offset == min(each.start_offset for each in tier.segments.all()))
        nursery.cancel_scope.cancel()
    assert tier.log.log_start_offset == third.start_offset + 1, "the segment with the log start stays"


@pytest.mark.feature("TS-01")
async def test_no_more_copies_but_all_reads_after_copy_disable(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        count = len(tier.copied())
        tier.configure(remote_log_copy_disable=True, local_retention_bytes=-2)
        tier.fill(20)
        await trio.sleep(200)
        assert len(tier.copied()) == count
        tier.configure(remote_log_copy_disable=False)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        nursery.cancel_scope.cancel()


@pytest.mark.feature("TS-01", "TS-07")
async def test_switching_tiering_off_deletes_everything_remote(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        tier.log.delete_old_segments(NOW_MS)
        local_start = tier.log.local_log_start_offset
        tier.store.failing = lambda operation, key: operation == "delete"
        tier.configure(remote_storage_enable=False, remote_log_delete_on_disable=True)
        assert tier.log.log_start_offset == local_start > 0
        await trio.sleep(100)
        assert tier.store.objects, "the store is away; the deletion is tried again"
        tier.store.failing = lambda operation, key: False
        await until(lambda: not tier.store.objects)
        await until(lambda: not len(tier.segments))
        nursery.cancel_scope.cancel()


@pytest.mark.feature("TS-07")
async def test_a_deleted_topic_leaves_nothing_even_if_a_copy_was_under_way(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    hold = trio.Event()
    original = tier.store.put

    async def slow_put(key: str, parts: Any, *, if_absent: bool = False) -> None:
        if len(tier.store.objects) == 7:
            await hold.wait()
        await original(key, parts, if_absent=if_absent)

    tier.store.put = slow_put  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.store.objects) == 7)
        tier.tasks.deleted([KEY])
        tier.tasks.follow()
        assert tier.metadata.followed == [KEY]
        await trio.sleep(10)
        assert tier.store.objects, "the copy under way comes first"
        hold.set()
        await until(lambda: not tier.store.objects)
        await until(lambda: not len(tier.segments))
        assert tier.metadata.followed == []
        nursery.cancel_scope.cancel()


@pytest.mark.feature("TS-07")
async def test_the_segments_of_a_deleted_topic_go_even_if_the_broker_ends_before(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    tier.kill_at = "remote.delete.deleted"
    with pytest.raises(BaseExceptionGroup):
        async with trio.open_nursery() as nursery:
            tier.start(nursery)
            await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
            tier.tasks.deleted([KEY])
            await trio.sleep(100)
    assert tier.store.objects
    tier.rig.power_cut()
    again = Tier(rig=tier.rig, store=tier.store, metadata=tier.metadata)
    again.open(small_segments())
    async with trio.open_nursery() as nursery:
        again.start(nursery)
        await until(lambda: not tier.store.objects)
        await until(lambda: not len(again.segments))
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert read_pending(again.rig.disk, "/logs") == []


@pytest.mark.feature("TS-05")
async def test_the_copy_rate_is_limited(autojump_clock: MockClock) -> None:
    tier = leading(Tier(settings={"remote_log_manager_copy_max_bytes_per_second": 200}), 40)
    total = sum(each.size_bytes for each in tier.log.segments[:-1])
    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1, 1000)
        took = trio.current_time() - began
        nursery.cancel_scope.cancel()
    assert total / 200 * 0.6 < took < total / 200 * 2
    assert tier.traffic.throttled_ms > 0


@pytest.mark.feature("TS-05")
async def test_two_leaders_copy_the_same_segment_and_readers_find_each_offset_once(autojump_clock: MockClock) -> None:
    """A deposed leader finishes its copy while the next one copies the same records in segments of its own."""
    tier = leading(Tier())
    bases = [each.base_offset for each in tier.log.segments]
    other = RemoteSegment(KEY, b"o" * 16, 0, bases[2] - 2, NOW_MS, 2, NOW_MS, 900, STARTED, ((1, 0),))
    tier.metadata.apply(other)
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(bases) - 1)
        tier.metadata.apply(SegmentUpdate(KEY, other.segment_id, NOW_MS, FINISHED, 2))
        tier.fill(10)
        await until(lambda: tier.log.highest_copied_offset == tier.log.segments[-1].base_offset - 1)
        nursery.cancel_scope.cancel()
    for offset in range(tier.log.highest_copied_offset + 1):
        found = tier.segments.segment_for(1, offset)
        assert found is not None
        assert found.start_offset <= offset <= found.end_offset


@pytest.mark.feature("TS-07")
async def test_a_copy_that_another_leader_deletes_is_made_again(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    deleted: list[bytes] = []

    def fails(operation: str, key: str) -> bool:
        if operation == "put" and key.endswith(".log") and not deleted:
            (segment,) = tier.segments.all()
            deleted.append(segment.segment_id)
            tier.metadata.apply(SegmentUpdate(KEY, segment.segment_id, NOW_MS, DELETING, 2))
        return False

    tier.store.failing = fails
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert deleted[0] not in {each.segment_id for each in tier.segments.all()}
    assert len(tier.store.objects) == 5 * len(tier.segments)


@pytest.mark.feature("TS-07")
async def test_segments_of_a_lineage_that_an_unclean_election_ended_do_not_count(autojump_clock: MockClock) -> None:
    tier = leading(Tier())
    async with trio.open_nursery() as nursery:
        tier.start(nursery)
        await until(lambda: len(tier.copied()) == len(tier.log.segments) - 1)
        before = tier.log.highest_copied_offset
        # Another leader without the last records takes over; this broker truncates, and leads again.
        tier.follow(2)
        tier.log.truncate_to(before - 3)
        assert tier.log.highest_copied_offset == before - 4
        tier.lead(3)
        tier.fill(20)
        await until(lambda: tier.log.highest_copied_offset == tier.log.segments[-1].base_offset - 1)
        nursery.cancel_scope.cancel()
    for offset in range(tier.log.highest_copied_offset + 1):
        epoch = tier.log.epochs.epoch_for_offset(offset)
        assert tier.segments.segment_for(epoch, offset) is not None, (offset, epoch)


POINTS = [
    "remote.copy.started",
    "remote.copy.stored.index",
    "remote.copy.stored.snapshot",
    "remote.copy.stored.log",
    "remote.copy.stored",
    "remote.copy.finished",
    "remote.delete.start_moved",
    "remote.delete.started",
    "remote.delete.deleted.log",
    "remote.delete.deleted.index",
    "remote.delete.deleted",
    "remote.delete.finished",
]


@pytest.mark.feature("TS-05", "TS-07")
@pytest.mark.parametrize("point", POINTS)
async def test_a_leader_that_dies_anywhere_leaves_work_that_the_next_one_finishes(
    point: str, autojump_clock: MockClock
) -> None:
    tier = leading(Tier(), retention_bytes=4000)
    tier.kill_at = point
    with pytest.raises(BaseExceptionGroup) as died:
        async with trio.open_nursery() as nursery:
            tier.start(nursery)
            await trio.sleep(100)
    assert died.group_contains(NodeKilled)
    again = Tier(rig=tier.rig, store=tier.store, metadata=tier.metadata)
    config, start = tier.log.config, tier.log.log_start_offset
    recovery_point = tier.log.recovery_point
    tier.rig.kill()
    log = again.open(config, recovery_point=recovery_point, log_start_offset=start)
    again.lead(2)
    again.fill(10)
    async with trio.open_nursery() as nursery:
        again.start(nursery)
        await trio.sleep(1500)
        nursery.cancel_scope.cancel()
    assert all(state is FINISHED for _, _, state in again.states()), again.states()
    assert log.highest_copied_offset == log.segments[-1].base_offset - 1
    first = min(each.start_offset for each in again.copied())
    assert log.log_start_offset == first
    ends = {each.end_offset + 1 for each in again.copied()}
    assert {each.start_offset for each in again.copied()} - ends == {first}, "without a hole"
    expected = {key.rpartition(".")[0] for key in again.store.objects}
    assert len(expected) == len(again.copied()), "no object is left that the metadata does not know"
