"""A quota of the whole cluster, met by a client that knows nothing of it: its three leaders take the limit together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import ClientQuotaEntity, sync
from barnabas.cluster.probe import ask
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.compat.running import RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.client("confluent-kafka"), pytest.mark.slow]

LIMIT = 100_000
SECONDS_WORTH = 30
"""Three brokers with a quota each would take this much at once: each ten seconds' worth, as a burst."""
BURST_SECONDS = 15
"""Ten, and what batches under way exceed."""
FLUSH_SECONDS = 200


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    cluster = RunningCluster.start_new(tmp_path / "cluster", {"barnabas.quota.scope": "cluster"})
    yield cluster
    cluster.down()


@pytest.mark.feature("QU-09")
def test_a_producer_over_three_leaders_gets_one_limit(cluster: RunningCluster) -> None:
    from confluent_kafka import Producer

    topic = cluster.create_topic("shared", partitions=3, replicas=1)
    with sync.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_client_quotas({ClientQuotaEntity.of(client_id="loader"): {"producer_byte_rate": LIMIT}})
    everywhere = DescribeClientQuotasRequest(components=[], strict=False)
    cluster.wait_for(
        "every broker has the quota",
        lambda: all(ask(it.port, everywhere, DescribeClientQuotasResponse).entries for it in cluster.layout.brokers),
    )
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "loader", "batch.size": 10_000}
    producer = Producer({**settings, "linger.ms": 5})
    value, errors = b"x" * 1_000, []
    began = time.monotonic()
    for number in range(SECONDS_WORTH * LIMIT // len(value)):
        producer.produce(topic, value, partition=number % 3, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
    assert producer.flush(FLUSH_SECONDS) == 0
    taken = time.monotonic() - began
    assert set(errors) == {None}
    assert taken >= SECONDS_WORTH - BURST_SECONDS
