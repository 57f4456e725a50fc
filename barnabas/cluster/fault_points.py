"""Named places in the code at which a node can be stopped dead, or frozen, by the roles of the nodes that come by.

`World.fault_point(name)` marks each where it is; production code does nothing there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FAULT_POINTS: Mapping[str, Sequence[str]] = {
    "broker": (
        "replica.append.written",
        "replica.fetched.written",
        "replica.high_watermark.moved",
        "replica.leadership.taken",
        "replica.truncated",
        "coordinator.appended",
        "coordinator.loaded",
        "transactions.prepared",
        "transactions.markers.written",
        "cleaner.slice.done",
        "cleaner.log.cleaned",
        "log_dir_move.written",
        "log_dir_move.copied",
        "log_dir_move.accepted",
        "log_dir_move.caught_up",
        "log_dir_move.renamed",
        "log_dir_move.swapped",
        "delayed.delivery.built",
        "delayed.delivery.appended",
        "raft.fetched.written",
        "raft.snapshot.written",
        "raft.snapshot.published",
        "raft.snapshot.downloaded",
    ),
    "controller": (
        "raft.append.written",
        "raft.appends.synced",
        "raft.election.saved",
        "raft.fetched.written",
        "raft.leader_change.written",
        "raft.snapshot.written",
        "raft.snapshot.published",
        "raft.snapshot.downloaded",
    ),
}
"""All that the code has."""

DISK_POINTS: Mapping[str, Sequence[str]] = {
    "broker": (
        "disk.renamed.quorum-state",
        "disk.renamed.replication-offset-checkpoint",
        "disk.renamed.recovery-point-offset-checkpoint",
        "disk.renamed.log-start-offset-checkpoint",
        "disk.renamed.leader-epoch-checkpoint",
        "disk.renamed.topic-id-checkpoint",
        "disk.renamed.partition.metadata",
        "disk.renamed.*.checkpoint",
    ),
    "controller": ("disk.renamed.quorum-state", "disk.renamed.*.checkpoint"),
}
"""Fault points of disks that can be broken: a file was just renamed."""

REMOTE_POINTS: Sequence[str] = (
    "remote.copy.started",
    "remote.copy.stored",
    "remote.copy.finished",
    "remote.delete.start_moved",
    "remote.delete.started",
    "remote.delete.deleted",
    "remote.delete.finished",
)
"""Fault points of brokers with tiered storage. No other broker comes by them."""

RECLEAN_POINTS: Sequence[str] = (
    "remote.reclean.slice",
    "remote.reclean.started",
    "remote.reclean.stored",
    "remote.reclean.finished",
)
"""Fault points of brokers that compact remote segments again."""

_OF_A_SEGMENT = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".leader_epoch_checkpoint")
REMOTE_OBJECT_POINTS: Sequence[str] = tuple(
    point + suffix for point in ("remote.copy.stored", "remote.delete.deleted") for suffix in _OF_A_SEGMENT
)
"""The same, after each object of a segment."""


def all_points() -> tuple[str, ...]:
    """Each once, of all roles and of their disks."""
    tables = (FAULT_POINTS, DISK_POINTS)
    return tuple(dict.fromkeys(point for table in tables for points in table.values() for point in points))
