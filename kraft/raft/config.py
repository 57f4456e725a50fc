"""The identity of a replica of the metadata log, and Kafka's `controller.quorum.*` times."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.kraft.raft.voters import ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Handed to `Raft` and to its parts."""

    local: ReplicaKey
    bootstrap_ids: tuple[int, ...] = ()
    """Nodes that an observer asks for the leader; the voters if empty. May hold made-up negative ids of
    addresses."""
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that no majority has fetched from for so long resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def announce_period_ms(self) -> int:
        """A voter that is silent for so long gets another BeginQuorumEpoch."""
        return self.fetch_timeout_ms // 2
