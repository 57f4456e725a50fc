"""Metrics of share groups: acknowledgements, expired locks and records in flight at the leader; written states and
pruning at the share coordinator; groups by state at the group coordinator.
"""

from __future__ import annotations

import pytest
import trio

from barnabas.broker.coordinator_metrics import coordination_families
from barnabas.broker.parts import BrokerParts
from barnabas.broker.shares.lags import ShareLags, share_lag_families
from barnabas.broker.shares.metrics import share_partition_families
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.runtime.request_times import Spread
from tests.broker.apis.rig import Rig, batch_of, on_cluster
from tests.broker.shares.share_rig import ALONE, Member, begin

pytestmark = pytest.mark.feature("OB-02", "OB-03", "CG-17")

ACCEPT, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT
QUICK_PRUNING = {
    "share__coordinator__state__topic__prune__interval__ms": "1000",
    "share__coordinator__snapshot__update__records__per__snapshot": "1",
}


def numbers(node: BrokerParts) -> dict[tuple[str, tuple[str, ...]], float]:
    """By name, without Kafka's prefix, and label values; of a histogram the count."""
    gathered = [lambda: share_partition_families(node.shares.partitions), *coordination_families(node.coordination)]
    return {
        (family.name.removeprefix("kafka_server_"), tuple(labels)): value.count if isinstance(value, Spread) else value
        for families in gathered
        for family in families()
        for labels, value in family.samples
    }


@on_cluster(**ALONE)
async def test_the_leader_counts_acknowledgements_and_expired_locks(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b", "c", "d", "e"))
    node, one = rig.broker(1), Member(rig, "one", topic_id)
    labels = ("work", "orders", "0")
    assert await one.until_taken() == [(0, 4, 1)]
    found = numbers(node)
    assert found["sharegroupmetrics_partitionloadtimems", ()] == 1
    assert found["sharepartitionmetrics_inflightmessagecount", labels] == 5
    assert found["sharepartitionmetrics_inflightbatchcount", labels] == 1
    assert found["sharepartitionmetrics_acquisitionlocktimeout", labels] == 0
    [lag] = await ShareLags(node.shares.partitions, node.world.wall_clock).measure()
    assert (lag.group_id, lag.topic, lag.partition, lag.records) == ("work", "orders", 0, 5)
    assert lag.seconds is not None and lag.seconds >= 0

    assert await one.acknowledged((0, 2, [ACCEPT, ACCEPT, REJECT])) == ErrorCode.NONE
    assert await one.acknowledged((0, 2, [ACCEPT])) == ErrorCode.NONE, "nothing is left to acknowledge there"
    assert await one.acknowledged((9, 9, [ACCEPT])) == ErrorCode.INVALID_REQUEST
    [lag] = await ShareLags(node.shares.partitions, node.world.wall_clock).measure()
    assert lag.records == 2
    assert [family.name for family in share_lag_families([lag])] == [
        "kafka_sharegroup_lag",
        "kafka_sharegroup_lag_seconds",
    ]
    found = numbers(node)
    name = "sharegroupmetrics_recordacknowledgements"
    by_type = {kind: found[name, (kind,)] for kind in ("Accept", "Release", "Reject", "Renew")}
    assert by_type == {"Accept": 2, "Release": 0, "Reject": 1, "Renew": 0}
    assert found["sharepartitionmetrics_inflightmessagecount", labels] == 2

    while not found["sharepartitionmetrics_acquisitionlocktimeout", labels]:
        await trio.sleep(1)
        found = numbers(node)
    assert found["sharepartitionmetrics_acquisitionlocktimeout", labels] == 2


@on_cluster(**ALONE, **QUICK_PRUNING)
async def test_the_share_coordinator_counts_what_it_writes(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    node, one = rig.broker(1), Member(rig, "one", topic_id)
    await one.until_taken()
    prefix = "sharecoordinatormetrics_"
    before = numbers(node)[prefix + "write", ()]
    assert await one.acknowledged((0, 0, [ACCEPT])) == ErrorCode.NONE
    assert await one.acknowledged((1, 1, [ACCEPT])) == ErrorCode.NONE
    found = numbers(node)
    assert found[prefix + "write", ()] - before == 2
    assert found[prefix + "write_latency", ()] == found[prefix + "write", ()]
    assert found[prefix + "num_partitions", ("active",)] == 1
    await trio.sleep(3)  # virtual: the topic is pruned every second
    assert numbers(node)[prefix + "last_pruned_offset", ("__share_group_state", "0")] > 0


@on_cluster(offsets__topic__num__partitions="1", offsets__topic__replication__factor="1", **ALONE)
async def test_the_group_coordinator_counts_groups_and_assignments(rig: Rig) -> None:
    await rig.create("orders")
    beat = ShareGroupHeartbeatRequest(group_id="work", member_id="a", subscribed_topic_names=["orders"])
    await rig.ask(1, FindCoordinatorRequest(coordinator_keys=["work"]), 4)  # creates the topic of groups
    while (await rig.ask(1, beat, 1)).error_code:
        await trio.sleep(0.1)
    prefix = "groupcoordinatormetrics_share_group_"
    assert numbers(rig.broker(1))[prefix + "count", ("Stable",)] == 1
    assert numbers(rig.broker(1))[prefix + "rebalance", ()] >= 1
    leave = ShareGroupHeartbeatRequest(group_id="work", member_id="a", member_epoch=-1)
    assert (await rig.ask(1, leave, 1)).error_code == 0
    assert numbers(rig.broker(1))[prefix + "count", ("Empty",)] == 1
