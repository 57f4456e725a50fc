"""Core: the state of one partition being read: position, waiting batches, and lookups that come first.

    INITIALIZING      no position yet; needs a seek or a reset
    AWAIT_RESET       the leader has to resolve the reset policy to an offset
    AWAIT_VALIDATION  the leader changed; the new one has to confirm that its log has what was read (KIP-320)
    FETCHING          the position is valid: records are fetched and returned

Each request to a broker is a `Flight`. Only the response to the partition's current flight counts: a seek, or a change
of the leader, ends the flight, and a response that comes later is ignored.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.client.consumer.completed_fetch import CompletedFetch, FetchPosition, Unpacking
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.consumer.reset_policy import ResetPolicy
from barnabas.client.errors import RecordDeserializationException, UnreadableBatchException
from barnabas.client.metadata import Leadership, TopicPartition
from barnabas.protocol.errors import KafkaError

UNKNOWN = -1
NOBODY = -1


class FetchState(Enum):
    INITIALIZING = "initializing"
    AWAIT_RESET = "await reset"
    AWAIT_VALIDATION = "await validation"
    FETCHING = "fetching"


class Flight:
    """One request in flight. Flights are compared by identity."""

    __slots__ = ()


class Truncation(NamedTuple):
    """The log was truncated below the position: records that were read no longer exist."""

    position: FetchPosition
    divergent: FetchPosition | None
    """Position at which the logs diverge; None if the leader does not know."""


class Waits(Protocol):
    """A growing backoff."""

    def next_ms(self) -> int: ...
    def reset(self) -> None: ...


class PartitionState:
    """The state of one partition."""

    def __init__(self, partition: TopicPartition, backoff: Waits) -> None:
        self.partition = partition
        self.state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        """Position of the next record to return; None until it is known."""
        self.next = FetchPosition(UNKNOWN)
        """Position of the next fetch: behind all waiting batches."""
        self.waiting: deque[CompletedFetch] = deque()
        """Fetched batches that are not returned yet."""
        self.is_paused = False
        self.reset_to: ResetPolicy | None = None
        self.flight: Flight | None = None
        self.not_before_ms = 0
        """No requests before then."""
        self.error: KafkaError | None = None
        """To be raised in the application."""
        self.leader = NOBODY
        self.leader_epoch = UNKNOWN
        """Epoch of the leader that validates, or has validated, the position."""
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self._backoff = backoff
        self._preferred = NOBODY
        self._preferred_until_ms = 0
        self._holds = False

    # ---- changes of the position

    def seek(self, offset: int, epoch: int = UNKNOWN) -> None:
        """Continue from there. With the `epoch` of the record before it, the leader is asked first whether its log has
        that record.
        """
        self._move(FetchPosition(offset, epoch))
        if epoch != UNKNOWN:
            self.leader, self.leader_epoch = NOBODY, UNKNOWN

    def settle(self, offset: int, epoch: int, leader_epoch: int) -> None:
        """Continue from the offset that the leader of `leader_epoch` returned."""
        self._move(FetchPosition(offset, epoch))
        if leader_epoch != self.leader_epoch:
            self.leader, self.leader_epoch = NOBODY, leader_epoch

    def request_reset(self, policy: ResetPolicy) -> None:
        """Drop the position; `policy` determines the new one."""
        self._move(None)
        self.state, self.reset_to = FetchState.AWAIT_RESET, policy

    def refetch(self) -> None:
        """Drop the waiting batches, and fetch them again."""
        if self.position is not None and self.state in {FetchState.FETCHING, FetchState.AWAIT_VALIDATION}:
            self.waiting.clear()
            self.next, self.flight, self._holds = self.position, None, False

    def _move(self, position: FetchPosition | None) -> None:
        self.state = FetchState.FETCHING
        self.position, self.next = position, position or FetchPosition(UNKNOWN)
        self.waiting.clear()
        self.flight = self.error = self.reset_to = None
        self.not_before_ms, self._holds = 0, False

    # ---- leaders

    def follow(self, leadership: Leadership) -> None:
        """Take over the leader from the metadata."""
        node_id, epoch = leadership.node_id, leadership.epoch
        if epoch == self.leader_epoch and node_id == self.leader:
            return
        same_epoch = epoch == self.leader_epoch
        self.leader, self.leader_epoch = node_id, epoch
        self._preferred = NOBODY
        if self.state in {FetchState.FETCHING, FetchState.AWAIT_VALIDATION}:
            self.flight = None
            if not same_epoch:
                knows = self.next.epoch > UNKNOWN and epoch > UNKNOWN
                self.state = FetchState.AWAIT_VALIDATION if knows else FetchState.FETCHING

    @property
    def is_ahead_of_leader(self) -> bool:
        """The record before the position is of a later epoch than the leader in the metadata, which was deposed: it
        cannot judge the position (KIP-320)."""
        return UNKNOWN < self.leader_epoch < self.next.epoch

    def validated(self, epoch: int, end_offset: int) -> Truncation | None:
        """The leader's end offset of `epoch`, its latest epoch up to ours; -1, -1 if it has none.

        Returns the truncation if it reaches below the position, which then still awaits validation.
        """
        assert self.position is not None
        self.flight = None
        if end_offset < 0 or epoch < 0:
            return Truncation(self.position, None)
        if end_offset < self.position.offset:
            return Truncation(self.position, FetchPosition(end_offset, epoch))
        if end_offset < self.next.offset:
            self.refetch()
        self.cannot_validate()
        return None

    def cannot_validate(self) -> None:
        """Accept the position: the leader has confirmed it, or is too old to be asked."""
        self.state, self.flight = FetchState.FETCHING, None
        self._backoff.reset()

    def prefer(self, node_id: int, until_ms: int) -> None:
        """The leader named a replica to read from."""
        if node_id != self._preferred:
            self._preferred, self._preferred_until_ms = node_id, until_ms

    def give_up_preferred(self) -> bool:
        """Read from the leader again; False if it already did."""
        had_one = self._preferred != NOBODY
        self._preferred = NOBODY
        return had_one

    def preferred(self, now_ms: int) -> int | None:
        """The replica to read from; None for the leader."""
        if self._preferred != NOBODY and now_ms > self._preferred_until_ms:
            self._preferred = NOBODY
        return None if self._preferred == NOBODY else self._preferred

    # ---- requests

    def may_ask(self, now_ms: int) -> bool:
        """Whether no request is in flight, and the backoff is over."""
        return self.flight is None and self.error is None and now_ms >= self.not_before_ms

    def may_fetch(self, now_ms: int) -> bool:
        if self.state is not FetchState.FETCHING or self.is_paused or not self.may_ask(now_ms):
            return False
        return not self.waiting or (self.waiting[-1].error is None and not self._holds)

    def put_off(self, now_ms: int) -> None:
        """Retry later, with a growing backoff."""
        self.flight = None
        self.not_before_ms = now_ms + self._backoff.next_ms()

    def fail(self, error: KafkaError, now_ms: int) -> None:
        """Report the error to the application; then retry."""
        self.error = error
        self.put_off(now_ms)

    # ---- records

    @property
    def waiting_bytes(self) -> int:
        """Size of the fetched batches that are not decoded yet."""
        return sum([fetched.size_bytes for fetched in self.waiting]) if self.waiting else 0

    def arrived(self, fetched: CompletedFetch) -> None:
        """A response without an error to the fetch from `next`."""
        self._backoff.reset()
        if fetched.error is not None or not fetched.is_empty:
            self.waiting.append(fetched)
            self.next = fetched.end

    def hold_until_given(self) -> None:
        """Fetch no further until the waiting batches are returned: the offset behind them is out of range."""
        self._holds = True

    @property
    def can_give(self) -> bool:
        return bool(self.waiting) and self.state is FetchState.FETCHING and not self.is_paused

    def give(self, limit: int, unpacking: Unpacking) -> list[ConsumerRecord]:
        """Up to `limit` of the waiting records.

        KafkaError if the next one cannot be read. Corrupt data is fetched again; a record that cannot be deserialized,
        or an intact batch that cannot be read, stays the next one.
        """
        given: list[ConsumerRecord] = []
        while self.waiting:
            fetched = self.waiting[0]
            try:
                given += fetched.give(limit - len(given), unpacking)
            except KafkaError as error:
                self._move_on(fetched)
                if given:
                    break  # the next call raises it
                if not isinstance(error, (RecordDeserializationException, UnreadableBatchException)):
                    self.refetch()
                raise
            self._move_on(fetched)
            if not fetched.is_empty:
                break
            if fetched.error is not None:
                if given:
                    break
                self.refetch()
                raise fetched.error
            self.waiting.popleft()
        if not self.waiting:
            self._holds = False
        return given

    def _move_on(self, fetched: CompletedFetch) -> None:
        assert self.position is not None
        self.position = max(self.position, fetched.position)

    def lag(self, *, committed_only: bool) -> int | None:
        """Number of offsets between the position and the end that may be read; None if it is unknown."""
        end = self.last_stable_offset if committed_only else self.high_watermark
        return None if self.position is None or end == UNKNOWN else max(0, end - self.position.offset)
