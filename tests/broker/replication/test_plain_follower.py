"""A follower beside a plain one: what it asks next, and where it cuts, after the last thing that it got."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.follower import (
    APPEND,
    FIRST_BACKOFF_MS,
    BoundsWanted,
    EpochWanted,
    FetchAnswer,
    FetchWanted,
    Follower,
    StartBehindRemote,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from barnabas.broker.replication.tier_start import RemoteState, StateWanted, TierBounds, TierWanted
from barnabas.protocol.errors import ErrorCode
from tests.broker.replication.test_follower import Log
from tests.examples import examples

LONGEST_BACKOFF_MS = 100
OTHER_ERRORS = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR]
SMALL = st.integers(0, 9)


class Pair:
    """Both. `phase` is a word, and what belongs to it."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.log = Log()
        self.behind = draw(st.booleans())
        self.real = Follower(
            self.log, replica_fetch_backoff_ms=LONGEST_BACKOFF_MS, begins_behind_copied=lambda: self.behind
        )
        self.now_ms = 0
        self.epoch, self.phase, self.failures = -1, ("stopped", None), 0
        self.known: tuple[tuple[int, int], ...] | None = None
        """Epochs of the leader that were asked for."""
        self.asked: FetchWanted | None = None
        """The last fetch in the present run of fetches."""

    # -- what it must want

    def wanted(self) -> Any:
        word, about = self.phase
        if word == "later" and self.now_ms >= about:
            self.phase = ("fetch", None)
            return self.wanted()
        if word == "fetch":
            log = self.log
            self.asked = FetchWanted(self.epoch, log.log_end_offset, log.latest_epoch, log.log_start_offset)
            return self.asked
        if word == "epochs":
            return EpochWanted(self.epoch, about[0] - 1)
        if word == "tier":
            return TierWanted(self.epoch, about)
        if word == "epoch before":
            return EpochWanted(self.epoch, about.start_epoch - 1)
        return {"bounds": BoundsWanted(self.epoch), "state": about}.get(word)

    def look(self) -> None:
        assert self.real.next(self.now_ms) == self.wanted()

    def fails(self) -> None:
        wait_ms = min(FIRST_BACKOFF_MS * 2**self.failures, LONGEST_BACKOFF_MS)
        self.failures += 1
        self.phase = ("later", self.now_ms + wait_ms)

    def fetches(self) -> None:
        self.phase, self.asked = ("fetch", None), None

    # -- what happens

    def start(self) -> None:
        self.epoch += self.draw(st.integers(0 if self.epoch >= 0 else 1, 2))
        self.real.start(self.epoch)
        self.known, self.failures = None, 0
        self.fetches()

    def stop(self) -> None:
        self.real.stop()
        self.phase = ("stopped", None)

    def wait(self) -> None:
        self.now_ms += self.draw(st.sampled_from([1, FIRST_BACKOFF_MS - 1, FIRST_BACKOFF_MS, LONGEST_BACKOFF_MS]))

    def cut(self, step: Any, offset: int) -> None:
        full = offset < self.log.log_start_offset
        assert step == (TruncateFullyAndStartAt(offset) if full else TruncateTo(offset))
        self.carry_out(step)

    def carry_out(self, step: Any) -> None:
        """The log is cut, and meanwhile nothing is asked."""
        self.phase = ("cutting", None)
        self.look()
        if isinstance(step, StartBehindRemote):
            self.log.log_start_offset, self.log.log_end_offset = step.log_start_offset, step.state.next_offset
            self.log.epochs.clear()
        else:
            self.log.apply(step)
        self.real.truncated()
        self.known = None
        self.fetches()

    def answer_fetch(self) -> None:
        """The answer of the leader, or of one before it."""
        if self.draw(st.booleans()):
            self.look()
        asked = self.asked if self.asked is not None else FetchWanted(self.epoch, 0, -1, 0)
        if self.draw(st.integers(0, 5)) == 0:
            asked = asked._replace(fetch_offset=asked.fetch_offset + 1)
        counts = asked == self.asked and self.phase == ("fetch", None) and asked.leader_epoch == self.epoch
        kind = self.draw(st.sampled_from(["records", "records", "diverges", "tiered", "range", "fenced", "other"]))
        if kind == "records":
            step = self.real.answered(asked, FetchAnswer(0, -1, -1), self.now_ms)
            assert step is (APPEND if counts else None)
            if counts:
                self.append()
        elif kind == "diverges":
            epoch, end = self.draw(st.integers(0, 4)), self.draw(SMALL)
            step = self.real.answered(asked, FetchAnswer(0, epoch, end), self.now_ms)
            self.diverges(step, epoch, end) if counts else self.is_nothing(step)
        else:
            codes = {
                "tiered": ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
                "range": ErrorCode.OFFSET_OUT_OF_RANGE,
                "fenced": ErrorCode.FENCED_LEADER_EPOCH,
            }
            code = codes.get(kind) or self.draw(st.sampled_from(OTHER_ERRORS))
            self.is_nothing(self.real.answered(asked, FetchAnswer(code, -1, -1), self.now_ms))
            if counts:
                self.refused(kind)

    def is_nothing(self, step: Any) -> None:
        assert step is None

    def refused(self, kind: str) -> None:
        skips = self.behind and self.log.log_end_offset == 0
        if kind == "tiered":
            self.phase = ("tier", skips)
        elif kind == "range":
            self.phase = ("tier", True) if skips else ("bounds", None)
        elif kind == "fenced":
            self.phase = ("stopped", None)
        else:
            self.fails()

    def append(self) -> None:
        """The fetched records are appended, are damaged, or have a gap in which epochs may have begun."""
        how = self.draw(st.sampled_from(["well", "well", "damaged", "a gap"]))
        if how == "well":
            for _ in range(self.draw(st.integers(0, 3))):
                if self.draw(st.booleans()) and self.log.latest_epoch < self.epoch:
                    self.log.epochs.assign(self.log.latest_epoch + 1, self.log.log_end_offset)
                elif self.log.latest_epoch < 0:
                    self.log.epochs.assign(0, self.log.log_end_offset)
                self.log.log_end_offset += 1
            self.real.appended()
            self.failures = 0
        elif how == "damaged":
            self.real.back_off(self.now_ms)
            self.fails()
        else:
            self.real.ask_epochs()
            if self.epoch == 0:
                self.known = ((0, self.log.log_end_offset),)
                self.fetches()
            else:
                self.phase = ("epochs", (self.epoch, ()))

    def diverges(self, step: Any, epoch: int, end: int) -> None:
        """The leader's epoch up to this log's last one, and its end."""
        own = [entry for entry in self.log.epochs.entries() if entry[0] <= epoch]
        later = [start for found, start in self.log.epochs.entries() if found > epoch]
        first = [start for _, start in self.log.epochs.entries()][:1]
        own_end = later[0] if later else self.log.log_end_offset
        is_known = bool(later) or epoch == self.log.latest_epoch
        agrees = epoch == self.log.latest_epoch and end >= self.log.log_end_offset
        if not is_known or agrees:
            assert step is None
            self.fails()
        elif own and own[-1][0] == epoch:
            self.cut(step, min(own_end, end))
        elif own:
            self.cut(step, own_end)
        else:
            self.cut(step, min(first[0], end))  # older than all of its own

    def answer_bounds(self) -> None:
        epoch = self.epoch - self.draw(st.sampled_from([0, 0, 0, 1]))
        bounds = self.draw(st.none() | st.tuples(SMALL, SMALL))
        step = self.real.bounds_answered(BoundsWanted(epoch), bounds, self.now_ms)
        if self.phase[0] != "bounds" or epoch != self.epoch:
            assert step is None
        elif bounds is not None and bounds[1] < self.log.log_end_offset:
            self.cut(step, bounds[1])
        elif bounds is not None and bounds[0] > self.log.log_end_offset:
            assert step == TruncateFullyAndStartAt(bounds[0])
            self.carry_out(step)
        else:
            assert step is None
            self.fails()

    def answer_epoch(self) -> None:
        word, about = self.phase
        right = {"epochs": lambda: about[0] - 1, "epoch before": lambda: about.start_epoch - 1}
        asked = EpochWanted(self.epoch, right[word]() if word in right else self.draw(st.integers(-1, 3)))
        if self.draw(st.integers(0, 5)) == 0:
            asked = asked._replace(epoch=asked.epoch + 1)
        counts = word in right and asked.epoch == right[word]()
        answer = self.draw(st.none() | st.tuples(st.integers(-1, 4), SMALL))
        self.real.epoch_answered(asked, answer, self.now_ms)
        if not counts:
            return
        if word == "epoch before":
            self.epoch_before(about, answer)
        elif answer is None or not 0 <= answer[0] <= asked.epoch:
            self.fails()
        else:
            self.epoch_found(about, *answer)

    def epoch_found(self, about: Any, epoch: int, end: int) -> None:
        """The epoch before the oldest that is known ends where that one begins."""
        oldest, found = about
        log_end = self.log.log_end_offset
        if found and end >= found[0][1]:
            self.known = found
            self.fetches()
            return
        found = ((oldest, max(end, log_end)), *found)
        if end > log_end and epoch > max(0, self.log.latest_epoch):
            self.phase = ("epochs", (epoch, found))
            return
        if end > log_end and epoch == 0 and self.log.latest_epoch < 0:
            found = ((0, log_end), *found)
        self.known = found
        self.fetches()

    def answer_tier(self) -> None:
        word, about = self.phase
        asked = TierWanted(self.epoch, about if word == "tier" else False)
        if self.draw(st.integers(0, 5)) == 0:
            asked = asked._replace(behind_copied=not asked.behind_copied)
        bounds = self.draw(st.none() | st.builds(TierBounds, SMALL, SMALL, st.integers(-1, 3)))
        step = self.real.tier_answered(asked, bounds, self.now_ms)
        if word != "tier" or asked.behind_copied != about:
            assert step is None
        elif bounds is None:
            self.fails()
        elif bounds.start_offset > bounds.log_start_offset:
            assert step is None
            first = StateWanted(self.epoch, 0, bounds.start_offset - 1, bounds.log_start_offset)
            self.phase = ("epoch before", bounds) if bounds.start_epoch > 0 else ("state", first)
        elif self.log.log_end_offset < bounds.log_start_offset:
            assert step == TruncateFullyAndStartAt(bounds.log_start_offset)
            self.carry_out(step)
        else:
            assert step is None
            self.fails()

    def epoch_before(self, bounds: TierBounds, answer: tuple[int, int] | None) -> None:
        if answer is None:
            self.fails()
            return
        reaches = answer[1] >= bounds.start_offset
        epoch = answer[0] if reaches else bounds.start_epoch
        self.phase = ("state", StateWanted(self.epoch, epoch, bounds.start_offset - 1, bounds.log_start_offset))

    def answer_state(self) -> None:
        word, about = self.phase
        asked = about if word == "state" else StateWanted(self.epoch, 0, 3, 0)
        if self.draw(st.integers(0, 5)) == 0:
            asked = asked._replace(offset=asked.offset + 1)
        built = self.draw(st.none() | st.builds(RemoteState, SMALL, st.just(((0, 0),)), st.just(b"")))
        step = self.real.state_built(asked, built, self.now_ms)
        if word != "state" or asked != about:
            assert step is None
        elif built is None or built.next_offset <= about.offset:
            assert step is None
            self.fails()
        else:
            assert step == StartBehindRemote(about.log_start_offset, built)
            self.carry_out(step)

    # -- answers

    def check(self) -> None:
        self.look()
        self.look()
        word, about = self.phase
        assert self.real.retry_at_ms == (about if word == "later" else None)
        assert (self.real.leader_epoch, self.real.leaders_epochs) == (self.epoch, self.known)


OFTEN = ["start", "wait", "answer_fetch", "answer_fetch", "answer_fetch"]
ANSWERS = ["answer_bounds", "answer_epoch", "answer_epoch", "answer_tier", "answer_tier", "answer_state", "stop"]


@pytest.mark.feature("RE-02", "RE-13", "RE-16", "TS-08")
@settings(max_examples=examples(250))
@given(st.data())
def test_a_follower_asks_as_the_plain_one(data: st.DataObject) -> None:
    pair = Pair(data.draw)
    for _ in range(data.draw(st.integers(4, 30))):
        word = pair.phase[0]
        fitting = {"bounds": "answer_bounds", "epochs": "answer_epoch", "epoch before": "answer_epoch"}
        fitting |= {"tier": "answer_tier", "state": "answer_state"}
        steps = [*OFTEN, *ANSWERS, *[fitting[word]] * 12] if word in fitting else [*OFTEN, *OFTEN, *ANSWERS]
        getattr(pair, data.draw(st.sampled_from(steps)))()
        pair.check()


@pytest.mark.feature("RE-13")
def test_epochs_of_the_leader_are_asked_for_again_after_a_truncation() -> None:
    """They were those from the former end of the log on."""
    log: Any = SimpleNamespace(log_start_offset=0, local_log_start_offset=0, log_end_offset=5, latest_epoch=0)
    log.end_offset_for_epoch = lambda epoch: (0, log.log_end_offset)
    follower = Follower(log)
    follower.start(0)
    follower.ask_epochs()
    assert follower.leaders_epochs == ((0, 5),)
    wanted = follower.next(0)
    assert isinstance(wanted, FetchWanted)
    assert follower.answered(wanted, FetchAnswer(0, 0, 3), 0) == TruncateTo(3)
    log.log_end_offset = 3
    follower.truncated()
    assert follower.leaders_epochs is None
    assert follower.next(0) == FetchWanted(0, 3, 0, 0)
