"""Core: the states of all share partitions of one partition of `__share_group_state`, as a `Machine` (KIP-932).

Each write is one record: an update, or after a number of updates a snapshot of the whole. Epochs fence leaders that
were replaced, and states of groups that were deleted and created again. The topic is not compacted: records before the
oldest snapshot that is still needed are deleted, and states that do not change get a new snapshot
now and then, so that they do not hold the others back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, ProducerStamp, Reply, Timers
from barnabas.broker.shares.state import NO_EPOCH, SharePartitionKey, ShareStateChange, ShareStateSummary
from barnabas.broker.shares.stored_state import StoredState, first_record, tombstone
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.share_log import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from barnabas.protocol.schema import Message
from barnabas.settings.broker import BrokerSettings

RECORDS_AT_ONCE = 200
"""Records of one round of snapshots or tombstones; the rest follow in the next."""
NEXT_ROUND_MS = 100

MOST_STORED_BATCHES = 20_000
"""Batches of a state and of a change of it, before they are merged. A leader has at most 10,000 records in flight
(group.share.partition.max.record.locks)."""

_COLD, _PRUNE, _DELETED = "cold", "prune", "deleted"
"""Timers."""


@dataclass(frozen=True, slots=True)
class ShareStateContext:
    timers: Timers
    settings: Callable[[], BrokerSettings]
    image: Callable[[], MetadataImage]
    delete_before: Callable[[int], None]
    """Deletes the records of the log before an offset."""


class ShareStateMachine:
    """Implements `broker.coordinator.outcome.Machine`."""

    def __init__(self, context: ShareStateContext) -> None:
        self._context = context
        self._states: dict[SharePartitionKey, StoredState] = {}
        self._last_tombstone = 0
        """Offset of the newest tombstone."""
        self.deleted_before = 0
        """All records before this offset are to be deleted."""

    @property
    def keys(self) -> Collection[SharePartitionKey]:
        """The share partitions that have a state."""
        return self._states.keys()

    # -- the machine

    def replay(self, key: Message, value: Message | None, producer: ProducerStamp | None, offset: int) -> None:
        if isinstance(key, ShareSnapshotKey):
            place = SharePartitionKey(key.group_id, key.topic_id, key.partition)
            if value is None:
                self._states.pop(place, None)
                self._last_tombstone = offset
            else:
                assert isinstance(value, ShareSnapshotValue)
                self._states.setdefault(place, StoredState()).apply_snapshot(value, offset)
        elif isinstance(key, ShareUpdateKey):
            assert isinstance(value, ShareUpdateValue)
            place = SharePartitionKey(key.group_id, key.topic_id, key.partition)
            self._states.setdefault(place, StoredState(snapshot_at=offset)).apply_update(value)

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        """No transaction writes to this topic."""

    def loaded(self, now: Now) -> Outcome:
        self._schedule_cold(now, self._context.settings().share_coordinator_cold_partition_snapshot_interval_ms)
        self._schedule_prune(now)
        return self._remove_deleted(now)

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        return self._remove_deleted(now) if delta.deleted_topics else Outcome()

    def give_up(self) -> list[Reply]:
        return []

    # -- requests

    def read(self, key: SharePartitionKey, leader_epoch: int, reply: Reply, now: Now) -> Outcome:
        """Answers with a `ShareState`. A newer leader epoch is recorded, which fences earlier leaders. Raises
        KafkaError."""
        stored = self._checked(key, leader_epoch, NO_EPOCH)
        answers = [(reply, stored.state())]
        if leader_epoch in (NO_EPOCH, stored.newest_leader_epoch):
            return Outcome(answers=answers)
        change = ShareStateChange(
            stored.state_epoch, leader_epoch, stored.start_offset, stored.delivery_complete_count
        )
        return Outcome([self._record(key, stored, change, leader_epoch, now)], answers)

    def summary(self, key: SharePartitionKey, reply: Reply, now: Now) -> Outcome:
        """Answers with a `ShareStateSummary`. Raises KafkaError."""
        self._check_partition(key)
        stored = self._states.get(key)
        empty = ShareStateSummary(state_epoch=0, leader_epoch=0, start_offset=-1)
        return Outcome(answers=[(reply, empty if stored is None else stored.summary())])

    def write(self, key: SharePartitionKey, change: ShareStateChange, reply: Reply, now: Now) -> Outcome:
        """Answers with None. Raises KafkaError."""
        stored = self._checked(key, change.leader_epoch, change.state_epoch)
        if len(stored.batches) + len(change.batches) > MOST_STORED_BATCHES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a state must have at most {MOST_STORED_BATCHES} batches")
        for batch in change.batches:
            if not 0 <= batch.first_offset <= batch.last_offset:
                message = f"a batch must have 0 <= first offset <= last offset; got {batch[0]} to {batch[1]}"
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        return Outcome([self._record(key, stored, change, stored.leader_epoch, now)], [(reply, None)])

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, reply: Reply, now: Now
    ) -> Outcome:
        """Answers with None. Raises KafkaError."""
        _check_index(key)
        previous = self._states.get(key)
        if previous is not None and NO_EPOCH != state_epoch < previous.newest_state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_partition(key)
        return Outcome([first_record(key, previous, state_epoch, start_offset, now.wall_ms)], [(reply, None)])

    def delete(self, key: SharePartitionKey, reply: Reply, now: Now) -> Outcome:
        """Answers with None, also if there is no such state. Raises KafkaError."""
        self._check_partition(key)
        return Outcome([tombstone(key)] if key in self._states else [], [(reply, None)])

    # -- checks

    def _checked(self, key: SharePartitionKey, leader_epoch: int, state_epoch: int) -> StoredState:
        """Raises KafkaError."""
        _check_index(key)
        stored = self._states.get(key)
        if stored is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the share partition was never initialized")
        if NO_EPOCH != leader_epoch < stored.newest_leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if NO_EPOCH != state_epoch < stored.newest_state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_partition(key)
        return stored

    def _check_partition(self, key: SharePartitionKey) -> None:
        """Raises KafkaError if the topic has no such partition."""
        _check_index(key)
        topic = self._context.image().topics.by_id.get(key.topic_id)
        if topic is None or key.partition not in topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- records

    def _record(
        self, key: SharePartitionKey, stored: StoredState, change: ShareStateChange, leader_epoch: int, now: Now
    ) -> CoordinatorRecord:
        if stored.updates >= self._context.settings().share_coordinator_snapshot_update_records_per_snapshot:
            return stored.snapshot_record(key, change, leader_epoch, now.wall_ms)
        return stored.update_record(key, change, leader_epoch)

    # -- timers

    def _schedule_cold(self, now: Now, delay_ms: int) -> None:
        self._context.timers.schedule(_COLD, now.monotonic_ms + delay_ms, self._repeat_cold)

    def _repeat_cold(self, now: Now) -> Outcome:
        """Write a new snapshot of each state that has none of the last interval. If all states are like that, nothing
        would be gained."""
        interval_ms = self._context.settings().share_coordinator_cold_partition_snapshot_interval_ms
        records = []
        if any(stored.created_ms == stored.written_ms for stored in self._states.values()):
            for key, stored in self._states.items():
                if now.wall_ms - stored.written_ms >= interval_ms:
                    records.append(stored.repeated_snapshot(key, now.wall_ms))
                    if len(records) == RECORDS_AT_ONCE:
                        break
        self._schedule_cold(now, NEXT_ROUND_MS if len(records) == RECORDS_AT_ONCE else interval_ms)
        return Outcome(records)

    def _schedule_prune(self, now: Now) -> None:
        delay_ms = self._context.settings().share_coordinator_state_topic_prune_interval_ms
        self._context.timers.schedule(_PRUNE, now.monotonic_ms + delay_ms, self._prune)

    def _prune(self, now: Now) -> Outcome:
        """Delete the records before all newest snapshots, once these are replicated."""
        self._schedule_prune(now)
        offset = min((stored.snapshot_at for stored in self._states.values()), default=self._last_tombstone)
        if offset <= self.deleted_before:
            return Outcome()
        self.deleted_before = offset
        return Outcome(committed=partial(self._context.delete_before, offset))

    def _remove_deleted(self, now: Now) -> Outcome:
        """Delete the states of topics that do not exist any more."""
        topics = self._context.image().topics.by_id
        gone = [key for key in self._states if key.topic_id not in topics]
        if len(gone) > RECORDS_AT_ONCE:
            self._context.timers.schedule(_DELETED, now.monotonic_ms + NEXT_ROUND_MS, self._remove_deleted)
        return Outcome([tombstone(key) for key in gone[:RECORDS_AT_ONCE]])


def _check_index(key: SharePartitionKey) -> None:
    """Raises KafkaError."""
    if key.partition < 0:
        message = f"a partition index must be 0 or more; got {key.partition}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
