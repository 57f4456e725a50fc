"""The replica that a consumer reads from, beside a look at all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replication.replica_selection import ReplicaView, same_rack

RACK = st.sampled_from(["", "a", "b", "c"])
VIEW = st.builds(ReplicaView, st.integers(1, 9), st.none() | RACK, st.integers(0, 3), st.integers(0, 3))


@pytest.mark.feature("RE-15")
@given(RACK, VIEW, st.lists(VIEW, max_size=5, unique_by=lambda view: view.node_id))
def test_nobody_in_the_rack_is_better(rack: str, leader: ReplicaView, followers: list[ReplicaView]) -> None:
    """The longest log, then the least delay, then the highest id; the leader if it is as near, or nobody is."""
    chosen = same_rack(rack, leader, followers)
    near = [view for view in followers if rack and view.rack == rack]
    if leader.rack == rack or not near:
        assert chosen is None
        return
    [best] = [view for view in near if view.node_id == chosen]
    for view in near:
        if view is not best:
            assert view.log_end_offset <= best.log_end_offset
            if view.log_end_offset == best.log_end_offset:
                assert (view.late_ms, -view.node_id) > (best.late_ms, -best.node_id)
