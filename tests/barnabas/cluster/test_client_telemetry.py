"""Clients push their metrics through a whole broker, only if a receiver subscribed."""

from __future__ import annotations

import pytest
import trio

from barnabas import Admin
from barnabas.client.admin import AlterConfigOp, ConfigResource, ResourceType
from barnabas.client.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.runtime.channel import Channel
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.cluster.scraping import metrics
from tests.broker.test_telemetry import metric, pushed

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
VERSIONS = ApiVersionsRequest(client_software_name="some-client", client_software_version="1")


@pytest.mark.feature("OB-05")
def test_without_a_receiver_nobody_is_asked() -> None:
    cluster = SimulatedClusterForTests(seed=1)

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            channel = Channel(cluster.world, nursery, "broker-1", 9092, client_id="c")
            answer = await channel.call(VERSIONS, timeout_ms=5_000)
            assert TELEMETRY & {each.api_key for each in answer.api_keys} == set()
            nursery.cancel_scope.cancel()

    cluster.run(story)


@pytest.mark.feature("OB-05")
def test_a_client_pushes_what_a_config_asks_for() -> None:
    cluster = SimulatedClusterForTests(seed=1, settings={"metric.reporters": "barnabas.ClientTelemetry"})

    async def story() -> None:
        resource = ConfigResource(ResourceType.CLIENT_METRICS, "basic")
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
            for key, value in (("interval.ms", "10"), ("match", "colour=blue"), ("match", "client_id")):
                with pytest.raises(KafkaError):
                    await admin.incremental_alter_configs({resource: [AlterConfigOp(key, value)]})
            wanted = {"metrics": "org.apache.kafka.", "interval.ms": "1000", "match": "client_software_name=some-.*"}
            await admin.incremental_alter_configs({resource: wanted})
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            channel = Channel(cluster.world, nursery, "broker-1", 9092, client_id="c")
            answer = await channel.call(VERSIONS, timeout_ms=5_000)
            assert {each.api_key for each in answer.api_keys} >= TELEMETRY
            got = await channel.call(GetTelemetrySubscriptionsRequest(), timeout_ms=5_000)
            assert (got.error_code, got.requested_metrics, got.push_interval_ms) == (0, ["org.apache.kafka."], 1_000)
            push = PushTelemetryRequest(
                client_instance_id=got.client_instance_id,
                subscription_id=got.subscription_id,
                metrics=pushed(metric("org.apache.kafka.consumer.poll.idle.ratio.avg", 0.5)),
            )
            assert (await channel.call(push, timeout_ms=5_000)).error_code == 0
            nursery.cancel_scope.cancel()
        numbers = await metrics(cluster, "broker-1")
        [found] = [it for (name, _), it in numbers.items() if name == "kafka_client_consumer_poll_idle_ratio_avg"]
        assert found == 0.5
        assert numbers["kafka_server_clientmetrics_clientmetricsinstancecount", ""] == 1

    cluster.run(story)
