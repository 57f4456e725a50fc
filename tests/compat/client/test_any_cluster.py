"""The fixture itself: both kinds of cluster take a topic, and say who they are."""

from __future__ import annotations

from barnabas.cluster.probe import ask
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.compat.client.any_cluster import BARNABAS, AnyCluster


def test_a_topic_is_led_on_as_many_brokers_as_there_are(any_cluster: AnyCluster) -> None:
    first, second = any_cluster.create_topic("same"), any_cluster.create_topic("same", partitions=3)
    assert first != second
    described = ask(any_cluster.ports[0], DescribeClusterRequest(endpoint_type=1), DescribeClusterResponse)
    assert len(described.brokers) == any_cluster.replication_factor == (3 if any_cluster.name == BARNABAS else 1)
