"""`barnabas_simulated_cluster`, as users' tests have it: six nodes in this process, under virtual time."""

from __future__ import annotations

import time

import pytest
import trio

from barnabas import Producer
from barnabas.cluster.errors import ClusterError
from barnabas.runtime.simulated.determinism import RealWorldTouched
from barnabas.testing.simulated import SimulatedClusterForTests

Cluster = SimulatedClusterForTests


async def test_it_takes_writes_at_once(barnabas_simulated_cluster: Cluster) -> None:
    cluster = barnabas_simulated_cluster
    assert cluster.brokers == ["broker-1", "broker-2", "broker-3"]
    assert cluster.controllers == ["controller-101", "controller-102", "controller-103"]
    assert cluster.bootstrap_servers == "broker-1:9092,broker-2:9092,broker-3:9092"
    assert await cluster.create_topic("t", partitions=3) == "t"
    assert await cluster.leader_of("t", 2) in cluster.brokers
    assert await cluster.active_controller() in cluster.controllers


async def test_a_killed_leader_is_replaced(barnabas_simulated_cluster: Cluster) -> None:
    cluster = barnabas_simulated_cluster
    await cluster.create_topic("t")
    leader = await cluster.leader_of("t")
    cluster.kill(leader)
    assert await cluster.leader_of("t", other_than=leader) != leader
    cluster.start(leader)
    await cluster.wait_ready()


async def test_a_paused_or_cut_off_leader_is_replaced(barnabas_simulated_cluster: Cluster) -> None:
    cluster = barnabas_simulated_cluster
    await cluster.create_topic("t")
    for take_away, give_back in (
        (cluster.pause, cluster.resume),
        (lambda name: cluster.partition([name]), lambda _: cluster.heal()),
    ):
        leader = await cluster.leader_of("t")
        take_away(leader)
        began = trio.current_time()
        assert await cluster.leader_of("t", other_than=leader) != leader
        assert trio.current_time() - began > 5, "silence is no evidence: its session had to end"
        give_back(leader)
        await cluster.wait_ready()
        await trio.sleep(5)


async def test_the_active_controller_may_go(barnabas_simulated_cluster: Cluster) -> None:
    cluster = barnabas_simulated_cluster
    active = await cluster.active_controller()
    await cluster.stop(active)
    await cluster.create_topic("t")
    assert await cluster.active_controller(other_than=active) != active
    cluster.power_cut(await cluster.leader_of("t"))
    cluster.start(active)


@pytest.mark.barnabas_simulated(seed=7, settings={"num.partitions": "4"})
async def test_seed_and_settings_can_be_chosen(barnabas_simulated_cluster: Cluster) -> None:
    cluster = barnabas_simulated_cluster
    assert cluster.seed == 7
    await cluster.create_topic("t", partitions=-1)
    assert await cluster.leader_of("t", 3)


async def test_a_clock_is_wrong_and_a_disk_is_full(barnabas_simulated_cluster: Cluster) -> None:
    cluster = barnabas_simulated_cluster
    topic = await cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    leader = await cluster.leader_of(topic)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
        cluster.set_clock(leader, 86_400_000)
        tomorrow = (await producer.send(topic, b"x")).timestamp_ms
        cluster.set_clock(leader, 0)
        assert 86_000_000 < tomorrow - (await producer.send(topic, b"x")).timestamp_ms < 86_400_000
        cluster.fill_disk(leader)
        await producer.send(topic, b"x")
        assert await cluster.leader_of(topic, other_than=leader) != leader
        cluster.fill_disk(leader, full=False)


async def test_impossible_calls_are_refused(barnabas_simulated_cluster: Cluster) -> None:
    cluster = barnabas_simulated_cluster
    with pytest.raises(ClusterError, match=r"the node must be one of broker-1, .*; got broker-9"):
        cluster.kill("broker-9")
    with pytest.raises(ClusterError, match="two words: INVALID_TOPIC_EXCEPTION"):
        await cluster.create_topic("two words")
    with pytest.raises(ClusterError, match="t-0 has no leader"):
        await cluster.leader_of("t")


def test_it_is_there_in_less_than_a_second() -> None:
    async def nothing() -> None:
        pass

    Cluster().run(nothing)
    began = time.process_time()
    Cluster().run(nothing)
    assert time.process_time() - began < 1


def test_the_error_of_a_test_is_the_error_of_the_run() -> None:
    async def fails() -> None:
        raise LookupError("of the test")

    with pytest.raises(LookupError, match="of the test"):
        Cluster().run(fails)


def test_a_test_that_waits_for_ever_is_ended() -> None:
    with pytest.raises(trio.TooSlowError):
        Cluster(longest_seconds=20).run(trio.sleep_forever)


def test_the_real_world_is_out_of_reach() -> None:
    async def leaves() -> None:
        await trio.to_thread.run_sync(time.sleep, 0)

    with pytest.raises(RealWorldTouched):
        Cluster().run(leaves)


def test_one_seed_is_one_story() -> None:
    def digest(seed: int) -> str:
        cluster = Cluster(seed)

        async def story() -> None:
            await cluster.create_topic("t", partitions=3)
            cluster.kill(await cluster.leader_of("t"))
            await trio.sleep(3)

        cluster.run(story)
        return cluster.universe.digest()

    assert digest(1) == digest(1) != digest(2)
