"""The administrator's requests, answers and errors."""

import pytest
import trio

from barnabas.client.admin import Admin, ResourceType
from barnabas.client.cluster import Cluster, TopicPartition
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from runtime.simulated import run_simulation
from tests.barnabas.client.fake_cluster import FakeCluster, with_client


def test_topics_come_and_go() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        admin = Admin(cluster)
        assert (await admin.create_topic("a", 2, 3, configs={"retention.ms": "1"})).num_partitions == 2
        await admin.create_topic("b", 1)
        assert [topic.name for topic in await admin.list_topics()] == ["a", "b"]
        [topic] = await admin.describe_topics(["a"])
        assert [partition.leader_id for partition in topic.partitions] == [1, 2]
        with pytest.raises(KafkaError, match="already exists") as caught:
            await admin.create_topic("a", 2)
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.delete_topic("a")
        assert list(fake.topics) == ["b"]
        with pytest.raises(KafkaError) as caught:
            await admin.describe_topics(["a"])
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_simulation(1, with_client, story)


def test_the_configuration_of_a_broker_is_asked_of_that_broker() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        admin = Admin(cluster)
        for broker in ("1", "2", "3"):
            configs = await admin.describe_configs(ResourceType.BROKER, broker)
            assert {config.name: config.value for config in configs} == {"node.id": broker}
        await admin.alter_configs(ResourceType.TOPIC, "t", {"retention.ms": "5", "segment.ms": "6"})
        await admin.alter_configs(ResourceType.TOPIC, "t", {"segment.ms": None})
        assert fake.configs == {"retention.ms": "5"}

    run_simulation(2, with_client, story)


def test_the_outcome_of_an_election_is_told_per_partition() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        outcome = await Admin(cluster).elect_leaders([TopicPartition("t", 0), TopicPartition("t", 1)])
        needless = ErrorCode.ELECTION_NOT_NEEDED
        assert outcome == {TopicPartition("t", 0): needless, TopicPartition("t", 1): needless}

    run_simulation(3, with_client, story)


def test_brokers_that_are_down_are_passed_over() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.universe.kill("b1")
        fake.universe.kill("b2")
        await Admin(cluster).create_topic("a", 1)
        assert list(fake.topics) == ["a"]
        fake.universe.kill("b3")
        began = trio.current_time()
        with pytest.raises(KafkaError) as caught:
            await Admin(cluster, timeout_ms=3000).list_topics()
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
        assert trio.current_time() - began <= 3.5
        fake.start_broker(nursery, 2)
        assert len(await Admin(cluster).list_topics()) == 1

    run_simulation(4, with_client, story)


def test_an_api_that_no_broker_serves_is_an_error_and_not_a_wait() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.max_versions = {ApiKey.ELECT_LEADERS: -1}
        began = trio.current_time()
        with pytest.raises(KafkaError) as caught:
            await Admin(cluster).elect_leaders()
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert trio.current_time() - began < 1

    run_simulation(5, with_client, story)
