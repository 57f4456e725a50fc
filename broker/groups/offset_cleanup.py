"""Core: removal of expired offsets (KIP-211), of offsets of deleted topics, and of groups that have none left.

A partition may have very many offsets. So a clean-up goes through them in steps of bounded work, and reads the state of
each offset again when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from barnabas.broker.groups.committed_offsets import CommittedOffset, CommittedOffsets, tombstone
from barnabas.broker.groups.decision_notes import note_gone
from barnabas.broker.groups.group import Group, GroupContext, GroupType
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.protocol.messages.group_log import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    OffsetCommitKey,
    StreamsGroupMetadataKey,
)
from barnabas.protocol.primitives import ZERO_UUID

RECORDS_IN_ONE_STEP = 1000
"""Maximum number of tombstones in one batch, well below the batch size limit."""
OFFSETS_IN_ONE_STEP = 2000
"""Maximum number of offsets that one step examines: a few milliseconds."""
STEP_PAUSE_MS = 1
"""Between two steps, so that the event loop runs."""
RETRY_MS = 500
"""Delay before a clean-up starts again whose tombstones could not be written."""

EXPIRY_TIMER = "offsets: expiry"
DELETED_TOPICS_TIMER = "offsets: deleted topics"

_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance"})
"""In these states the members' next subscriptions are unknown."""


class Offsets(Protocol):
    """The offsets of one partition of `__consumer_offsets`, with their groups."""

    committed: CommittedOffsets

    def group(self, group_id: str) -> Group | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _CleanUp:
    """A clean-up in progress."""

    timer: str
    tombstones: Iterator[list[CoordinatorRecord]]
    """For each examined offset, and for each group, the records to write for it, often none."""
    finished: Callable[[], None]


class OffsetCleanUp:
    """The clean-ups of one partition. Each runs in steps on a timer of its own."""

    def __init__(self, context: GroupContext, offsets: Offsets) -> None:
        self._context = context
        self._offsets = offsets
        self._deleted_topics: dict[str, None] = {}
        """Topic names whose offsets without a topic id are to be removed. A dict keeps an order, which a set does not.
        """
        self._current: dict[str, _CleanUp] = {}
        """The newest clean-up by timer; older ones are abandoned."""

    def loaded(self, now: Now) -> None:
        """Start the expiry. Topics may have been deleted while the partition had no leader."""
        self._schedule_expiry(now)
        self._schedule(DELETED_TOPICS_TIMER, self._forget_deleted_topics, now)

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> None:
        if delta.deleted_topics:
            self._deleted_topics.update(dict.fromkeys(topic.name for topic in delta.deleted_topics.values()))
            self._current.pop(DELETED_TOPICS_TIMER, None)
            self._schedule(DELETED_TOPICS_TIMER, self._forget_deleted_topics, now)

    # -- steps

    def _schedule(self, timer: str, operation: Callable[[Now], Outcome], now: Now, delay_ms: int = 0) -> None:
        self._context.timers.schedule(timer, now.monotonic_ms + delay_ms, operation)

    def _begin(self, clean_up: _CleanUp, now: Now) -> Outcome:
        self._current[clean_up.timer] = clean_up
        return self._step(clean_up, now)

    def _go_on(self, clean_up: _CleanUp, again: Callable[[Now], Outcome], now: Now) -> Outcome:
        """Timer: the next step. If its records cannot be written, the clean-up starts again."""
        outcome = self._step(clean_up, now)
        if outcome.records:

            def failed(_: Exception) -> Outcome:
                self._schedule(clean_up.timer, again, now, RETRY_MS)
                return Outcome()

            outcome.failed = failed
        return outcome

    def _step(self, clean_up: _CleanUp, now: Now) -> Outcome:
        outcome = Outcome()
        is_finished = True
        for examined, records in enumerate(clean_up.tombstones, 1):
            outcome.records += records
            if len(outcome.records) >= RECORDS_IN_ONE_STEP or examined >= OFFSETS_IN_ONE_STEP:
                is_finished = False
                break
        self._note(outcome)
        again = self._forget_deleted_topics if clean_up.timer == DELETED_TOPICS_TIMER else self._expire

        def continued() -> None:
            if self._current.get(clean_up.timer) is not clean_up:
                return
            if is_finished:
                del self._current[clean_up.timer]
                clean_up.finished()
            else:
                self._schedule(clean_up.timer, partial(self._go_on, clean_up, again), now, STEP_PAUSE_MS)

        if outcome.records:
            # Not before this batch is committed: a failing write must not cause a busy loop.
            outcome.committed = continued
        else:
            continued()
        return outcome

    def _note(self, outcome: Outcome) -> None:
        for record in outcome.records:
            group_id = _ended_group(record)
            if group_id is not None:
                note_gone(outcome.notes, group_id, "it was empty, and the last of its offsets has expired")

    # -- deleted topics

    def _forget_deleted_topics(self, now: Now) -> Outcome:
        """Timer: tombstones for offsets of deleted topics."""
        clean_up = _CleanUp(DELETED_TOPICS_TIMER, self._of_deleted_topics(), self._deleted_topics.clear)
        return self._begin(clean_up, now)

    def _of_deleted_topics(self) -> Iterator[list[CoordinatorRecord]]:
        committed = self._offsets.committed
        for group_id in committed.groups():
            for topic, partitions in committed.partitions_and_pending(group_id).items():
                for partition in partitions:
                    is_gone = any(self._is_gone(topic, it) for it in committed.versions(group_id, topic, partition))
                    yield [tombstone(group_id, topic, partition)] if is_gone else []

    def _is_gone(self, name: str, committed: CommittedOffset) -> bool:
        image = self._context.image().topics.by_name.get(name)
        if committed.topic_id == ZERO_UUID:
            return image is None or name in self._deleted_topics
        return image is None or image.id != committed.topic_id

    # -- expiry

    def _schedule_expiry(self, now: Now) -> None:
        interval_ms = self._context.settings().offsets_retention_check_interval_ms
        self._schedule(EXPIRY_TIMER, self._expire, now, interval_ms)

    def _expire(self, now: Now) -> Outcome:
        """Timer: tombstones for expired offsets, and for empty groups without offsets."""
        # A write that fails must not end the checks.
        self._schedule_expiry(now)
        clean_up = _CleanUp(EXPIRY_TIMER, self._expired(now), lambda: self._schedule_expiry(now))
        return self._begin(clean_up, now)

    def _expired(self, now: Now) -> Iterator[list[CoordinatorRecord]]:
        """Decides by the time at which the clean-up began."""
        committed = self._offsets.committed
        for group_id in dict.fromkeys([*self._context.groups.ids(), *committed.groups()]):
            for topic, partitions in committed.partitions_of(group_id).items():
                for partition in partitions:
                    is_expired = self._is_expired(group_id, topic, partition, now)
                    self._context.events.expired += is_expired
                    yield [tombstone(group_id, topic, partition)] if is_expired else []
            yield self._ended(group_id, now)

    def _ended(self, group_id: str, now: Now) -> list[CoordinatorRecord]:
        """Tombstones of an empty group that has no offsets, except for those that the same batch removes."""
        committed = self._offsets.committed
        group = self._offsets.group(group_id)
        if group is None or not group.is_empty() or committed.has_open_transaction(group_id):
            return []
        if group.type is GroupType.SHARE:
            # It has no offsets here; its positions are kept at the share coordinators until it is deleted.
            return []
        left = committed.of_group(group_id)
        is_ended = all(self._is_expired(group_id, topic, partition, now) for topic, partition, _ in left)
        return group.tombstones() if is_ended else []

    def _is_expired(self, group_id: str, topic: str, partition: int, now: Now) -> bool:
        group = self._offsets.group(group_id)
        committed = self._offsets.committed.get(group_id, topic, partition)
        if group is None or committed is None or self._offsets.committed.is_pending(group_id, topic, partition):
            return False
        if group.is_empty():
            since_ms = group.empty_since_ms()
        elif group.type is not GroupType.STREAMS and (
            group.protocol_type != "consumer" or group.state_name() in _REBALANCING
        ):
            return False
        else:
            since_ms = None
        if group.is_subscribed_to(topic):
            return False
        if committed.expire_timestamp_ms >= 0:
            return now.wall_ms >= committed.expire_timestamp_ms
        if since_ms is None:
            since_ms = committed.commit_timestamp_ms
        return now.wall_ms - since_ms >= self._context.settings().offsets_retention_minutes * 60_000


def _ended_group(record: CoordinatorRecord) -> str | None:
    """The group that this tombstone removes, if it is the last one of a group."""
    if isinstance(record.key, OffsetCommitKey):
        return None
    if isinstance(record.key, GroupMetadataKey):
        return record.key.group
    if isinstance(record.key, ConsumerGroupMetadataKey | StreamsGroupMetadataKey):
        return record.key.group_id
    return None
