"""Quotas met by Kafka's own programs: set by kafka-configs, measured and seen by its producers and admin client."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.java import Java
from tests.compat.running import RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]

RATE = 200_000
RECORDS, RECORD_BYTES = 6_000, 1_000
"""Six seconds' worth above the burst of ten seconds' and more, so that the rate shows."""


def set_quota(java: Java, client_id: str, quota: str) -> None:
    java.ask("configs", "--alter", "--entity-type", "clients", "--entity-name", client_id, "--add-config", quota)


@pytest.mark.slow
@pytest.mark.feature("QU-01", "QU-06", "QU-07")
def test_a_java_producer_gets_its_rate_and_knows_that_it_is_throttled(java: Java, cluster: RunningCluster) -> None:
    topic = cluster.create_topic("quota")
    set_quota(java, "loader", f"producer_byte_rate={RATE}")
    size = ("--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES), "--throughput", "-1")
    settings = ("--command-property", "client.id=loader", "linger.ms=5", "--print-metrics")
    done = java.ask("producer-perf-test", "--topic", topic, *size, *settings)
    (rate,) = re.findall(rf"^{RECORDS} records sent, ([0-9.]+) records/sec", done.out, re.MULTILINE)
    assert float(rate) * RECORD_BYTES < 2 * RATE, "a burst of ten seconds' worth, and the rate"
    (longest,) = re.findall(r"produce-throttle-time-max:\{client-id=loader\} +: ([0-9.]+)", done.out)
    assert float(longest) > 0


@pytest.mark.feature("QU-08")
def test_a_java_admin_client_is_refused_above_its_rate_of_changes(
    java: Java, cluster: RunningCluster, tmp_path: Path
) -> None:
    set_quota(java, "builder", "controller_mutation_rate=0.1")
    settings = tmp_path / "admin.properties"
    settings.write_text("client.id=builder\n")
    create = ("--command-config", str(settings), "--create", "--replication-factor", "1", "--topic")
    java.ask("topics", *create, "quota-first", "--partitions", "30")
    refused = java.ask("topics", *create, "quota-second", "--partitions", "1", code=1)
    assert "quota of partitions that are created and deleted is exceeded" in refused.out + refused.err
    assert "quota-second" not in cluster.topics_everywhere()
