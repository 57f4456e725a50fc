"""Metrics of a replica of the metadata log: a voter's, or a broker's that observes."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.metadata_replica import MetadataReplica
from runtime.metrics import Family

NOBODY = -1


def raft_families(replica: MetadataReplica) -> Iterator[Family]:
    """Nothing before the log was read."""
    if not replica.is_open:
        return
    leader = replica.leader_and_epoch
    leader_id = NOBODY if leader.leader_id is None else leader.leader_id
    role = type(replica.core.role).__name__.lower()
    prefix = "kafka_server_raftmetrics_"
    yield Family.of("gauge", prefix + "current_leader", "Who leads the metadata log; -1: nobody known.", leader_id)
    yield Family.of("gauge", prefix + "current_epoch", "Its epoch.", leader.epoch)
    yield Family.of("gauge", prefix + "high_watermark", "What of the log is committed.", replica.high_watermark)
    yield Family.of("gauge", prefix + "log_end_offset", "Where this replica of it ends.", replica.log_end_offset)
    yield Family("gauge", prefix + "current_state", "1 for the state it is in.", ("state",), [((role,), 1)])
    told = "Records that this node appended as the leader."
    yield Family.of("counter", prefix + "append_records", told, replica.appended_records)
    told = "Records that it fetched from leaders."
    yield Family.of("counter", prefix + "fetch_records", told, replica.fetched_records)
    latest = replica.core.latest_snapshot
    size_bytes = None if latest is None else replica.log.snapshots.size_bytes(latest)
    prefix = "kafka_server_snapshotemitter_"
    told = "Bytes of the newest snapshot; 0 without one."
    yield Family.of("gauge", prefix + "latestsnapshotgeneratedbytes", told, size_bytes or 0)
    told = "Milliseconds since it was made or arrived; since the node started, if none was."
    yield Family.of("gauge", prefix + "latestsnapshotgeneratedagems", told, replica.snapshot_age_ms)
