"""One partition as it is read: where its reader is, what waits to be given, and what must be known first. A core.

    INITIALIZING      no position yet; somebody has to seek or to ask for a reset
    AWAIT_RESET       a leader has to say which offset the reset policy means
    AWAIT_VALIDATION  the leader changed; the new one has to say whether its log is the one that was read (KIP-320)
    FETCHING          the position is good: records are fetched and given

Whatever is asked of a broker is a `Flight`. Only the answer of the partition's own flight counts: a seek, or a change
of leaders, takes its flight away, and what comes then is of no interest.
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
from protocol.errors import KafkaError

UNKNOWN = -1
NOBODY = -1


class FetchState(Enum):
    INITIALIZING = "initializing"
    AWAIT_RESET = "await reset"
    AWAIT_VALIDATION = "await validation"
    FETCHING = "fetching"


class Flight:
    """One request that is under way. Flights are told apart by identity."""

    __slots__ = ()


class Truncation(NamedTuple):
    """The log was cut below the position: records that were read are no more."""

    position: FetchPosition
    divergent: FetchPosition | None
    """Where the logs part; None if the leader does not know."""


class Waits(Protocol):
    """Growing waits between attempts."""

    def next_ms(self) -> int: ...
    def reset(self) -> None: ...


class PartitionState:
    """What a reader knows of one partition."""

    def __init__(self, partition: TopicPartition, backoff: Waits) -> None:
        self.partition = partition
        self.state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        """What is given next; None until it is known."""
        self.next = FetchPosition(UNKNOWN)
        """What is fetched next: behind everything that waits."""
        self.waiting: deque[CompletedFetch] = deque()
        """CompletedFetch, and not given yet."""
        self.is_paused = False
        self.reset_to: ResetPolicy | None = None
        self.flight: Flight | None = None
        self.not_before_ms = 0
        """Nothing is asked of brokers before then."""
        self.error: KafkaError | None = None
        """To be told to the application."""
        self.leader = NOBODY
        self.leader_epoch = UNKNOWN
        """Of the leader under which the position is, or is being, validated."""
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self._backoff = backoff
        self._preferred = NOBODY
        self._preferred_until_ms = 0
        self._holds = False

    # ---- moving

    def seek(self, offset: int, epoch: int = UNKNOWN) -> None:
        """Go on from there. With the `epoch` of the record before it the leader is asked first whether its log is
        that one.
        """
        self._move(FetchPosition(offset, epoch))
        if epoch != UNKNOWN:
            self.leader, self.leader_epoch = NOBODY, UNKNOWN

    def settle(self, offset: int, epoch: int, leader_epoch: int) -> None:
        """Go on from where the leader of `leader_epoch` said."""
        self._move(FetchPosition(offset, epoch))
        if leader_epoch != self.leader_epoch:
            self.leader, self.leader_epoch = NOBODY, leader_epoch

    def request_reset(self, policy: ResetPolicy) -> None:
        """The position is no more; `policy` says what it will be."""
        self._move(None)
        self.state, self.reset_to = FetchState.AWAIT_RESET, policy

    def refetch(self) -> None:
        """Forget what waits, and fetch it again."""
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
        """This is who leads now, as far as is known."""
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

    def validated(self, epoch: int, end_offset: int) -> Truncation | None:
        """The leader says where `epoch`, the latest up to ours that its log has, ends: -1, -1 if it has none.

        Gives what was cut if that reaches below the position, which is then still to be validated.
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
        """Take the position as good: the leader says so, or is too old to be asked."""
        self.state, self.flight = FetchState.FETCHING, None
        self._backoff.reset()

    def prefer(self, node_id: int, until_ms: int) -> None:
        """The leader named a replica to read from."""
        if node_id != self._preferred:
            self._preferred, self._preferred_until_ms = node_id, until_ms

    def give_up_preferred(self) -> bool:
        """Read from the leader again; False if it was read from anyhow."""
        had_one = self._preferred != NOBODY
        self._preferred = NOBODY
        return had_one

    def preferred(self, now_ms: int) -> int | None:
        """The replica to read from, if it is not the leader."""
        if self._preferred != NOBODY and now_ms > self._preferred_until_ms:
            self._preferred = NOBODY
        return None if self._preferred == NOBODY else self._preferred

    # ---- asking

    def may_ask(self, now_ms: int) -> bool:
        """Whether nothing is asked already, and it is time to ask."""
        return self.flight is None and self.error is None and now_ms >= self.not_before_ms

    def may_fetch(self, now_ms: int) -> bool:
        if self.state is not FetchState.FETCHING or self.is_paused or not self.may_ask(now_ms):
            return False
        return not self.waiting or (self.waiting[-1].error is None and not self._holds)

    def put_off(self, now_ms: int) -> None:
        """Ask again later; each time in a row a bit later."""
        self.flight = None
        self.not_before_ms = now_ms + self._backoff.next_ms()

    def fail(self, error: KafkaError, now_ms: int) -> None:
        """Tell the application; then try again."""
        self.error = error
        self.put_off(now_ms)

    # ---- records

    @property
    def waiting_bytes(self) -> int:
        """Of what was fetched and is not decoded yet."""
        return sum([fetched.size_bytes for fetched in self.waiting]) if self.waiting else 0

    def arrived(self, fetched: CompletedFetch) -> None:
        """An answer without an error to the fetch from `next`."""
        self._backoff.reset()
        if fetched.error is not None or not fetched.is_empty:
            self.waiting.append(fetched)
            self.next = fetched.end

    def hold_until_given(self) -> None:
        """What comes after that which waits cannot be had; see when it has been given."""
        self._holds = True

    @property
    def can_give(self) -> bool:
        return bool(self.waiting) and self.state is FetchState.FETCHING and not self.is_paused

    def give(self, limit: int, unpacking: Unpacking) -> list[ConsumerRecord]:
        """Up to `limit` records that wait.

        KafkaError if the next one cannot be read. What came broken is fetched again; a record that cannot be
        deserialized, or a batch that came whole and cannot be read, stays the next one.
        """
        given: list[ConsumerRecord] = []
        while self.waiting:
            fetched = self.waiting[0]
            try:
                given += fetched.give(limit - len(given), unpacking)
            except KafkaError as error:
                self._move_on(fetched)
                if given:
                    break  # the next call meets it again
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
        """How many offsets are between the position and the end that is read up to; None if that is not known."""
        end = self.last_stable_offset if committed_only else self.high_watermark
        return None if self.position is None or end == UNKNOWN else max(0, end - self.position.offset)
