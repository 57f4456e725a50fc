"""How a client comes to know a cluster, ours and Apache Kafka."""

from __future__ import annotations

import socket

import pytest
import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.errors import UnsupportedVersionException
from barnabas.client.session import open_cluster
from barnabas.client.settings import ClientSettings
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.runtime.channel import NotSent
from tests.compat.client.any_cluster import AnyCluster


def settings(any_cluster: AnyCluster, **more: object) -> ClientSettings:
    return ClientSettings.of({"bootstrap_servers": any_cluster.bootstrap_servers, **more})


@pytest.mark.feature("CL-01")
async def test_one_address_is_enough_to_know_them_all(any_cluster: AnyCluster) -> None:
    topic = any_cluster.create_topic("known", partitions=3)
    one = settings(any_cluster, bootstrap_servers=f"localhost:{any_cluster.ports[0]}")
    with trio.fail_after(20):
        async with open_cluster(one) as cluster:
            partitions = await cluster.partitions_for(topic, 10_000)
            assert [partition.partition for partition in partitions] == [0, 1, 2]
            assert all(len(partition.replicas) == any_cluster.replication_factor for partition in partitions)
            assert sorted(node.port for node in cluster.nodes.values()) == sorted(any_cluster.ports)
            assert cluster.cluster_id
            assert cluster.controller_id in cluster.nodes
            assert topic in await cluster.list_topics(10_000)
            assert cluster.features()["metadata.version"] >= 1
            for node_id in cluster.nodes:
                answer = await cluster.call(node_id, MetadataRequest(topics=[]))
                assert answer.cluster_id == cluster.cluster_id


@pytest.mark.feature("CL-01")
async def test_many_calls_share_one_connection(any_cluster: AnyCluster) -> None:
    with trio.fail_after(20):
        async with open_cluster(settings(any_cluster)) as cluster:
            await cluster.refresh()
            node_id = min(cluster.nodes)
            topics = [any_cluster.create_topic("pipelined") for _ in range(3)]
            answers: dict[int, str] = {}

            async def ask(number: int) -> None:
                topic = topics[number % 3]
                answers[number] = (await cluster.partitions_for(topic, 10_000))[0].topic
                await cluster.call(node_id, MetadataRequest(topics=[]))

            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(ask, number)
            assert answers == {number: topics[number % 3] for number in range(100)}


@pytest.mark.feature("CL-01")
async def test_an_unsupported_request_is_an_error(any_cluster: AnyCluster) -> None:
    with trio.fail_after(20):
        async with open_cluster(settings(any_cluster)) as cluster:
            with pytest.raises(UnsupportedVersionException, match="BrokerHeartbeat"):
                await cluster.call_any(BrokerHeartbeatRequest())


@pytest.mark.feature("CL-01")
async def test_where_nobody_listens_and_where_somebody_else_does(any_cluster: AnyCluster) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        wrong = settings(any_cluster, bootstrap_servers=f"127.0.0.1:{nobody.getsockname()[1]}", request_timeout_ms=1000)
        with trio.fail_after(20):
            async with open_cluster(wrong) as cluster:
                with pytest.raises(NoBrokerAvailable, match="refused"):
                    await cluster.call_any(MetadataRequest(topics=[]))
                with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
                    await cluster.partitions_for("t", 500)
            # The wrong one does no harm beside a right one.
            both = f"{wrong.bootstrap_servers[0]},{any_cluster.bootstrap_servers}"
            async with open_cluster(settings(any_cluster, bootstrap_servers=both)) as cluster:
                assert await cluster.refresh()
                with pytest.raises(NotSent, match="broker 99 is unknown"):
                    await cluster.call(99, MetadataRequest(topics=[]))


async def test_the_names_of_addresses_will_do(any_cluster: AnyCluster) -> None:
    lookup = "resolve_canonical_bootstrap_servers_only"
    with trio.fail_after(20):
        async with open_cluster(settings(any_cluster, client_dns_lookup=lookup)) as cluster:
            assert isinstance(cluster, Cluster)
            assert await cluster.refresh()
