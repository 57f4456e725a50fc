"""Reassignments under load, with a throttle, and an exact account of records (KIP-73, KIP-455)."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.broker.apis.rig import Rig, batch_of, on_cluster, values_in

TOPIC, BROKER = 2, 4


async def reassign(rig: Rig, replicas: list[int] | None) -> None:
    wanted = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
    answer = await rig.ask(3, AlterPartitionReassignmentsRequest(topics=[wanted], timeout_ms=5000))
    assert answer.error_code == 0 and answer.responses[0].partitions[0].error_code == 0


@pytest.mark.feature("RE-20", "MB-19")
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttle_slows_a_reassignment_and_nothing_else(side: str) -> None:
    @on_cluster(brokers=3)
    async def story(rig: Rig) -> None:
        await rig.create("t", replicas=[1, 2])
        for number in range(100):
            assert (await rig.produce("t", batch_of(f"{number}".ljust(30_000)))).error_code == 0
        throttled = "*" if side == "leader" else "0:3"
        await rig.configure(TOPIC, "t", **{f"{side}_replication_throttled_replicas": throttled})
        for node in (1, 2, 3):
            await rig.configure(BROKER, str(node), **{f"{side}_replication_throttled_rate": "200000"})
        acked: list[str] = []
        began = trio.current_time()
        await reassign(rig, [3, 2])

        async def load() -> None:
            while rig.placed(1, "t").replicas != (3, 2):
                value = f"load-{len(acked)}"
                answer = await rig.produce("t", batch_of(value))
                if answer.error_code == 0:
                    acked.append(value)
                assert 1 not in rig.placed(2, "t").replicas or {1, 2} <= set(rig.placed(2, "t").isr)
                await trio.sleep(0.05)

        with trio.fail_after(60):
            await load()
        took = trio.current_time() - began
        assert 8 < took < 30, "3 MB at 200 kB a second"
        assert len(acked) > 100, "replicas in sync were never held back"
        await rig.until(lambda: rig.leader("t") in (2, 3) and rig.broker(1).partitions.find("t", 0) is None)
        data = await rig.fetch("t", 100, max_bytes=1 << 26, partition_max_bytes=1 << 26)
        assert values_in(data) == acked, "each record once, in order"

    story()


@pytest.mark.feature("RE-20", "MB-19")
@on_cluster(brokers=3)
async def test_a_throttled_reassignment_is_cancelled_or_let_go(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2])
    for number in range(200):
        await rig.produce("t", batch_of(f"{number}".ljust(30_000)))
    await rig.configure(TOPIC, "t", leader_replication_throttled_replicas="*")
    await rig.configure(BROKER, "1", leader_replication_throttled_rate="1")
    await reassign(rig, [3, 2])
    await trio.sleep(20)
    assert rig.placed(1, "t").adding_replicas == (3,) and sorted(rig.placed(1, "t").isr) == [1, 2]
    await reassign(rig, None)
    await rig.until(lambda: sorted(rig.placed(1, "t").replicas) == [1, 2])
    await rig.until(lambda: rig.broker(3).partitions.find("t", 0) is None)
    await reassign(rig, [3, 2])
    await trio.sleep(5)
    assert rig.placed(1, "t").adding_replicas == (3,)
    await rig.configure(TOPIC, "t", leader_replication_throttled_replicas="")
    await rig.until(lambda: rig.placed(1, "t").replicas == (3, 2), 15)
