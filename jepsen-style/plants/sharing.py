"""Mistakes of share groups: locks, acknowledgements, delivery counts, and states that are stored."""

from __future__ import annotations

from typing import Any

from barnabas.broker.shares.acquisition import Acquisition
from barnabas.broker.shares.in_flight import Change, InFlight
from barnabas.broker.shares.led_partitions import LedSharePartition, LedSharePartitions
from barnabas.broker.shares.record_state import RecordState
from barnabas.broker.shares.share_partition import SharePartition
from barnabas.broker.shares.state import NO_EPOCH, ShareState, ShareStateChange
from barnabas.broker.shares.state_machine import ShareStateMachine
from barnabas.broker.shares.stored_state import StoredState


def never_expire(_original: Any) -> Any:
    """Acquisition locks have no end."""

    def next_deadline_ms(_self: SharePartition) -> int | None:
        return None

    return next_deadline_ms


def let_others_acknowledge(_original: Any) -> Any:
    """Any member may acknowledge what another one has acquired."""

    def check_owner(*_: object) -> None:
        return None

    return check_owner


def store_no_counts(original: Any) -> Any:
    """Delivery counts are not stored: each state is stored with count 0."""

    async def write(self: Any, key: Any, change: ShareStateChange) -> None:
        batches = tuple(batch._replace(delivery_count=0) for batch in change.batches)
        await original(
            self,
            key,
            ShareStateChange(
                change.state_epoch, change.leader_epoch, change.start_offset, change.delivery_complete_count, batches
            ),
        )

    return write


def answer_before_it_is_stored(original: Any) -> Any:
    """An acknowledgement is confirmed when it is begun, whatever becomes of its state."""

    def store(self: LedSharePartitions, led: LedSharePartition, change: Change, done: Any) -> None:
        if done is not None:
            done(None)
        original(self, led, change, None if done is None else lambda _error: None)

    return store


def fence_no_leaders(original: Any) -> Any:
    """A share coordinator takes the writes of leaders that were replaced."""

    def write(self: ShareStateMachine, key: Any, change: ShareStateChange, *rest: Any) -> Any:
        unfenced = ShareStateChange(
            change.state_epoch, NO_EPOCH, change.start_offset, change.delivery_complete_count, change.batches
        )
        return original(self, key, unfenced, *rest)

    return write


def lead_on(_original: Any) -> Any:
    """A leader of a share partition does not learn that its partition has another leader epoch."""

    def leadership_changed(*_: object) -> None:
        return None

    return leadership_changed


def snapshot_without_a_batch(original: Any) -> Any:
    """A snapshot has all batches but the first."""

    def snapshot_record(self: StoredState, *arguments: Any) -> Any:
        record = original(self, *arguments)
        del record.value.state_batches[:1]
        return record

    return snapshot_record


def release_all_but_the_last(original: Any) -> Any:
    """A member that leaves releases all but its last record."""

    def release(self: SharePartition, member_id: str, terms: Any) -> Any:
        held = [lock for _, _, lock in self._locks if lock.member_id == member_id and lock.held]
        for lock in held:
            lock.last_offset -= 1
            lock.deadline_ms = 1 << 60
        self._locks[:] = [each for each in self._locks if each[2] not in held] + [
            (lock.deadline_ms, number, lock) for number, lock in enumerate(held, 1 << 40)
        ]
        change = yield from original(self, member_id, terms)
        return change

    return release


def forget_what_is_acknowledged(_original: Any) -> Any:
    """A new leader delivers everything from the start offset on, whatever is stored of it."""

    async def read(self: Any, key: Any, leader_epoch: int) -> ShareState:
        state: ShareState = await _original(self, key, leader_epoch)
        return ShareState(state.state_epoch, state.start_offset, ())

    return read


def skip_what_is_acquired(_original: Any) -> Any:
    """The start offset moves over records that members still have."""

    def advance(self: InFlight) -> bool:
        before = self.start_offset
        stays = (RecordState.AVAILABLE,)
        left = (span.first_offset for batch in self.batches for span in batch.spans if span.state in stays)
        self.start_at(next(left, self.end_offset))
        return self.start_offset > before

    return advance


def count_no_deliveries(_original: Any) -> Any:
    """A record is delivered again with the count that it had."""

    def acquire_again(self: Acquisition, batch: Any, base: int) -> None:
        _original(self, batch, base)
        for span in batch.spans:
            if span.delivery_count > 1:
                span.delivery_count -= 1

    return acquire_again
