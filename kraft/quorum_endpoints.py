"""Port: the leader and the voters of the metadata quorum with their endpoints, for those who send requests to them.

`MetadataReplica.quorum_endpoints()` is the source: a broker that was given bootstrap servers only learns the leader's
address from the NodeEndpoints of answers (KIP-853), and the voters' from the records of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.kraft.node_address import NodeAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumEndpoints:
    """Leader and voters, as one replica knows them at the moment."""

    leader_id: int | None = None
    epoch: int = 0
    leader: NodeAddress | None = None
    """None if no leader is known."""
    voters: Mapping[int, NodeAddress] = field(default_factory=dict)
    """From the log if `kraft.version` is 1, else from `controller.quorum.voters`; empty if neither names any."""


class QuorumEndpointsSource(Protocol):
    """`MetadataReplica` fits. Ask again before each use: the answer changes with the leader and the log."""

    def quorum_endpoints(self) -> QuorumEndpoints:
        """Leader and voters, as far as they are known now."""
