"""Configuration of a replica of the metadata log: its identity, the addresses of the voters, and Kafka's quorum
settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from barnabas.runtime.security import ChannelSecurity
from barnabas.settings.controller import ControllerSettings

if TYPE_CHECKING:
    from barnabas.settings.node import NodeSettings

FETCH_MAX_WAIT_MS = 700
"""A leader parks a fetch for so long. A little longer than the default of metadata.max.idle.interval.ms, so that in an
idle log a NoOpRecord answers it first."""

_FIRST_BOOTSTRAP_ID = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """A node that is among `voters` votes; any other observes."""

    node_id: int
    cluster_id: str
    directory_id: bytes
    """Id of the metadata log directory."""
    log_directory: str
    """`metadata.log.dir`; the log itself is in `__cluster_metadata-0` there."""
    voters: Mapping[int, NodeAddress] = field(default_factory=dict)
    bootstrap_servers: tuple[NodeAddress, ...] = ()
    """Servers that an observer asks if the configuration names no voters."""
    listener_name: str = "CONTROLLER"
    endpoints: tuple[Endpoint, ...] = ()
    """Listeners of this node as a voter; none of a broker."""
    can_vote: bool = False
    """A controller: it may be among the voters of the log, or be added to them."""
    joins: bool = False
    """A controller that observes asks to become a voter."""
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = FETCH_MAX_WAIT_MS
    fetch_max_bytes: int = 1048576
    fetch_snapshot_max_bytes: int = 1048576
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    snapshot_after_bytes: int = 20971520
    snapshot_interval_ms: int = 3600000
    security: ChannelSecurity | None = None
    """Security of connections to other replicas; None: PLAINTEXT."""

    @property
    def address(self) -> NodeAddress | None:
        """Address of this node as a voter; None for a broker."""
        own = next((endpoint for endpoint in self.endpoints if endpoint.name == self.listener_name), None)
        return self.voters.get(self.node_id) if own is None else NodeAddress(own.host, own.port)

    @property
    def static_voters(self) -> VoterSet:
        """The voters of the configuration, which count while the log has none."""
        return VoterSet.of(
            Voter(ReplicaKey(node_id), (Endpoint(self.listener_name, address.host, address.port),))
            for node_id, address in self.voters.items()
        )

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        """Made-up ids of the bootstrap servers, whose real ones are not known."""
        if self.voters:
            return ()
        return tuple(_FIRST_BOOTSTRAP_ID - index for index in range(len(self.bootstrap_servers)))

    @property
    def addresses(self) -> dict[int, NodeAddress]:
        """All addresses that are known from the start."""
        return dict(self.voters) | dict(zip(self.bootstrap_ids, self.bootstrap_servers, strict=False))


def replica_config(
    settings: NodeSettings,
    cluster_id: str,
    directory_id: bytes,
    log_directory: str,
    security: ChannelSecurity | None,
) -> ReplicaConfig:
    """From the settings of a broker or a controller."""
    is_controller = isinstance(settings, ControllerSettings)
    listeners = (settings.advertised_listeners or settings.listeners) if is_controller else []
    return ReplicaConfig(
        node_id=settings.node_id,
        cluster_id=cluster_id,
        directory_id=directory_id,
        log_directory=log_directory,
        voters={voter.id: NodeAddress(voter.host, voter.port) for voter in settings.controller_quorum_voters},
        bootstrap_servers=tuple(
            NodeAddress(server.host, server.port) for server in settings.controller_quorum_bootstrap_servers
        ),
        listener_name=settings.controller_listener_names[0],
        endpoints=tuple(Endpoint(it.name, it.host, it.port) for it in listeners),
        can_vote=is_controller,
        joins=isinstance(settings, ControllerSettings) and settings.controller_quorum_auto_join_enable,
        election_timeout_ms=settings.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=settings.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=settings.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=settings.controller_quorum_request_timeout_ms,
        retry_backoff_ms=settings.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=settings.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=settings.controller_quorum_fetch_snapshot_max_bytes,
        segment_bytes=settings.metadata_log_segment_bytes,
        segment_ms=settings.metadata_log_segment_ms,
        snapshot_after_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_ms=settings.metadata_log_max_snapshot_interval_ms,
        security=security,
    )
