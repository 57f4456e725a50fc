"""Quotas of the whole cluster on three brokers: a client whose load moves gets its limit once, on a virtual clock."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.runtime.quotas.parts import RESERVE, VALID_WINDOWS
from barnabas.runtime.quotas.source import QuotaType
from tests.broker.apis.rig import Rig, batch_of, on_cluster, produce_request
from tests.broker.apis.test_fetch import in_session, wants
from tests.broker.apis.test_quotas import set_quota

pytestmark = pytest.mark.feature("QU-09")

LIMIT = 10_000
BURST_SECONDS = 10
RECORD_BYTES = 2_000
BASE = RESERVE / 3


class Load:
    """A producer with as many connections as brokers; counts the bytes that it sent."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.sent_bytes = 0

    async def run(self, *brokers: int, seconds: float) -> float:
        """Send to the leaders on these brokers as fast as they take it; returns the rate in bytes a second."""
        before, began = self.sent_bytes, trio.current_time()
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for broker in brokers:
                    nursery.start_soon(self._send, broker)
        return (self.sent_bytes - before) / (trio.current_time() - began)

    async def _send(self, broker: int) -> None:
        channel = self._rig.channel(broker)
        request = produce_request(f"t{broker}", batch_of("x" * RECORD_BYTES))
        while True:
            response: ProduceResponse = await channel.call(request, timeout_ms=60_000, version=9)
            assert response.responses[0].partition_responses[0].error_code == 0
            self.sent_bytes += RECORD_BYTES


async def topics(rig: Rig) -> None:
    """A topic for each broker, which leads it and has no followers."""
    for broker in (1, 2, 3):
        await rig.create(f"t{broker}", replicas=[broker])


def parts(rig: Rig) -> list[float]:
    """The parts that the brokers have of the producer's quota."""
    found = []
    for node in rig.cluster.brokers:
        assert node.broker is not None
        manager = node.broker.quotas.requests.managers[QuotaType.PRODUCE]
        now_ms = node.broker.world.monotonic.now_ms()
        found.append(max((manager.part_of(sensor, now_ms) or 0.0 for sensor in manager.all()), default=BASE))
    return found


@on_cluster(brokers=3, barnabas__quota__scope="cluster")
async def test_a_client_whose_load_moves_keeps_to_one_limit(rig: Rig) -> None:
    await topics(rig)
    await set_quota(rig, "producer_byte_rate", LIMIT)
    load, began = Load(rig), trio.current_time()
    for broker in (1, 2, 3):
        await load.run(broker, seconds=20)
        rate = await load.run(broker, seconds=10)
        assert 0.75 * LIMIT <= rate <= 1.1 * LIMIT, "nearly everything is where the load is"
        assert parts(rig)[broker - 1] == pytest.approx(1 - 2 * BASE)
    taken = trio.current_time() - began
    assert load.sent_bytes <= LIMIT * (taken + 2 * BURST_SECONDS)
    notes = rig.broker(3).decisions.since(0, "client-id story")
    assert any("10000 bytes a second of the whole cluster, of which this broker has" in note.cause for note in notes)
    numbers = {(it.name, labels[1:]): value for it in rig.broker(3).quotas.families() for labels, value in it.samples}
    assert numbers["barnabas_quota_produce_part_ratio", ("story",)] == pytest.approx(1 - 2 * BASE)
    assert numbers["barnabas_quota_parts_valid", ()] == 1


@on_cluster(brokers=3, barnabas__quota__scope="cluster")
async def test_a_client_of_three_brokers_gets_the_limit_of_all_together(rig: Rig) -> None:
    await topics(rig)
    await set_quota(rig, "producer_byte_rate", LIMIT)
    load, began = Load(rig), trio.current_time()
    await load.run(1, 2, 3, seconds=100)
    assert min(parts(rig)) > 0.2 and sum(parts(rig)) <= 1 + 1e-9
    taken = trio.current_time() - began
    assert 0.8 * LIMIT * taken <= load.sent_bytes <= LIMIT * (taken + BURST_SECONDS)


@on_cluster(brokers=3, barnabas__quota__scope="cluster")
async def test_consumers_share_a_limit_over_all_brokers(rig: Rig) -> None:
    """Each reads the same ten records over and over."""
    await topics(rig)
    for broker in (1, 2, 3):
        for _ in range(10):
            await rig.produce(f"t{broker}", batch_of("x" * RECORD_BYTES))
    await set_quota(rig, "consumer_byte_rate", LIMIT)
    read_bytes, began = 0, trio.current_time()

    async def read(broker: int) -> None:
        nonlocal read_bytes
        channel, request = rig.channel(broker), in_session(0, -1, wants(f"t{broker}", (0, 0)))
        while True:
            response: FetchResponse = await channel.call(request, timeout_ms=60_000, version=12)
            read_bytes += sum(len(it.records or b"") for topic in response.responses for it in topic.partitions)

    with trio.move_on_after(80):
        async with trio.open_nursery() as nursery:
            for broker in (1, 2, 3):
                nursery.start_soon(read, broker)
    taken = trio.current_time() - began
    assert 0.6 * LIMIT * taken <= read_bytes <= LIMIT * (taken + BURST_SECONDS)


@on_cluster(brokers=3)
async def test_without_the_setting_each_broker_gives_the_limit(rig: Rig) -> None:
    await topics(rig)
    await set_quota(rig, "producer_byte_rate", LIMIT)
    load = Load(rig)
    await load.run(1, 2, 3, seconds=15)
    assert await load.run(1, 2, 3, seconds=15) > 2 * LIMIT


@on_cluster(brokers=3, barnabas__quota__scope="cluster")
async def test_without_a_controller_each_broker_keeps_to_its_equal_part(rig: Rig) -> None:
    await topics(rig)
    await set_quota(rig, "producer_byte_rate", LIMIT)
    load = Load(rig)
    await load.run(1, seconds=20)
    rig.cluster.kill("controller-101")
    await load.run(1, seconds=VALID_WINDOWS * 2 + 10)
    rate = await load.run(1, seconds=10)
    assert LIMIT / 4 <= rate <= LIMIT / 2, "a third"
    await load.run(1, 2, 3, seconds=15)
    assert await load.run(1, 2, 3, seconds=10) <= 1.1 * LIMIT
    assert parts(rig) == pytest.approx([1 / 3] * 3)
    rig.cluster.start("controller-101")
    await rig.cluster.wait_ready()
    await load.run(2, seconds=20)
    assert await load.run(2, seconds=10) >= 0.75 * LIMIT
