"""An unclean election elects a log that parts from the others at an offset that they have only in the store."""

from __future__ import annotations

import pytest

from tests.broker.remote.test_copies_in_a_cluster import Tiers


async def restart(tiers: Tiers, name: str) -> None:
    await tiers.cluster._cluster.nodes[name].ended.wait()
    tiers.cluster.start(name)


@pytest.mark.feature("TS-08", "TS-07", "RE-13")
@pytest.mark.parametrize("written", [20, 33])
def test_a_follower_that_parts_from_its_leader_in_the_store_knows_the_producers(written: int) -> None:
    tiers = Tiers(seed=written, min_insync_replicas="1")
    nodes = {1: "broker-1", 2: "broker-2", 3: "broker-3"}

    async def test() -> None:
        await tiers.create(replication_factor=2, unclean_leader_election_enable="true", min_insync_replicas="1")
        await tiers.fill(written)
        first = await tiers.cluster.leader_of("t")
        [other] = [nodes[broker] for broker in tiers.logs() if nodes[broker] != first]
        await tiers.until(lambda: {log.log_end_offset for log in tiers.logs().values()} == {written})
        tiers.cluster.kill(other)
        await tiers.fill(60)
        [log] = tiers.logs().values()
        await tiers.until(lambda: log.local_log_start_offset > written + 10)
        tiers.cluster.kill(first)
        await restart(tiers, other)
        await tiers.until(lambda: tiers.cluster._leader("t", 0) == other)
        [leader] = tiers.logs().values()
        assert leader.log_end_offset == written, "it has not seen what the first one wrote later"
        await tiers.fill(3)
        await restart(tiers, first)
        await tiers.until(lambda: [log.log_end_offset for log in tiers.logs().values()] == [written + 3] * 2, 120)
        one, two = tiers.logs().values()
        assert one.producers is not None and two.producers is not None
        assert one.producers.entries.keys() == two.producers.entries.keys()
        assert len(one.producers.entries) == 2, "that of the records before the election, and that after it"
        assert {log.log_start_offset for log in (one, two)} == {0}
        assert await tiers.read() == [*range(written), *range(3)]

    tiers.run(test)
