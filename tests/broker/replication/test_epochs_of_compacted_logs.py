"""A log that was compacted is copied with all epochs that its leader knows, also those that have no batch left."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
import trio.testing

from barnabas.broker.replication.follower import (
    EpochWanted,
    FetchWanted,
    Follower,
)
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.storage.fetched_batches import ANY_EPOCH, EpochsMissing
from tests.broker.replication.shells import ShellBroker, ShellCluster, until
from tests.broker.replication.test_follower import Log
from tests.storage.cleaning_rig import clean, close_segments
from tests.storage.rig import Rig, numbered


def put(leader: ShellBroker, key: str, text: str) -> None:
    buffer = bytearray(build_batch([Record(0, 1_000, key.encode(), text.encode(), ())]))
    leader.partition.append(buffer, [(0, read_header(buffer, 0))], 1)


@pytest.mark.feature("RE-13", "CR-03")
async def test_a_leader_with_a_copy_of_a_compacted_log_cuts_nothing_that_is_committed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Broker 3 begins with an empty disk, after nothing of epoch 1 was left; broker 2 has seen that epoch."""
    async with trio.open_nursery() as nursery:
        cluster = ShellCluster(nursery, tmp_path, random.Random(1), cleanup_policy=("compact",))
        leader, away, copy = (cluster.brokers[node] for node in (1, 2, 3))
        copy.stuck = True
        cluster.elect(1, isr=(1, 2))
        cluster.learn()
        put(leader, "first", "stays")
        put(leader, "key", "old")
        cluster.elect(1, isr=(1, 2))
        cluster.learn()
        put(leader, "key", "newer")
        await until(lambda: away.partition.log.high_watermark == 3)
        away.stuck = True
        cluster.elect(1, isr=(1,))
        leader.learn()
        put(leader, "key", "newest")
        close_segments(leader.partition.log)
        put(leader, "last", "is not in a closed segment")
        clean(leader.partition.log)
        assert [read_header(batch).base_offset for batch in leader.partition.log.batches(0)] == [0, 3, 4]

        copy.stuck = False
        copy.learn()
        await until(lambda: cluster.partitions[0].isr == (1, 3))
        assert copy.partition.log.epochs.entries() == [(1, 0), (2, 2), (3, 3)]
        cluster.elect(3, isr=(1, 3))
        copy.learn()
        leader.learn()
        away.stuck = False
        away.learn()
        await until(lambda: away.partition.log.log_end_offset == 5)
        assert away.partition.log.epochs.entries() == copy.partition.log.epochs.entries()[:3]
        assert b"newer" in cluster.bytes_of(2), "it was committed, and nobody cut it"
        nursery.cancel_scope.cancel()


@pytest.mark.feature("RE-13")
def test_epochs_are_asked_for_from_the_newest_down_to_the_own_one() -> None:
    log = Log((1, 0), end=10)
    leader = Log((1, 0), (4, 10), (6, 25), (8, 40), end=50)
    follower = Follower(log)
    follower.start(8)
    follower.ask_epochs()
    asked = []
    while isinstance(wanted := follower.next(0), EpochWanted):
        asked.append(wanted.epoch)
        follower.epoch_answered(wanted, leader.end_offset_for_epoch(wanted.epoch), 0)
    assert asked == [7, 5, 3]
    assert follower.leaders_epochs == ((4, 10), (6, 25), (8, 40))
    assert wanted == FetchWanted(8, 10, 1, 0)


@pytest.mark.feature("RE-13")
def test_a_leader_that_does_not_know_older_epochs_is_asked_no_further() -> None:
    follower = Follower(Log())
    follower.start(8)
    follower.ask_epochs()
    leader = Log((6, 25), (8, 40), end=50)
    for _ in range(3):
        wanted = follower.next(0)
        assert isinstance(wanted, EpochWanted)
        follower.epoch_answered(wanted, leader.end_offset_for_epoch(wanted.epoch), 0)
    assert isinstance(follower.next(0), FetchWanted)
    assert follower.leaders_epochs == ((6, 25), (8, 40))


@pytest.mark.feature("RE-13")
def test_no_follower_asks_the_first_leader_for_older_epochs() -> None:
    follower = Follower(Log())
    follower.start(0)
    follower.ask_epochs()
    assert follower.leaders_epochs == ((0, 0),)
    assert isinstance(follower.next(0), FetchWanted)


@pytest.mark.feature("RE-13")
@pytest.mark.parametrize("answer", [None, (-1, -1), (9, 10)])
def test_an_error_or_nonsense_is_asked_again_after_a_pause(answer: tuple[int, int] | None) -> None:
    follower = Follower(Log())
    follower.start(8)
    follower.ask_epochs()
    wanted = follower.next(0)
    assert isinstance(wanted, EpochWanted)
    follower.epoch_answered(wanted, answer, 0)
    assert follower.next(0) is None
    assert follower.leaders_epochs is None
    assert isinstance(follower.next(1_000), FetchWanted)


@pytest.mark.feature("RE-13")
def test_epochs_found_are_those_of_one_leader() -> None:
    follower = Follower(Log())
    follower.start(1)
    follower.ask_epochs()
    wanted = follower.next(0)
    assert isinstance(wanted, EpochWanted)
    follower.epoch_answered(wanted, (0, 5), 0)
    assert follower.leaders_epochs == ((0, 0), (1, 5))
    follower.start(2)
    assert follower.leaders_epochs is None


@pytest.mark.feature("RE-13")
def test_a_gap_in_which_epochs_may_have_begun_is_not_appended_before_they_are_known() -> None:
    log = Rig().open()
    fetched = bytearray(numbered(0) + numbered(5, leader_epoch=4))
    with pytest.raises(EpochsMissing):
        log.append_as_follower(fetched, 0, ANY_EPOCH, None)
    assert log.log_end_offset == 0
    log.append_as_follower(fetched, 0, ANY_EPOCH, ((2, 1), (4, 3), (6, 20)))
    assert log.epochs.entries() == [(0, 0), (2, 1), (4, 3)]


@pytest.mark.feature("RE-13")
def test_a_gap_within_one_epoch_hides_none() -> None:
    log = Rig().open()
    log.append_as_follower(bytearray(numbered(0) + numbered(5) + numbered(6, leader_epoch=4)), 0, ANY_EPOCH, None)
    assert log.epochs.entries() == [(0, 0), (4, 6)]


@pytest.mark.feature("RE-13", "ST-10")
def test_recovery_keeps_durable_epochs_that_have_no_batch() -> None:
    """The segment with the recovery point is gone through from its beginning."""
    rig = Rig()
    log = rig.open()
    log.append_as_follower(bytearray(numbered(0) + numbered(5, leader_epoch=4)), 0, ANY_EPOCH, ((2, 1), (4, 3)))
    log.flush()
    log.append_as_follower(bytearray(numbered(6, leader_epoch=5)), 0)
    flushed_to = log.recovery_point
    rig.kill()
    log = rig.open(recovery_point=flushed_to, clean_shutdown=False)
    assert log.epochs.entries() == [(0, 0), (2, 1), (4, 3), (5, 6)]
