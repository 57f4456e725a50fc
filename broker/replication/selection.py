"""Core: from which replica a consumer should rather read (KIP-392).

Only the leader is asked, and only replicas in its ISR that have the wanted offset are looked at: a consumer sent to
one that lags would come back for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from settings.broker import LEADER_SELECTOR, RACK_AWARE_SELECTOR


class ReplicaView(NamedTuple):
    """What is known of a replica that a consumer may read from."""

    node_id: int
    rack: str | None
    log_end_offset: int
    late_ms: int
    """How long ago it had all that the leader had."""


Selector = Callable[[str, ReplicaView, Sequence[ReplicaView]], int | None]
"""(the consumer's rack, the leader, its followers) to the follower to read from; None for the leader."""


def same_rack(rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int | None:
    """The leader if it is in the consumer's rack, else the follower there that has come furthest."""
    near = [follower for follower in followers if follower.rack == rack]
    if not rack or leader.rack == rack or not near:
        return None
    return max(near, key=lambda follower: (follower.log_end_offset, -follower.late_ms, follower.node_id)).node_id


SELECTORS: Mapping[str | None, Selector | None] = {None: None, LEADER_SELECTOR: None, RACK_AWARE_SELECTOR: same_rack}
"""By `replica.selector.class`; None where consumers read from leaders."""
