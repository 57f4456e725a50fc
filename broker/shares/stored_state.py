"""Core: the stored state of one share partition, made from its records: a snapshot and the updates after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.broker.coordinator.outcome import CoordinatorRecord
from barnabas.broker.shares.state import (
    NO_EPOCH,
    UNINITIALIZED_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareState,
    ShareStateChange,
    ShareStateSummary,
    StateBatch,
)
from barnabas.broker.shares.state_batches import merged
from barnabas.protocol.messages import share_log
from barnabas.protocol.messages.share_log import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue


@dataclass(slots=True)
class StoredState:
    """The state of one share partition at the share coordinator."""

    snapshot_epoch: int = 0
    """Number of snapshots that were written before the newest."""
    state_epoch: int = 0
    leader_epoch: int = 0
    """Leader epoch of the newest record."""
    start_offset: int = UNINITIALIZED_OFFSET
    delivery_complete_count: int = UNKNOWN_COUNT
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    """Wall clock time of the last snapshot that a change caused."""
    written_ms: int = 0
    """Wall clock time of the newest snapshot. Later than `created_ms` if the partition was idle."""
    updates: int = 0
    """Update records since the newest snapshot."""
    snapshot_at: int = 0
    """Offset of the newest snapshot in the log: older records of this share partition are not needed."""
    newest_leader_epoch: int = 0
    """Writes of earlier leaders are fenced."""
    newest_state_epoch: int = 0

    # -- replay

    def apply_snapshot(self, value: ShareSnapshotValue, offset: int) -> None:
        self.snapshot_epoch = value.snapshot_epoch
        self.state_epoch = value.state_epoch
        self.leader_epoch = value.leader_epoch
        self.start_offset = value.start_offset
        self.delivery_complete_count = value.delivery_complete_count
        self.batches = merged((), from_messages(value.state_batches), UNINITIALIZED_OFFSET)
        self.created_ms = value.create_timestamp
        self.written_ms = value.write_timestamp
        self.updates = 0
        self.snapshot_at = offset
        self.newest_leader_epoch = max(self.newest_leader_epoch, value.leader_epoch)
        self.newest_state_epoch = max(self.newest_state_epoch, value.state_epoch)

    def apply_update(self, value: ShareUpdateValue) -> None:
        if value.start_offset != UNINITIALIZED_OFFSET:
            self.start_offset = value.start_offset
        if value.leader_epoch != NO_EPOCH:
            self.leader_epoch = value.leader_epoch
        self.delivery_complete_count = value.delivery_complete_count
        self.batches = merged(self.batches, from_messages(value.state_batches), self.start_offset)
        self.updates += 1
        self.newest_leader_epoch = max(self.newest_leader_epoch, value.leader_epoch)

    # -- what readers get

    def state(self) -> ShareState:
        return ShareState(self.state_epoch, self.start_offset, self.batches)

    def summary(self) -> ShareStateSummary:
        return ShareStateSummary(self.state_epoch, self.leader_epoch, self.start_offset, self.delivery_complete_count)

    # -- records

    def update_record(self, key: SharePartitionKey, change: ShareStateChange, leader_epoch: int) -> CoordinatorRecord:
        value = ShareUpdateValue(
            snapshot_epoch=self.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=_to_messages(merged((), change.batches, change.start_offset)),
        )
        return CoordinatorRecord(ShareUpdateKey(group_id=key[0], topic_id=key[1], partition=key[2]), value)

    def snapshot_record(
        self, key: SharePartitionKey, change: ShareStateChange, leader_epoch: int, now_ms: int
    ) -> CoordinatorRecord:
        """The whole state after `change`."""
        start_offset = self.start_offset if change.start_offset == UNINITIALIZED_OFFSET else change.start_offset
        value = ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=change.delivery_complete_count,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            state_batches=_to_messages(merged(self.batches, change.batches, start_offset)),
        )
        return CoordinatorRecord(_snapshot_key(key), value)

    def repeated_snapshot(self, key: SharePartitionKey, now_ms: int) -> CoordinatorRecord:
        """The same state again, so that the records before it can be deleted."""
        value = ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_timestamp=self.created_ms,
            write_timestamp=now_ms,
            state_batches=_to_messages(self.batches),
        )
        return CoordinatorRecord(_snapshot_key(key), value)


def first_record(
    key: SharePartitionKey, previous: StoredState | None, state_epoch: int, start_offset: int, now_ms: int
) -> CoordinatorRecord:
    """The snapshot that begins a state; nothing of the previous one stays."""
    value = ShareSnapshotValue(
        snapshot_epoch=0 if previous is None else previous.snapshot_epoch + 1,
        state_epoch=state_epoch,
        start_offset=start_offset,
        # Lag is unknown until the leader chooses the start offset.
        delivery_complete_count=UNKNOWN_COUNT if start_offset == UNINITIALIZED_OFFSET else 0,
        create_timestamp=now_ms,
        write_timestamp=now_ms,
    )
    return CoordinatorRecord(_snapshot_key(key), value)


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    return CoordinatorRecord(_snapshot_key(key), None)


def from_messages(batches: Iterable[share_log.StateBatch]) -> list[StateBatch]:
    return [StateBatch(it.first_offset, it.last_offset, it.delivery_state, it.delivery_count) for it in batches]


def _to_messages(batches: Iterable[StateBatch]) -> list[share_log.StateBatch]:
    return [
        share_log.StateBatch(
            first_offset=it.first_offset,
            last_offset=it.last_offset,
            delivery_state=it.state,
            delivery_count=it.delivery_count,
        )
        for it in batches
    ]


def _snapshot_key(key: SharePartitionKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
