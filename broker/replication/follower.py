"""Core: the next action of a follower for one partition: fetch, truncate, ask for the leader's log bounds, or wait.

A follower fetches from the end of its log and names the epoch of its last record. If the leader's log diverges before
that, the response has no records but the leader's (epoch, end offset) where they may diverge (KIP-595); the follower
truncates, and fetches again, until they agree (KIP-101, KIP-279). A high watermark never decides what is truncated: it
may be older than what was acknowledged.

    Stopped ──start──► Fetching ◄──────────────┐
                        │ diverging, bounds     │ truncated, time has passed, bounds known
                        ├──► Truncating ────────┤
                        ├──► BackingOff ────────┤   any error that may pass
                        ├──► AskingBounds ──────┤   OFFSET_OUT_OF_RANGE
                        ├──► AskingEpochs ──────┤   epochs are missing in what a compacted log has left
                        ├──► AskingTier … ──────┘   OFFSET_MOVED_TO_TIERED_STORAGE, or the logs diverge before what is
                        │                           on this disk: see `tier_start.py`
                        └──► Stopped                FENCED_LEADER_EPOCH: only the metadata log can help

A compacted log may have nothing left of an epoch, or not its beginning. Batches alone then give a follower fewer
epochs, or later ones, than its leader knows, and such a follower, once it leads, makes others truncate committed
records or keep uncommitted ones. So if an epoch changes after a gap, the follower asks the leader where each of its
epochs began, from the newest down to the first one that it has itself, before it appends.

Reads the log's bounds and epochs through `LocalLog`, and never writes it; knows no records and no network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from barnabas.broker.replication.tier_start import (
    AskingTier,
    AskingTierEpoch,
    BuildingState,
    RemoteState,
    StateWanted,
    TierBounds,
    TierWanted,
    state_wanted,
)
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.runtime.backoff import doubled_ms

FIRST_BACKOFF_MS = 20


class LocalLog(Protocol):
    """The part of the partition's log that the state machine reads. `storage.log.PartitionLog` fits."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def local_log_start_offset(self) -> int:
        """The first offset on this broker's disk; what is before it is remote."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """-1 for a log without records."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest own epoch <= `epoch`, its end offset); (-1, -1) if there is none."""


class FetchWanted(NamedTuple):
    """Fetch from here. Also identifies the request: a response is only used for the request it belongs to."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class BoundsWanted(NamedTuple):
    """Ask for the leader's log start offset and log end offset (ListOffsets as a replica)."""

    leader_epoch: int


class EpochWanted(NamedTuple):
    """Ask where the leader's largest epoch up to `epoch` ends (OffsetForLeaderEpoch)."""

    leader_epoch: int
    epoch: int


class FetchAnswer(NamedTuple):
    """The part of a fetch response that decides the next action."""

    error: int
    diverging_epoch: int
    """-1: the logs do not diverge."""
    diverging_end_offset: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records of the response; there may be none. If they are corrupt, call `back_off`."""


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the log to end at `offset`, and remove every epoch that begins there or later; then call `truncated`.

    `offset` may be the log's end: a leader that was deposed before it wrote anything left an epoch there.
    """

    offset: int


@dataclass(frozen=True, slots=True)
class TruncateFullyAndStartAt:
    """Delete the whole log and begin an empty one at `offset`; then call `truncated`."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartBehindRemote:
    """Delete the whole log and begin an empty one with this state, whose first offsets are remote; then call
    `truncated`."""

    log_start_offset: int
    state: RemoteState


Cut = TruncateTo | TruncateFullyAndStartAt | StartBehindRemote
Step = Append | Cut
APPEND = Append()


@dataclass(frozen=True, slots=True)
class Stopped:
    """There is no leader, or one with a newer epoch than this follower knows."""


@dataclass(frozen=True, slots=True)
class Fetching:
    pass


@dataclass(frozen=True, slots=True)
class Truncating:
    """The log is being truncated; nothing may be fetched into it."""


@dataclass(frozen=True, slots=True)
class BackingOff:
    until_ms: int


@dataclass(frozen=True, slots=True)
class AskingBounds:
    """The end of this log is outside the leader's log."""


@dataclass(frozen=True, slots=True)
class AskingEpochs:
    """The start offsets of the leader's epochs after `oldest` are found; its own is not."""

    oldest: int
    found: tuple[tuple[int, int], ...] = ()
    """(epoch, start offset) of the newer epochs, oldest first."""


TierState = AskingTier | AskingTierEpoch | BuildingState
State = Stopped | Fetching | Truncating | BackingOff | AskingBounds | AskingEpochs | TierState
Request = FetchWanted | BoundsWanted | EpochWanted | TierWanted | StateWanted
_STOPPED, _FETCHING, _TRUNCATING, _ASKING_BOUNDS = Stopped(), Fetching(), Truncating(), AskingBounds()


class Follower:
    """The state machine of one partition. Backoffs double from 20 ms up to `replica_fetch_backoff_ms`: the usual error
    is from a leader that will learn of its leadership within milliseconds.
    """

    __slots__ = (
        "_asked",
        "_attempts",
        "_begins_behind_copied",
        "_log",
        "_max_backoff_ms",
        "leader_epoch",
        "leaders_epochs",
        "state",
    )

    def __init__(
        self,
        log: LocalLog,
        *,
        replica_fetch_backoff_ms: int = 1_000,
        begins_behind_copied: Callable[[], bool] = lambda: False,
    ) -> None:
        """`begins_behind_copied`: an empty log is to begin behind everything that is remote, and not where its leader's
        disk begins (KIP-1023)."""
        self._log = log
        self._begins_behind_copied = begins_behind_copied
        self._max_backoff_ms = replica_fetch_backoff_ms
        self._attempts = 0
        self._asked: FetchWanted | None = None
        self.state: State = _STOPPED
        self.leader_epoch = -1
        self.leaders_epochs: tuple[tuple[int, int], ...] | None = None
        """(epoch, start offset) of the leader's epochs that begin at the end of this log or later, oldest first; None
        until they were asked for."""

    def start(self, leader_epoch: int) -> None:
        """Follow the leader of this epoch. Requests of an older epoch are void."""
        self.leader_epoch = leader_epoch
        self.leaders_epochs = None
        self._resume()
        self._attempts = 0

    def log_replaced(self, log: LocalLog) -> None:
        """Go on with another log that has the same records."""
        self._log = log

    def stop(self) -> None:
        """Stop following: there is no leader, or this replica leads."""
        self.state = _STOPPED

    def next(self, now_ms: int) -> Request | None:
        """The next request to the leader. An equal value means that the request did not change."""
        state = self.state
        if isinstance(state, BackingOff) and now_ms >= state.until_ms:
            state = self.state = _FETCHING
        if state is _FETCHING:
            log = self._log
            self._asked = FetchWanted(
                self.leader_epoch, log.log_end_offset, log.latest_epoch, log.log_start_offset
            )
            return self._asked
        if isinstance(state, AskingEpochs):
            return EpochWanted(self.leader_epoch, state.oldest - 1)
        if isinstance(state, AskingTier):
            return TierWanted(self.leader_epoch, state.behind_copied)
        if isinstance(state, AskingTierEpoch):
            return EpochWanted(self.leader_epoch, state.bounds.start_epoch - 1)
        if isinstance(state, BuildingState):
            return state.wanted
        return BoundsWanted(self.leader_epoch) if state is _ASKING_BOUNDS else None

    def answered(self, asked: FetchWanted, answer: FetchAnswer, now_ms: int) -> Step | None:
        """The leader's response to `asked`. Returns what to do with the log, if anything."""
        if asked != self._asked or self.state is not _FETCHING or asked.leader_epoch != self.leader_epoch:
            # Leader, epoch or log changed while the request was under way.
            return None
        error, diverging_epoch, diverging_end_offset = answer
        if error == 0:
            if diverging_epoch < 0:
                return APPEND
            return self._diverged(diverging_epoch, diverging_end_offset, now_ms)
        code = error_code(error)
        skips_copied = self._log.log_end_offset == 0 and self._begins_behind_copied()
        if code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self.state = AskingTier(skips_copied)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.state = AskingTier(True) if skips_copied else _ASKING_BOUNDS
        elif code == ErrorCode.FENCED_LEADER_EPOCH:
            self.stop()
        else:
            self.back_off(now_ms)
        return None

    def bounds_answered(
        self, asked: BoundsWanted, bounds: tuple[int, int] | None, now_ms: int
    ) -> Cut | None:
        """The leader's (log start offset, log end offset); None if it answered with an error."""
        if self.state is not _ASKING_BOUNDS or asked.leader_epoch != self.leader_epoch:
            return None
        if bounds is None:
            self.back_off(now_ms)
            return None
        leader_start, leader_end = bounds
        end = self._log.log_end_offset
        if leader_end < end:
            # An unclean election elected a leader with a shorter log.
            return self._truncate(leader_end)
        if leader_start > end:
            # The leader has deleted records that this replica never fetched.
            self.state = _TRUNCATING
            return TruncateFullyAndStartAt(leader_start)
        self.back_off(now_ms)
        return None

    def ask_epochs(self) -> None:
        """The response has a gap in which epochs may have begun: it is not appended, and fetched again when they are
        known."""
        if self.leader_epoch <= 0:
            # There is no older epoch.
            self.leaders_epochs = ((0, self._log.log_end_offset),)
            self._resume()
        else:
            self.state = AskingEpochs(self.leader_epoch)

    def epoch_answered(self, asked: EpochWanted, answer: tuple[int, int] | None, now_ms: int) -> None:
        """The leader's (largest epoch up to the requested one, its end offset); None if it answered with an error."""
        state = self.state
        if isinstance(state, AskingTierEpoch):
            if asked == (self.leader_epoch, state.bounds.start_epoch - 1):
                self._tier_epoch_answered(state.bounds, answer, now_ms)
            return
        if not isinstance(state, AskingEpochs) or asked != (self.leader_epoch, state.oldest - 1):
            return
        if answer is None or not 0 <= answer[0] <= asked.epoch:
            self.back_off(now_ms)
            return
        # The end of that epoch is the start of the next newer one.
        epoch, start_offset = answer
        end_offset = self._log.log_end_offset
        found = state.found
        # For an epoch older than all its own, the leader returns that epoch, with an end that it returned before.
        is_news = not found or start_offset < found[0][1]
        if is_news:
            found = ((state.oldest, max(start_offset, end_offset)), *found)
        if is_news and start_offset > end_offset and epoch > max(0, self._log.latest_epoch):
            self.state = AskingEpochs(epoch, found)
        else:
            if is_news and start_offset > end_offset and epoch == 0 > self._log.latest_epoch:
                found = ((0, end_offset), *found)
            self.leaders_epochs = found
            self._resume()

    def tier_answered(self, asked: TierWanted, bounds: TierBounds | None, now_ms: int) -> Cut | None:
        """The leader's bounds; None if it answered with an error."""
        state = self.state
        if not isinstance(state, AskingTier) or asked != (self.leader_epoch, state.behind_copied):
            return None
        if bounds is None:
            self.back_off(now_ms)
        elif bounds.start_offset <= bounds.log_start_offset:
            # Nothing is remote.
            if state.diverges or self._log.log_end_offset < bounds.log_start_offset:
                self.state = _TRUNCATING
                return TruncateFullyAndStartAt(bounds.log_start_offset)
            self.back_off(now_ms)
        elif bounds.start_epoch > 0:
            self.state = AskingTierEpoch(bounds)
        else:
            self.state = BuildingState(state_wanted(self.leader_epoch, bounds))
        return None

    def _tier_epoch_answered(self, bounds: TierBounds, answer: tuple[int, int] | None, now_ms: int) -> None:
        if answer is None:
            self.back_off(now_ms)
        else:
            self.state = BuildingState(state_wanted(self.leader_epoch, bounds, answer))

    def state_built(self, asked: StateWanted, built: RemoteState | None, now_ms: int) -> Cut | None:
        """The state at the end of a remote segment; None if it is unavailable now."""
        if not isinstance(self.state, BuildingState) or self.state.wanted != asked:
            return None
        if built is None or built.next_offset <= asked.offset:
            self.back_off(now_ms)
            return None
        self.state = _TRUNCATING
        return StartBehindRemote(asked.log_start_offset, built)

    def appended(self) -> None:
        """The response was appended: the next backoff is the shortest again."""
        self._attempts = 0

    def truncated(self) -> None:
        """The log was truncated: fetch from its new end."""
        self.leaders_epochs = None
        if self.state is _TRUNCATING:
            self._resume()

    def back_off(self, now_ms: int) -> None:
        """Retry later, after an error of the leader or a corrupt batch."""
        backoff_ms = doubled_ms(FIRST_BACKOFF_MS, self._max_backoff_ms, self._attempts)
        self._attempts += 1
        self.state = BackingOff(now_ms + backoff_ms)

    @property
    def retry_at_ms(self) -> int | None:
        """The end of the present backoff; None if there is none."""
        return self.state.until_ms if isinstance(self.state, BackingOff) else None

    def _resume(self) -> None:
        self.state = _FETCHING
        self._asked = None

    def _diverged(self, leader_epoch: int, leader_end_offset: int, now_ms: int) -> Cut | None:
        """The leader's largest epoch up to this log's last one is `leader_epoch`, and ends at `leader_end_offset`."""
        log = self._log
        epoch, end_offset = log.end_offset_for_epoch(leader_epoch)
        if epoch < 0 or (leader_epoch == log.latest_epoch and leader_end_offset >= log.log_end_offset):
            # The logs do not diverge: the leader has this log's last epoch, and all of it.
            self.back_off(now_ms)
            return None
        # If this log never had that epoch, truncate everything newer than the epoch before it, and ask again (KIP-279).
        return self._truncate(min(end_offset, leader_end_offset) if epoch == leader_epoch else end_offset)

    def _truncate(self, offset: int) -> Cut | None:
        log = self._log
        if log.log_start_offset < offset < log.local_log_start_offset:
            # What this log would keep is remote, and so is the knowledge of its producers.
            self.state = AskingTier(behind_copied=False, diverges=True)
            return None
        self.state = _TRUNCATING
        if offset < log.local_log_start_offset:
            return TruncateFullyAndStartAt(offset)
        return TruncateTo(offset)

    def describe(self) -> str:
        """One line: the state and the end of the log."""
        state = type(self.state).__name__
        return f"{state} in epoch {self.leader_epoch} at {self._log.log_end_offset}/{self._log.latest_epoch}"
