"""Lag of groups, as the brokers of a whole cluster report it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from barnabas import Admin, Producer, TopicPartition
from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.cluster.scraping import Numbers, metrics

GROUP_PARTITIONS = 50
PREFIX = "kafka_consumergroup_"


def play(story: Callable[[SimulatedClusterForTests], Awaitable[None]]) -> None:
    cluster = SimulatedClusterForTests(seed=1)
    cluster.run(lambda: story(cluster))


async def lag_of(cluster: SimulatedClusterForTests, group: str) -> Callable[[str, str, int], float | None]:
    """Lag by the group's coordinator, after all replicas had time to catch up."""
    await trio.sleep(1)
    index = partition_for(group, GROUP_PARTITIONS)
    numbers: Numbers = await metrics(cluster, await cluster.leader_of("__consumer_offsets", index))

    def value(name: str, topic: str, partition: int) -> float | None:
        return numbers.get((PREFIX + name, f"consumergroup={group},partition={partition},topic={topic}"))

    return value


@pytest.mark.feature("OB-03")
def test_lag_is_reported_in_records_and_in_seconds() -> None:
    """`flights` has a replica on every broker; each partition of `alone` has one, so others have to be asked."""

    async def story(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights")
        await cluster.create_topic("alone", partitions=3, replicas=1)
        options = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with Producer(**options) as producer, Admin(**options) as admin:
            for _ in range(4):
                await producer.send("flights", b"x", partition=0)
                for index in range(3):
                    await producer.send("alone", b"x", partition=index)
                await trio.sleep(10)
            offsets = {TopicPartition("alone", index): 1 for index in range(3)}
            await admin.alter_consumer_group_offsets("slow", offsets | {TopicPartition("flights", 0): 3})
            leaders = {await cluster.leader_of("alone", index) for index in range(3)}
            assert len(leaders) > 1, "at least one partition is not on the coordinator"
            value = await lag_of(cluster, "slow")
            assert (value("current_offset", "flights", 0), value("lag", "flights", 0)) == (3, 1)
            assert value("lag_seconds", "flights", 0) == pytest.approx(11, abs=2)
            for index in range(3):
                assert value("lag", "alone", index) == 3
                assert value("lag_seconds", "alone", index) == pytest.approx(31, abs=2)
                assert value("lag_read_committed", "alone", index) is None

            await admin.alter_consumer_group_offsets("slow", dict.fromkeys(offsets, 4))
            value = await lag_of(cluster, "slow")
            for index in range(3):
                assert (value("lag", "alone", index), value("lag_seconds", "alone", index)) == (0, 0)
            # A group that stands still, and a topic that nobody writes to: it grows older all the same.
            await trio.sleep(50)
            value = await lag_of(cluster, "slow")
            assert (value("lag", "flights", 0), value("lag_seconds", "alone", 0)) == (1, 0)
            assert value("lag_seconds", "flights", 0) == pytest.approx(63, abs=4)

            await admin.delete_topics(["flights"])
            await trio.sleep(1)
            assert (await lag_of(cluster, "slow"))("current_offset", "flights", 0) is None

    play(story)


@pytest.mark.feature("OB-03")
def test_an_open_transaction_holds_some_readers_back() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights")
        options = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        partition = TopicPartition("flights", 0)
        async with (
            Producer(**options, transactional_id="till") as producer,
            Producer(**options) as other,
            Admin(**options) as admin,
        ):
            await other.send("flights", b"first", partition=0)
            async with producer.transaction():
                await producer.send("flights", b"in a transaction", partition=0)
                await other.send("flights", b"beside it", partition=0)
                await admin.alter_consumer_group_offsets("readers", {partition: 0})
                value = await lag_of(cluster, "readers")
                assert (value("lag", *partition), value("lag_read_committed", *partition)) == (3, 1)
            # The last thing in the log is the marker: there is an offset left, but nothing to read.
            await admin.alter_consumer_group_offsets("readers", {partition: 3})
            value = await lag_of(cluster, "readers")
            assert (value("lag", *partition), value("lag_seconds", *partition)) == (1, 0)
            assert value("lag_read_committed", *partition) is None

    play(story)


@pytest.mark.feature("OB-03")
def test_a_leader_that_does_not_answer_is_not_waited_for() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("alone", partitions=3, replicas=1)
        options = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with Producer(**options) as producer, Admin(**options) as admin:
            for index in range(3):
                await producer.send("alone", b"x", partition=index)
            await admin.alter_consumer_group_offsets("slow", {TopicPartition("alone", index): 0 for index in range(3)})
            coordinator = await cluster.leader_of("__consumer_offsets", partition_for("slow", GROUP_PARTITIONS))
            [gone, *_] = [i for i in range(3) if await cluster.leader_of("alone", i) != coordinator]
            cluster.pause(await cluster.leader_of("alone", gone))
            value = await lag_of(cluster, "slow")
            assert value("current_offset", "alone", gone) == 0
            assert value("lag", "alone", gone) is None
            assert value("lag_seconds", "alone", gone) is None

    play(story)
