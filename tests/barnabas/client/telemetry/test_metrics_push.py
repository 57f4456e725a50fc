"""Our own clients push their metrics to a whole cluster, if a subscription asks for them, and else send nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import trio

from barnabas import Admin, Consumer, Producer, ShareConsumer
from barnabas.client import errors
from barnabas.client.admin import ConfigResource, ResourceType
from barnabas.client.shares.record import ShareRecord
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.channel import Channel
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.cluster.scraping import metrics

pytestmark = pytest.mark.feature("CL-06", "OB-05")

RECEIVER = {"metric.reporters": "barnabas.ClientTelemetry"}
STANDARD_OF_PRODUCERS = {
    "producer_connection_creation_rate",
    "producer_connection_creation_total",
    "producer_node_request_latency_avg",
    "producer_node_request_latency_max",
    "producer_produce_throttle_time_avg",
    "producer_produce_throttle_time_max",
    "producer_record_queue_time_avg",
    "producer_record_queue_time_max",
}
STANDARD_OF_CONSUMERS = {
    "consumer_connection_creation_rate",
    "consumer_connection_creation_total",
    "consumer_node_request_latency_avg",
    "consumer_node_request_latency_max",
    "consumer_poll_idle_ratio_avg",
    "consumer_coordinator_commit_latency_avg",
    "consumer_coordinator_commit_latency_max",
    "consumer_coordinator_assigned_partitions",
    "consumer_coordinator_rebalance_latency_avg",
    "consumer_coordinator_rebalance_latency_max",
    "consumer_coordinator_rebalance_latency_total",
    "consumer_fetch_manager_fetch_latency_avg",
    "consumer_fetch_manager_fetch_latency_max",
}
METRICS_OF_SHARE_CONSUMERS = {
    "consumer_connection_creation_total",
    "consumer_node_request_latency_avg",
    "consumer_share_last_poll_seconds_ago",
    "consumer_share_poll_idle_ratio_avg",
    "consumer_share_time_between_poll_avg",
    "consumer_share_time_between_poll_max",
    "consumer_share_coordinator_heartbeat_rate",
    "consumer_share_coordinator_heartbeat_response_time_max",
    "consumer_share_coordinator_heartbeat_total",
    "consumer_share_coordinator_last_heartbeat_seconds_ago",
    "consumer_share_coordinator_rebalance_rate_per_hour",
    "consumer_share_coordinator_rebalance_total",
    "consumer_share_fetch_manager_acknowledgements_error_rate",
    "consumer_share_fetch_manager_acknowledgements_error_total",
    "consumer_share_fetch_manager_acknowledgements_send_rate",
    "consumer_share_fetch_manager_acknowledgements_send_total",
    "consumer_share_fetch_manager_bytes_consumed_rate",
    "consumer_share_fetch_manager_bytes_consumed_total",
    "consumer_share_fetch_manager_fetch_latency_avg",
    "consumer_share_fetch_manager_fetch_latency_max",
    "consumer_share_fetch_manager_fetch_rate",
    "consumer_share_fetch_manager_fetch_size_avg",
    "consumer_share_fetch_manager_fetch_size_max",
    "consumer_share_fetch_manager_fetch_throttle_time_avg",
    "consumer_share_fetch_manager_fetch_throttle_time_max",
    "consumer_share_fetch_manager_fetch_total",
    "consumer_share_fetch_manager_records_consumed_rate",
    "consumer_share_fetch_manager_records_consumed_total",
    "consumer_share_fetch_manager_records_per_request_avg",
    "consumer_share_fetch_manager_records_per_request_max",
}
"""All that the Java client 4.3 measures of fetches, polls, heartbeats and rebalances of a share consumer."""
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """API keys of the requests about telemetry that any channel sends."""
    seen: list[int] = []
    call = Channel.call

    async def spy(channel: Channel, request: object, **more: object) -> object:
        if (key := getattr(request, "API_KEY", -1)) in TELEMETRY:
            seen.append(key)
        return await call(channel, request, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Channel, "call", spy)
    return seen


async def pushed(cluster: SimulatedClusterForTests) -> dict[str, float]:
    """The values that any broker was given, by their name without prefix."""
    found: dict[str, float] = {}
    for broker in cluster.brokers:
        for (name, _), value in (await metrics(cluster, broker)).items():
            if name.startswith("kafka_client_"):
                found[name.removeprefix("kafka_client_")] = value
    return found


async def subscribe(cluster: SimulatedClusterForTests, wanted: str = "*") -> None:
    resource = ConfigResource(ResourceType.CLIENT_METRICS, "all")
    async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
        await admin.incremental_alter_configs({resource: {"metrics": wanted, "interval.ms": "5000"}})
    await trio.sleep(1)


async def work(cluster: SimulatedClusterForTests, seconds: float, inside: Callable[..., Awaitable[object]]) -> None:
    """A producer and a consumer that are busy for some time."""
    common = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(**common))  # type: ignore[arg-type]
        consumer = await stack.enter_async_context(
            Consumer("t", group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=500, **common)  # type: ignore[arg-type]
        )
        until = trio.current_time() + seconds
        while trio.current_time() < until:
            await producer.send("t", b"v")
            await consumer.poll(500)
            await trio.sleep(0.1)
        await inside(producer, consumer)


@pytest.mark.feature("CL-06")
def test_a_cluster_without_a_receiver_is_asked_for_nothing(asked: list[int]) -> None:
    cluster = SimulatedClusterForTests(seed=2)

    async def story() -> None:
        await cluster.create_topic("t")

        async def inside(producer: Producer, consumer: Consumer) -> None:
            with pytest.raises(errors.UnsupportedVersionException, match="KIP-714"):
                await producer.client_instance_id()
            assert not producer._cluster.meters.is_measuring

        await work(cluster, 10, inside)

    cluster.run(story)
    assert asked == []


def test_without_a_subscription_nothing_is_pushed_or_measured(asked: list[int]) -> None:
    cluster = SimulatedClusterForTests(seed=2, settings=RECEIVER)

    async def story() -> None:
        await cluster.create_topic("t")

        async def inside(producer: Producer, consumer: Consumer) -> None:
            ids = [await producer.client_instance_id(), await consumer.client_instance_id()]
            assert len(set(ids)) == 2 and all(len(each) == 22 for each in ids)
            assert not producer._cluster.meters.is_measuring

        await work(cluster, 200, inside)

    cluster.run(story)
    assert asked == [ApiKey.GET_TELEMETRY_SUBSCRIPTIONS] * 2


def test_the_standard_metrics_arrive_and_the_last_push_is_the_end(asked: list[int]) -> None:
    cluster = SimulatedClusterForTests(seed=2, settings=RECEIVER)
    before: dict[str, float] = {}

    async def story() -> None:
        await cluster.create_topic("t")
        await subscribe(cluster)

        async def inside(producer: Producer, consumer: Consumer) -> None:
            before.update(await pushed(cluster))
            assert set(before) >= STANDARD_OF_PRODUCERS | STANDARD_OF_CONSUMERS
            assert before["producer_record_send_total"] > 10
            assert 0 < before["consumer_poll_idle_ratio_avg"] < 1
            assert before["consumer_coordinator_assigned_partitions"] == 1
            await trio.sleep(3)
            await producer.send("t", b"last")
            before["sends"] = producer.metrics()["record-send-total"]

        await work(cluster, 21, inside)
        after = await pushed(cluster)
        assert after["producer_record_send_total"] == before["sends"], "the terminating push came"

    cluster.run(story)
    assert asked.count(ApiKey.PUSH_TELEMETRY) >= 8


def test_it_goes_on_after_a_broker_died_and_a_subscription_changed(asked: list[int]) -> None:
    cluster = SimulatedClusterForTests(seed=4, settings=RECEIVER)

    async def story() -> None:
        await cluster.create_topic("t")
        await subscribe(cluster, "org.apache.kafka.producer.record.")

        async def inside(producer: Producer, consumer: Consumer) -> None:
            assert "producer_record_send_total" in await pushed(cluster)
            assert "consumer_poll_idle_ratio_avg" not in await pushed(cluster)
            await subscribe(cluster, "org.apache.kafka.consumer.")
            connected = producer._cluster._last_used
            assert connected is not None
            name = f"broker-{connected.node.node_id}" if connected.node.node_id > 0 else "broker-1"
            cluster.kill(name)
            for _ in range(20):
                await producer.send("t", b"v")
                await consumer.poll(500)
                await trio.sleep(1)
            cluster.start(name)
            await cluster.wait_ready()
            for _ in range(10):
                await producer.send("t", b"v")
                await consumer.poll(500)
                await trio.sleep(1)
            assert "consumer_coordinator_assigned_partitions" in await pushed(cluster)

        await work(cluster, 20, inside)

    cluster.run(story)


@pytest.mark.feature("CL-03")
def test_a_share_consumer_pushes_what_it_read_and_acknowledged(asked: list[int]) -> None:
    cluster = SimulatedClusterForTests(seed=2, settings=RECEIVER)

    async def story() -> None:
        await cluster.create_topic("t")
        await subscribe(cluster)
        common = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        reading = {"group_id": "s", "share_acquire_mode": "record_limit", **common}
        async with (
            Producer(**common) as producer,  # type: ignore[arg-type]
            ShareConsumer("t", **reading) as consumer,  # type: ignore[arg-type]
        ):
            read = 0
            until = trio.current_time() + 20
            while trio.current_time() < until:
                await producer.send("t", b"v")
                read += len(await consumer.poll(500))
                await trio.sleep(0.1)
            await consumer.commit()
            assert len(await consumer.client_instance_id()) == 22
            assert read > 10
            mine = consumer.metrics()
            assert mine["records-consumed-total"] == mine["acknowledgements-send-total"] == read
            assert mine["acknowledgements-error-total"] == 0 < mine["bytes-consumed-total"]
            await trio.sleep(6)
            found = await pushed(cluster)
            assert {name for name in found if "_share_" in name} == {
                name for name in METRICS_OF_SHARE_CONSUMERS if "_share_" in name
            }
            assert set(found) >= METRICS_OF_SHARE_CONSUMERS
            assert 0 < found["consumer_share_poll_idle_ratio_avg"] < 1
            await producer.send("t", b"last")
            read += len(await consumer.poll(5_000))
            await consumer.commit()
        after = await pushed(cluster)
        assert after["consumer_share_fetch_manager_records_consumed_total"] == read, "the terminating push came"
        assert after["consumer_share_fetch_manager_acknowledgements_send_total"] == read

    cluster.run(story)
    assert asked.count(ApiKey.PUSH_TELEMETRY) >= 8


@pytest.mark.feature("CL-03")
def test_a_share_consumer_counts_acknowledgements_that_failed() -> None:
    cluster = SimulatedClusterForTests(seed=2)

    async def story() -> None:
        await cluster.create_topic("t")
        common = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world, "request_timeout_ms": 2_000}
        async with (
            Producer(**common) as producer,  # type: ignore[arg-type]
            ShareConsumer("t", group_id="s", **common) as consumer,  # type: ignore[arg-type]
        ):
            records: list[ShareRecord] = []
            while not records:
                await producer.send("t", b"v")
                records = await consumer.poll(1_000)
            for broker in cluster.brokers:
                cluster.kill(broker)
            results = await consumer.commit(10_000)
            assert any(results.values())
            failed, sent = (consumer.metrics()[f"acknowledgements-{name}-total"] for name in ("error", "send"))
            assert failed == sent == len(records)
            for broker in cluster.brokers:
                cluster.start(broker)
            await cluster.wait_ready()

    cluster.run(story)


@pytest.mark.feature("CL-04")
def test_an_administrator_has_an_instance_id() -> None:
    cluster = SimulatedClusterForTests(seed=2, settings=RECEIVER)

    async def story() -> None:
        common = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with Admin(enable_metrics_push=True, **common) as admin:  # type: ignore[arg-type]
            first = await admin.client_instance_id()
            assert first == await admin.client_instance_id()
        async with Admin(**common) as admin:  # type: ignore[arg-type]
            with pytest.raises(errors.IllegalStateException, match="enable_metrics_push is False"):
                await admin.client_instance_id()

    cluster.run(story)
