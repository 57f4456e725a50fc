"""Cancellation at every checkpoint: the client goes on, or ends in time, and leaves no task behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.client.cluster import Cluster
from barnabas.client.metadata import Leadership, TopicPartition
from barnabas.client.session import open_cluster
from barnabas.client.settings import ClientSettings
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.runtime.simulated import Universe, make_world
from barnabas.runtime.world import World
from tests.barnabas.client.cancel_points import Cut, Scene, cancel_each_call, cancel_each_life, tasks_of
from tests.barnabas.client.fake_cluster import FakeCluster

BOOTSTRAP = "b1:9092,b2:9092,b3:9092"
T0 = TopicPartition("t", 0)


@asynccontextmanager
async def brokers(universe: Universe) -> AsyncIterator[World]:
    """Three brokers with the topic `t`; gives a world for clients."""
    fake = FakeCluster(universe)
    fake.create("t", 3)
    async with trio.open_nursery() as nursery:
        fake.start(nursery)
        await trio.sleep(0.1)
        yield make_world("client", universe)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def cluster_of(world: World) -> AsyncIterator[Cluster]:
    settings = ClientSettings.of({"bootstrap_servers": BOOTSTRAP, "allow_auto_create_topics": False})
    async with open_cluster(settings, world) as cluster:
        yield cluster


async def works(cluster: Cluster) -> None:
    assert await cluster.refresh(["t"])
    assert cluster.leadership(T0) == Leadership(1, 0)
    for node_id in (1, 2, 3):
        assert (await cluster.call(node_id, MetadataRequest(topics=[]))).brokers


async def _call_each(cluster: Cluster) -> None:
    await cluster.refresh()
    for node_id in (1, 2, 3):
        await cluster.call(node_id, MetadataRequest(topics=[]), line="x")


async def _unknown(cluster: Cluster) -> None:
    with trio.move_on_after(1):
        await cluster.partitions_count("never", 10_000)


CALLS: dict[str, Callable[[Cluster], Awaitable[object]]] = {
    "refresh": lambda cluster: cluster.refresh(["t"]),
    "partitions_count": lambda cluster: cluster.partitions_count("t", 10_000),
    "partitions_count of a topic that is not there": _unknown,
    "partitions_for": lambda cluster: cluster.partitions_for("t", 10_000),
    "list_topics": lambda cluster: cluster.list_topics(10_000),
    "call_any": lambda cluster: cluster.call_any(MetadataRequest(topics=[])),
    "call": _call_each,
}


@pytest.mark.feature("CL-02")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_the_cluster_is_cancelled(name: str) -> None:
    scene = Scene(brokers, cluster_of, CALLS[name], works)
    assert cancel_each_call(scene) > 1


@pytest.mark.feature("CL-02")
def test_a_clients_life_is_cancelled() -> None:
    assert cancel_each_life(Scene(brokers, cluster_of, works, works)) > 10


# The harness itself


def test_the_harness_sees_what_does_not_work_afterwards() -> None:
    class Fragile:
        broken = False

        async def act(self) -> None:
            self.broken = True
            await trio.sleep(1)
            await trio.sleep(1)
            self.broken = False

        async def works(self) -> None:
            assert not self.broken

    @asynccontextmanager
    async def fragile(world: World) -> AsyncIterator[Fragile]:
        yield Fragile()

    with pytest.raises(AssertionError) as failure:
        cancel_each_call(Scene(brokers, fragile, Fragile.act, Fragile.works))
    assert failure.value.__notes__ == ["seed 1, cancelled at checkpoint 0"]


def test_the_harness_sees_a_client_that_does_not_end() -> None:
    @asynccontextmanager
    async def stubborn(world: World) -> AsyncIterator[None]:
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

    with pytest.raises(AssertionError, match=r"closing took 100\.000 s"):
        cancel_each_call(Scene(brokers, stubborn, lambda _: trio.sleep(1), lambda _: trio.sleep(0)))
    with pytest.raises(AssertionError, match=r"ending took 100\.000 s"):
        cancel_each_life(Scene(brokers, stubborn, lambda _: trio.sleep(1), lambda _: trio.sleep(0)))


def test_the_harness_sees_tasks_that_are_left() -> None:
    async def left_behind() -> None:
        await trio.sleep_forever()

    @asynccontextmanager
    async def place(universe: Universe) -> AsyncIterator[trio.Nursery]:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def leaking(nursery: trio.Nursery) -> AsyncIterator[None]:
        nursery.start_soon(left_behind)
        yield

    code = ("test_cancel_points.py",)
    scene = Scene(place, leaking, lambda _: trio.sleep(1), lambda _: trio.sleep(0), code=code)
    with pytest.raises(AssertionError, match=r"tasks are left: .*left_behind"):
        cancel_each_call(scene)


def test_a_cut_falls_at_its_checkpoint() -> None:
    async def main() -> list[int]:
        passed = []
        for at in range(5):
            count = 0
            with Cut(at) as cut:
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
                    count += 1
            assert cut.ended_by_it == (cut.struck_at is not None) == (count < 3)
            passed.append(count)
        assert not tasks_of(("nowhere",))
        return passed

    assert trio.run(main) == [0, 0, 1, 2, 3]
