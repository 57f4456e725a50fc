"""Core: selects the replica from which a consumer should read (KIP-392).

Only the leader selects, and only among in-sync replicas that have the requested offset: a consumer that was sent to a
lagging one would be sent back again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.settings.broker import LEADER_SELECTOR, RACK_AWARE_SELECTOR


class ReplicaView(NamedTuple):
    """A replica that a consumer may read from."""

    node_id: int
    rack: str | None
    log_end_offset: int
    late_ms: int
    """Time since it had all records of the leader."""


Selector = Callable[[str, ReplicaView, Sequence[ReplicaView]], int | None]
"""(the consumer's rack, the leader, its followers) to the follower to read from; None for the leader."""


def same_rack(rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int | None:
    """The leader if it is in the consumer's rack, otherwise the most caught-up follower there."""
    near = [follower for follower in followers if follower.rack == rack]
    if not rack or leader.rack == rack or not near:
        return None
    return max(near, key=lambda follower: (follower.log_end_offset, -follower.late_ms, follower.node_id)).node_id


SELECTORS: Mapping[str | None, Selector | None] = {None: None, LEADER_SELECTOR: None, RACK_AWARE_SELECTOR: same_rack}
"""By `replica.selector.class`; None if consumers read from leaders only."""
