"""The identity of a replica of the metadata log, and Kafka's `controller.quorum.*` times."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.kraft.raft.voters import Endpoint, ReplicaKey, Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Handed to `Raft` and to its parts."""

    local: ReplicaKey
    bootstrap_ids: tuple[int, ...] = ()
    """Nodes that an observer asks for the leader; the voters if empty. May hold made-up negative ids of
    addresses."""
    listener_name: str = "CONTROLLER"
    """The listener on which the quorum talks: every voter must have it."""
    endpoints: tuple[Endpoint, ...] = ()
    """Listeners of this node as a voter."""
    kraft_versions: tuple[int, int] = (0, 1)
    """Levels of `kraft.version` that this node can work with."""
    can_vote: bool = False
    """It may become a voter while it observes (controllers): its log is synced as that of a voter."""
    joins: bool = False
    """While it observes, it asks to become a voter by itself (`controller.quorum.auto.join.enable`)."""
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500

    @property
    def local_voter(self) -> Voter:
        """This node in a voter set."""
        return Voter(self.local, self.endpoints, self.kraft_versions)

    @property
    def update_voter_period_ms(self) -> int:
        """A follower compares its entry in the voter set so often."""
        return self.fetch_timeout_ms

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that no majority has fetched from for so long resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def announce_period_ms(self) -> int:
        """A voter that is silent for so long gets another BeginQuorumEpoch."""
        return self.fetch_timeout_ms // 2
