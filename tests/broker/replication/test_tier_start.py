"""A follower whose next offset is only remote: what it asks, and where it begins."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.follower import (
    BoundsWanted,
    EpochWanted,
    FetchAnswer,
    FetchWanted,
    Follower,
    StartBehindRemote,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from barnabas.broker.replication.tier_start import (
    RemoteState,
    StateWanted,
    TierBounds,
    TierWanted,
    state_wanted,
)
from barnabas.protocol.errors import ErrorCode
from tests.broker.replication.test_follower import Log, error, fetch, follow

pytestmark = pytest.mark.feature("TS-08")

MOVED = error(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
STATE = RemoteState(40, ((0, 0), (3, 25)), b"snapshot")


def moved(log: Log | None = None, *, behind_copied: bool = False) -> Follower:
    """A follower that has just been answered that its offset is remote."""
    follower = Follower(log or Log(), begins_behind_copied=lambda: behind_copied)
    follower.start(9)
    assert follower.answered(fetch(follower), MOVED, 0) is None
    return follower


def asks(follower: Follower, wanted: object, now_ms: int = 0) -> None:
    assert follower.next(now_ms) == wanted
    assert follower.next(now_ms) == wanted, "the same request until it is answered"


def test_it_asks_for_the_bounds_then_for_the_epoch_before_and_builds_its_state() -> None:
    follower = moved()
    asks(follower, TierWanted(9, behind_copied=False))
    assert follower.tier_answered(TierWanted(9, False), TierBounds(5, 40, 7), 0) is None
    asks(follower, EpochWanted(9, 6))
    follower.epoch_answered(EpochWanted(9, 6), (3, 40), 0)
    wanted = StateWanted(9, 3, 39, 5)
    asks(follower, wanted)
    assert follower.state_built(wanted, STATE, 0) == StartBehindRemote(5, STATE)
    assert follower.next(0) is None, "nothing is fetched before the log has begun again"
    follower.truncated()
    assert isinstance(follower.next(0), FetchWanted)


def test_the_first_epoch_has_none_before_it() -> None:
    follower = moved()
    follower.tier_answered(TierWanted(9, False), TierBounds(0, 40, 0), 0)
    asks(follower, StateWanted(9, 0, 39, 0))


@pytest.mark.parametrize(
    ("before", "epoch"),
    [((6, 40), 6), ((3, 40), 3), ((6, 39), 7), ((6, 12), 7), ((-1, -1), 7)],
)
def test_the_epoch_of_the_offset_before_is_the_one_that_reaches_it(before: tuple[int, int], epoch: int) -> None:
    """KIP-405: epochs without records leave gaps, and the last remote segment may end in the epoch of the start."""
    assert state_wanted(9, TierBounds(5, 40, 7), before) == StateWanted(9, epoch, 39, 5)


def test_each_error_ends_in_a_backoff_and_a_new_fetch() -> None:
    follower = moved()
    follower.tier_answered(TierWanted(9, False), None, 0)
    assert follower.next(0) is None
    assert isinstance(follower.next(20), FetchWanted)

    follower = moved()
    follower.tier_answered(TierWanted(9, False), TierBounds(5, 40, 7), 0)
    follower.epoch_answered(EpochWanted(9, 6), None, 0)
    assert isinstance(follower.next(20), FetchWanted)

    follower = moved()
    follower.tier_answered(TierWanted(9, False), TierBounds(5, 40, 0), 0)
    assert follower.state_built(StateWanted(9, 0, 39, 5), None, 0) is None
    assert follower.next(0) is None
    assert isinstance(follower.next(20), FetchWanted)


def test_a_state_that_ends_before_the_offset_is_not_used() -> None:
    follower = moved()
    follower.tier_answered(TierWanted(9, False), TierBounds(5, 40, 0), 0)
    short = RemoteState(39, (), b"")
    assert follower.state_built(StateWanted(9, 0, 39, 5), short, 0) is None
    assert follower.retry_at_ms is not None


def test_answers_of_an_earlier_leader_are_void() -> None:
    follower = moved()
    follower.start(10)
    fetch(follower)
    assert follower.tier_answered(TierWanted(9, False), TierBounds(5, 40, 7), 0) is None
    assert isinstance(follower.next(0), FetchWanted)

    follower = moved()
    follower.tier_answered(TierWanted(9, False), TierBounds(5, 40, 0), 0)
    follower.start(10)
    assert follower.state_built(StateWanted(9, 0, 39, 5), STATE, 0) is None
    assert isinstance(follower.next(0), FetchWanted)


def test_if_nothing_is_remote_any_longer_the_log_begins_where_the_leaders_does() -> None:
    follower = moved(Log((0, 0), end=10))
    step = follower.tier_answered(TierWanted(9, False), TierBounds(40, 40, 7), 0)
    assert step == TruncateFullyAndStartAt(40)

    follower = moved(Log((0, 0), end=50))
    assert follower.tier_answered(TierWanted(9, False), TierBounds(40, 40, 7), 0) is None
    assert follower.retry_at_ms is not None


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_an_empty_follower_may_begin_behind_all_that_was_copied(code: ErrorCode) -> None:
    follower = Follower(Log(), begins_behind_copied=lambda: True)
    follower.start(9)
    follower.answered(fetch(follower), FetchAnswer(code, -1, -1), 0)
    asks(follower, TierWanted(9, behind_copied=True))


def test_a_follower_with_records_begins_where_the_disk_of_its_leader_does() -> None:
    follower = moved(Log((0, 0), end=10), behind_copied=True)
    asks(follower, TierWanted(9, behind_copied=False))
    follower = follow(Log((0, 0), end=10))
    follower.answered(fetch(follower), error(ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    asks(follower, BoundsWanted(9))


def diverging(leaders_end: int) -> Follower:
    """A follower with offsets from 60 on its disk and those before in the store, whose leader parted from it."""
    follower = Follower(Log((0, 0), (3, 25), end=100, local_start=60))
    follower.start(9)
    assert follower.answered(fetch(follower), FetchAnswer(0, 3, leaders_end), 0) is None
    return follower


def test_a_log_that_diverges_where_it_is_only_remote_begins_where_its_leaders_disk_does() -> None:
    """An unclean election; the producers of what is shared are known in the store alone."""
    follower = diverging(50)
    asks(follower, TierWanted(9, behind_copied=False))
    assert follower.tier_answered(TierWanted(9, False), TierBounds(0, 40, 3), 0) is None
    asks(follower, EpochWanted(9, 2))
    follower.epoch_answered(EpochWanted(9, 2), (0, 25), 0)
    asks(follower, StateWanted(9, 3, 39, 0))
    assert follower.state_built(StateWanted(9, 3, 39, 0), STATE, 0) == StartBehindRemote(0, STATE)


def test_it_fetches_all_again_if_its_leader_has_all_on_its_disk() -> None:
    follower = diverging(50)
    step = follower.tier_answered(TierWanted(9, False), TierBounds(10, 10, 0), 0)
    assert step == TruncateFullyAndStartAt(10)


def test_a_log_that_diverges_on_its_disk_is_cut_there() -> None:
    follower = Follower(Log((0, 0), (3, 25), end=100, local_start=60))
    follower.start(9)
    assert follower.answered(fetch(follower), FetchAnswer(0, 3, 60), 0) == TruncateTo(60)
