"""What the client knows of the cluster, and how it learns it."""

import random

import trio

from barnabas.client.cluster import Backoff, Cluster, ClusterSettings, Leadership, TopicPartition
from protocol.api_keys import ApiKey
from runtime.simulated import run_simulation
from tests.barnabas.client.fake_cluster import FakeCluster, with_client

T0 = TopicPartition("t", 0)


def test_many_who_want_to_know_ask_once() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.create("t", 3)
        async with trio.open_nursery() as askers:
            for _ in range(20):
                askers.start_soon(cluster.partitions_count, "t", 1000)
        assert fake.seen.count(ApiKey.METADATA) <= 2
        assert cluster.leadership(T0) == Leadership(1, 0)
        assert sorted(cluster.nodes) == [1, 2, 3]
        assert cluster.topic_name(cluster.topic_id("t")) == "t"

    run_simulation(1, with_client, story)


def test_older_news_of_a_leader_is_dropped_and_a_new_life_of_the_topic_is_believed() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        await cluster.refresh(["t"])
        assert cluster.learn_leader(T0, 2, 5)
        assert not cluster.learn_leader(T0, 3, 5)
        assert not cluster.learn_leader(T0, 9, 6), "an unknown node is no place to go"
        await cluster.refresh()
        assert cluster.leadership(T0) == Leadership(2, 5), "the broker that was asked lags behind"
        partition.leader, partition.epoch = 3, 6
        await cluster.refresh()
        assert cluster.leadership(T0) == Leadership(3, 6)
        fake.create("another")
        fake.create("t")
        await cluster.refresh()
        assert cluster.leadership(T0) == Leadership(1, 0)

    run_simulation(2, with_client, story)


def test_a_topic_is_waited_for_until_it_is_there() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        async def create_later() -> None:
            await trio.sleep(1)
            fake.create("t", 2)

        nursery.start_soon(create_later)
        assert await cluster.partitions_count("t", 5000) == 2

    run_simulation(3, with_client, story)


def test_waits_grow_to_a_bound_and_differ() -> None:
    backoff = Backoff(ClusterSettings(retry_backoff_ms=100, retry_backoff_max_ms=1000), random.Random(4))
    waits = [backoff.next_ms() for _ in range(50)]
    for wait, middle in zip(waits, [100, 200, 400, 800, *[1000] * 46], strict=True):
        assert 0.8 * middle - 1 <= wait <= 1.2 * middle
    assert len(set(waits[4:])) > 10
    backoff.reset()
    assert backoff.next_ms() <= 120
