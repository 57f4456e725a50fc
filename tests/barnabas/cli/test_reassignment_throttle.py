"""The configs of a throttled reassignment: those that kafka-reassign-partitions.sh sets."""

from __future__ import annotations

import pytest

from barnabas.cli.offset_reset import Partition
from barnabas.cli.reassignment_throttle import throttled_replicas


@pytest.mark.feature("RE-20", "TO-06")
def test_present_replicas_lead_and_new_ones_follow() -> None:
    before = {Partition("t", 0): [1, 2], Partition("t", 1): [2, 3], Partition("u", 0): [1]}
    wanted = {Partition("t", 0): [3, 2], Partition("t", 1): [3, 2], Partition("u", 0): [2, 3]}
    assert throttled_replicas(before, wanted) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        },
        "u": {
            "leader.replication.throttled.replicas": "0:1",
            "follower.replication.throttled.replicas": "0:2,0:3",
        },
    }
