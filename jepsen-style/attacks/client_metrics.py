"""Clients that push metrics, and subscriptions that are made to match them (KIP-714)."""

from __future__ import annotations

import time
import urllib.request

from attacks.scene import METRICS_SECONDS, Scene
from attacks.wire import HOST, frame
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.protocol.otlp import MAX_POINTS, Sample, write_metrics
from barnabas.protocol.records.compression import Compression, compress

SETTINGS = {"metric.reporters": "barnabas.ClientTelemetry"}
CLIENT_METRICS, TOPIC_RESOURCE = 16, 2
SUBSCRIPTIONS = 100
CHANGES = 5
CLIENTS = 50


def metrics_with_many_labels(scene: Scene) -> None:
    """A push of 2,000 values of one metric, each with an attribute of its own, and the page with the metrics."""
    samples = [Sample("bomb", ((f"attribute.number.{number}", "x"),), 1.0) for number in range(MAX_POINTS)]
    data = write_metrics(samples, {}, is_delta=False, began_ms=0, now_ms=0)
    with scene.peer() as peer:
        peer.call(_subscribe_all(), 1)
        scene.begin()
        got = peer.call(GetTelemetrySubscriptionsRequest(), 0)
        pushed = PushTelemetryRequest(
            client_instance_id=got.client_instance_id,
            subscription_id=got.subscription_id,
            compression_type=Compression.ZSTD,
            metrics=compress(Compression.ZSTD, data),
        )
        scene.send(peer, frame(pushed, 0))
        peer.swallow()
    _read_page(scene)


def metrics_of_many_clients(scene: Scene) -> None:
    """As many values as a broker keeps, pushed by 100 clients, and five pages with the metrics at once."""
    samples = [Sample(f"metric.{'n' * 60}.{number}", (("key", "value"),), 1.0) for number in range(MAX_POINTS)]
    data = compress(Compression.ZSTD, write_metrics(samples, {}, is_delta=False, began_ms=0, now_ms=0))
    with scene.peer() as peer:
        peer.call(_subscribe_all(), 1)
        scene.begin()
        for _ in range(100):
            got = peer.call(GetTelemetrySubscriptionsRequest(), 0)
            pushed = PushTelemetryRequest(
                client_instance_id=got.client_instance_id,
                subscription_id=got.subscription_id,
                compression_type=Compression.ZSTD,
                metrics=data,
            )
            scene.send(peer, frame(pushed, 0))
            peer.swallow()
    _read_page(scene)


def expensive_subscriptions(scene: Scene) -> None:
    """100 subscriptions with patterns that take long to compile and to match, changes of another config, and 50
    clients with long ids."""
    pattern = "(a|ab|abc|abcd)?" * 230
    resources = [
        AlterConfigsResource(
            resource_type=CLIENT_METRICS,
            resource_name=f"subscription-{number}",
            configs=[
                AlterableConfig(name="metrics", value="*"),
                AlterableConfig(name="match", value=f"client_id={pattern}{number}"),
            ],
        )
        for number in range(SUBSCRIPTIONS)
    ]
    scene.target.create_topic("changed")
    with scene.peer() as peer:
        made = peer.call(IncrementalAlterConfigsRequest(resources=resources), 1)
        refused = {it.error_message for it in made.responses if it.error_code}
        if refused:
            scene.report(f"subscriptions were refused: {min(map(str, refused))[:100]}")
        time.sleep(5)
        scene.begin()
        for number in range(CHANGES):
            config = AlterableConfig(name="retention.ms", value=str(1_000_000 + number))
            resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="changed", configs=[config])
            scene.send(peer, frame(IncrementalAlterConfigsRequest(resources=[resource]), 1))
            peer.swallow()
        for number in range(CLIENTS):
            client_id = "abcd" * 5_000 + str(number)
            scene.send(peer, frame(GetTelemetrySubscriptionsRequest(), 0, client_id=client_id))
        for _ in range(CLIENTS):
            peer.swallow()


def _subscribe_all() -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name="metrics", value="*"), AlterableConfig(name="interval.ms", value="100")]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def _read_page(scene: Scene) -> None:
    address = f"http://{HOST}:{scene.victim.http_port}/metrics"
    with urllib.request.urlopen(address, timeout=10 * METRICS_SECONDS) as answer:
        size = len(answer.read())
    if size > 64 << 20:
        scene.report(f"a page of {size >> 20} MB")
