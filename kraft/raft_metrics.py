"""Metrics of a replica of the metadata log: a voter's, or a broker's that observes."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.runtime.families import Family

NOBODY = -1


def raft_families(replica: MetadataReplica) -> Iterator[Family]:
    """No families before the log was opened."""
    if not replica.is_open:
        return
    leader = replica.leader_and_epoch
    leader_id = NOBODY if leader.leader_id is None else leader.leader_id
    role = type(replica.core.role).__name__.lower()
    prefix = "kafka_server_raftmetrics_"
    help_text = "Node id of the leader of the metadata log; -1 if none is known."
    yield Family.of("gauge", prefix + "current_leader", help_text, leader_id)
    yield Family.of("gauge", prefix + "current_epoch", "Leader epoch of the metadata log.", leader.epoch)
    yield Family.of("gauge", prefix + "high_watermark", "High watermark of the metadata log.", replica.high_watermark)
    yield Family.of("gauge", prefix + "log_end_offset", "Log end offset of this replica.", replica.log_end_offset)
    help_text = "1 for the current role of this replica."
    yield Family("gauge", prefix + "current_state", help_text, ("state",), [((role,), 1)])
    help_text = "Records that this node appended as the leader."
    yield Family.of("counter", prefix + "append_records", help_text, replica.appended_records)
    help_text = "Records that this node fetched from leaders."
    yield Family.of("counter", prefix + "fetch_records", help_text, replica.fetched_records)
    latest = replica.core.latest_snapshot
    size_bytes = None if latest is None else replica.log.snapshots.size_bytes(latest)
    prefix = "kafka_server_snapshotemitter_"
    help_text = "Bytes of the newest snapshot; 0 without one."
    yield Family.of("gauge", prefix + "latestsnapshotgeneratedbytes", help_text, size_bytes or 0)
    help_text = "Milliseconds since that snapshot was written or downloaded; since the node started, without one."
    yield Family.of("gauge", prefix + "latestsnapshotgeneratedagems", help_text, replica.snapshots.age_ms)
