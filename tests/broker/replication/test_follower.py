"""The follower's side: where it cuts, what it asks again, when it waits."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.follower import (
    APPEND,
    BoundsWanted,
    FetchAnswer,
    FetchWanted,
    Follower,
    Step,
    Stopped,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.leader_epochs import LeaderEpochs

AGREED = FetchAnswer(0, -1, -1)


class Log:
    """Only the bounds and epochs of a log."""

    def __init__(self, *epochs: tuple[int, int], end: int = 0, start: int = 0, local_start: int = 0) -> None:
        self.log_start_offset = start
        self.local_log_start_offset = max(start, local_start)
        self.log_end_offset = end
        self.epochs = LeaderEpochs(epochs)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def apply(self, step: Step | None) -> None:
        if isinstance(step, TruncateTo):
            self.log_end_offset = min(self.log_end_offset, step.offset)
            self.epochs.truncate_from_end(step.offset)
        elif isinstance(step, TruncateFullyAndStartAt):
            self.log_start_offset = self.local_log_start_offset = self.log_end_offset = step.offset
            self.epochs.clear()


def error(code: ErrorCode) -> FetchAnswer:
    return FetchAnswer(code, -1, -1)


def fetch(follower: Follower, now_ms: int = 0) -> FetchWanted:
    wanted = follower.next(now_ms)
    assert isinstance(wanted, FetchWanted)
    return wanted


def follow(log: Log, leader_epoch: int = 9) -> Follower:
    follower = Follower(log)
    follower.start(leader_epoch)
    return follower


def reconcile(follower: Follower, log: Log, leader: Log) -> list[Step]:
    """Fetch from `leader` until the logs agree; gives the cuts on the way."""
    cuts: list[Step] = []
    for _ in range(10):
        wanted = fetch(follower)
        epoch, end = leader.end_offset_for_epoch(wanted.last_fetched_epoch)
        agreed = epoch == wanted.last_fetched_epoch and end >= wanted.fetch_offset
        answer = AGREED if agreed or wanted.last_fetched_epoch < 0 else FetchAnswer(0, epoch, end)
        step = follower.answered(wanted, answer, 0)
        if step is APPEND:
            return cuts
        assert step is not None
        cuts.append(step)
        log.apply(step)
        follower.truncated()
    raise AssertionError("they never agree")


@pytest.mark.feature("RE-02")
def test_it_fetches_from_its_end_and_says_its_last_epoch() -> None:
    log = Log((3, 0), (7, 40), end=50, start=10)
    follower = follow(log, 9)
    assert fetch(follower) == FetchWanted(
        leader_epoch=9, fetch_offset=50, last_fetched_epoch=7, log_start_offset=10
    )
    assert follower.answered(fetch(follower), AGREED, 0) is APPEND
    log.log_end_offset = 60
    assert fetch(follower).fetch_offset == 60


class TestWhereItCuts:
    @pytest.mark.feature("RE-13")
    def test_an_uncommitted_tail_of_the_same_epoch_goes(self) -> None:
        """The follower was leader of epoch 3 and wrote 10..20; the new leader has 3 only up to 15."""
        log, leader = Log((3, 0), end=20), Log((3, 0), (4, 15), end=30)
        assert reconcile(follow(log), log, leader) == [TruncateTo(15)]

    @pytest.mark.feature("RE-13")
    def test_kip_101_a_restarted_follower_keeps_what_it_has_above_its_high_watermark(self) -> None:
        """Scenario 1 of KIP-101: its watermark (5) lags behind what was acknowledged (10): nothing is cut."""
        log, leader = Log((0, 0), end=10), Log((0, 0), end=10)
        assert reconcile(follow(log), log, leader) == []
        assert log.log_end_offset == 10

    @pytest.mark.feature("RE-13")
    def test_kip_101_two_that_restarted_with_different_last_batches_converge(self) -> None:
        """Scenario 2 of KIP-101: A lost its tail and leads in epoch 1; B kept a record of epoch 0 at the same
        place."""
        b, a = Log((0, 0), end=2), Log((0, 0), (1, 1), end=2)
        assert reconcile(follow(b), b, a) == [TruncateTo(1)]

    @pytest.mark.feature("RE-13")
    def test_kip_279_chains_of_short_epochs_are_walked_back(self) -> None:
        """Both led in turn and lost: the follower's 2 and 4 are unknown to the leader, whose 1, 3 are to
        it."""
        log = Log((0, 0), (2, 10), (4, 20), end=30)
        leader = Log((0, 0), (1, 8), (3, 15), (5, 25), end=40)
        assert reconcile(follow(log), log, leader) == [TruncateTo(20), TruncateTo(10), TruncateTo(8)]
        assert log.epochs.entries() == [(0, 0)]

    @pytest.mark.feature("RE-13")
    def test_an_epoch_in_which_it_led_and_wrote_nothing_is_forgotten(self) -> None:
        """Its cache ends with (5, 30), and so does its log; the leader never had epoch 5."""
        log, leader = Log((3, 0), (5, 30), end=30), Log((3, 0), (6, 30), end=35)
        assert reconcile(follow(log), log, leader) == [TruncateTo(30)]
        assert log.latest_epoch == 3

    @pytest.mark.feature("RE-13")
    def test_no_common_epoch_at_all_empties_the_log(self) -> None:
        log, leader = Log((4, 20), end=30, start=20), Log((2, 0), (5, 25), end=40)
        assert reconcile(follow(log), log, leader) == [TruncateTo(20)]
        assert log.log_end_offset == 20

    @pytest.mark.feature("RE-13", "RE-16")
    def test_a_divergence_below_its_own_start_throws_all_away(self) -> None:
        log, leader = Log((4, 20), end=30, start=20), Log((4, 0), (5, 12), end=40)
        assert reconcile(follow(log), log, leader) == [TruncateFullyAndStartAt(12)]

    @pytest.mark.feature("RE-13")
    @pytest.mark.parametrize("answer", [FetchAnswer(0, 7, 50), FetchAnswer(0, 7, 99), FetchAnswer(0, 8, 10)])
    def test_an_answer_that_cuts_nothing_is_not_asked_for_again_at_once(self, answer: FetchAnswer) -> None:
        log = Log((7, 0), end=50)
        follower = follow(log)
        assert follower.answered(fetch(follower), answer, 0) is None
        assert follower.next(0) is None
        assert log.log_end_offset == 50

    @pytest.mark.feature("RE-13")
    def test_nothing_is_fetched_while_it_cuts(self) -> None:
        log = Log((3, 0), end=20)
        follower = follow(log)
        assert follower.answered(fetch(follower), FetchAnswer(0, 3, 15), 0) == TruncateTo(15)
        assert follower.next(0) is None


class TestOutOfRange:
    def ask(self, log: Log) -> tuple[Follower, BoundsWanted]:
        follower = follow(log)
        assert follower.answered(fetch(follower), error(ErrorCode.OFFSET_OUT_OF_RANGE), 0) is None
        wanted = follower.next(0)
        assert wanted == BoundsWanted(9)
        return follower, wanted

    @pytest.mark.feature("RE-16")
    def test_below_the_leaders_start_it_restarts_there(self) -> None:
        log = Log((3, 0), end=20)
        follower, wanted = self.ask(log)
        step = follower.bounds_answered(wanted, (100, 150), 0)
        assert step == TruncateFullyAndStartAt(100)
        log.apply(step)
        follower.truncated()
        assert fetch(follower) == FetchWanted(9, 100, -1, 100)

    @pytest.mark.feature("RE-16")
    def test_above_the_leaders_end_it_cuts_to_it(self) -> None:
        """After an unclean election."""
        follower, wanted = self.ask(Log((3, 0), end=20))
        assert follower.bounds_answered(wanted, (0, 12), 0) == TruncateTo(12)

    @pytest.mark.feature("RE-16")
    def test_above_the_leaders_end_and_all_of_it_below_our_start(self) -> None:
        follower, wanted = self.ask(Log((3, 15), end=20, start=15))
        assert follower.bounds_answered(wanted, (0, 12), 0) == TruncateFullyAndStartAt(12)

    @pytest.mark.feature("RE-16")
    def test_if_the_leader_moved_meanwhile_it_just_tries_again(self) -> None:
        follower, wanted = self.ask(Log((3, 0), end=20))
        assert follower.bounds_answered(wanted, (0, 30), 0) is None
        assert follower.next(0) is None
        assert fetch(follower, 1_000).fetch_offset == 20

    def test_bounds_of_an_older_epoch_are_ignored(self) -> None:
        follower, wanted = self.ask(Log((3, 0), end=20))
        follower.start(10)
        assert follower.bounds_answered(wanted, (100, 150), 0) is None
        assert fetch(follower).fetch_offset == 20


class TestErrors:
    @pytest.mark.feature("RE-14")
    def test_pauses_double_up_to_the_bound_and_end_with_success(self) -> None:
        follower = follow(Log())
        now_ms, pauses = 0, []
        for _ in range(8):
            follower.answered(fetch(follower, now_ms), error(ErrorCode.UNKNOWN_LEADER_EPOCH), now_ms)
            retry_at_ms = follower.retry_at_ms
            assert retry_at_ms is not None
            assert follower.next(retry_at_ms - 1) is None
            pauses.append(retry_at_ms - now_ms)
            now_ms = retry_at_ms
        assert pauses == [20, 40, 80, 160, 320, 640, 1000, 1000]
        follower.answered(fetch(follower, now_ms), AGREED, now_ms)
        follower.appended()
        follower.answered(fetch(follower, now_ms), error(ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms)
        assert follower.retry_at_ms == now_ms + 20

    @pytest.mark.feature("RE-14", "OP-06")
    def test_pauses_double_while_what_comes_cannot_be_appended(self) -> None:
        """The disk is full: the leader must not send the same megabyte 50 times in a second."""
        follower = follow(Log())
        now_ms, pauses = 0, []
        for _ in range(8):
            assert follower.answered(fetch(follower, now_ms), AGREED, now_ms) is APPEND
            follower.back_off(now_ms)
            retry_at_ms = follower.retry_at_ms
            assert retry_at_ms is not None
            pauses.append(retry_at_ms - now_ms)
            now_ms = retry_at_ms
        assert pauses == [20, 40, 80, 160, 320, 640, 1000, 1000]

    @pytest.mark.feature("RE-14")
    def test_a_fenced_epoch_waits_for_the_metadata_log(self) -> None:
        follower = follow(Log())
        follower.answered(fetch(follower), error(ErrorCode.FENCED_LEADER_EPOCH), 0)
        assert (follower.state, follower.next(1 << 40)) == (Stopped(), None)
        follower.start(10)
        assert fetch(follower).leader_epoch == 10

    @pytest.mark.feature("RE-14")
    def test_an_answer_from_before_an_epoch_change_is_ignored(self) -> None:
        """Regression 21: also when offset and log are the same."""
        follower = follow(Log((3, 0), end=20))
        old = fetch(follower)
        follower.start(10)
        fetch(follower)
        assert follower.answered(old, AGREED, 0) is None
        assert follower.answered(old, FetchAnswer(0, 3, 5), 0) is None
        assert follower.answered(old, error(ErrorCode.FENCED_LEADER_EPOCH), 0) is None
        assert follower.next(0) == fetch(follower)

    @pytest.mark.feature("RE-14")
    def test_an_answer_from_before_a_truncation_is_ignored(self) -> None:
        """It would not continue the log, or the wrong one."""
        log = Log((3, 0), (7, 15), end=20)
        follower = follow(log)
        old = fetch(follower)
        step = follower.answered(old, FetchAnswer(0, 3, 12), 0)
        assert step == TruncateTo(12)
        assert follower.answered(old, AGREED, 0) is None, "nothing is appended meanwhile"
        log.apply(step)
        follower.truncated()
        assert follower.answered(old, AGREED, 0) is None
        assert follower.answered(old, error(ErrorCode.OFFSET_OUT_OF_RANGE), 0) is None
        new = fetch(follower)
        assert new.fetch_offset == 12
        assert follower.answered(old, AGREED, 0) is None
        assert follower.answered(new, AGREED, 0) is APPEND

    def test_an_unknown_error_code_is_an_error_like_others(self) -> None:
        follower = follow(Log())
        assert follower.answered(fetch(follower), FetchAnswer(4711, -1, -1), 0) is None
        assert follower.retry_at_ms == 20

    def test_it_prints_on_one_line(self) -> None:
        assert follow(Log((3, 0), end=20)).describe() == "Fetching in epoch 9 at 20/3"
