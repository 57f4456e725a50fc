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
