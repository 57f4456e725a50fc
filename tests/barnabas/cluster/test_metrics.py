"""What nodes tell Prometheus, read by Prometheus's own parser, of a whole cluster in simulation."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin import NewTopic
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.cluster.scraping import asked, metrics

def play(story: Callable[[SimulatedClusterForTests], Awaitable[None]]) -> None:
    cluster = SimulatedClusterForTests(seed=1)
    cluster.run(lambda: story(cluster))


@pytest.mark.feature("OB-01", "OB-02", "OB-04")
def test_brokers_tell_of_replicas_traffic_and_requests() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights", partitions=2)
        leader = await cluster.leader_of("flights", 0)
        options = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with Producer(**options) as producer:
            for number in range(10):
                await producer.send("flights", b"x" * 100 + b"%d" % number, partition=0)
        async with Consumer(**options, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["flights"])
            read = 0
            while read < 10:
                read += len(await consumer.poll(500))
            numbers = await metrics(cluster, leader)
            groups = [await metrics(cluster, node) for node in cluster.brokers]
        assert numbers["kafka_log_log_logendoffset", "partition=0,topic=flights"] == 10
        assert numbers["kafka_cluster_partition_highwatermark", "partition=0,topic=flights"] == 10
        assert numbers["kafka_cluster_partition_insyncreplicascount", "partition=0,topic=flights"] == 3
        assert numbers["kafka_server_brokertopicmetrics_messagesin_total", "topic=flights"] == 10
        written = numbers["kafka_server_brokertopicmetrics_bytesin_total", "topic=flights"]
        assert written == numbers["kafka_log_log_size", "partition=0,topic=flights"] > 1_000
        assert numbers["kafka_server_brokertopicmetrics_bytesout_total", ""] >= written
        assert numbers["kafka_server_brokertopicmetrics_replicationbytesout_total", ""] >= 2 * written
        assert numbers["kafka_network_requestmetrics_requests_total", "request=Produce"] == 10
        assert numbers["kafka_network_requestmetrics_answers_total", "request=Produce"] == 10
        assert numbers["kafka_network_requestmetrics_totaltimems_sum", "request=Produce"] > 0
        assert numbers["kafka_server_kafkaserver_brokerstate", ""] == 3
        assert numbers["kafka_server_kafkaserver_fenced", ""] == 0
        assert numbers["kafka_server_raftmetrics_current_leader", ""] in (101, 102, 103)
        assert numbers["kafka_server_raftmetrics_current_state", "state=follower"] == 1
        name = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        assert sum(each.get((name, "protocol=classic,state=Stable"), 0) for each in groups) == 1

    play(story)


@pytest.mark.feature("OB-02", "OB-03", "OB-04")
def test_a_killed_broker_is_seen_by_the_others() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights")
        victim = await cluster.leader_of("flights", 0)
        cluster.kill(victim)
        heir = await cluster.leader_of("flights", 0, other_than=victim)
        numbers = await metrics(cluster, heir)
        assert numbers["kafka_server_replicamanager_underreplicatedpartitions", ""] >= 1
        assert numbers["kafka_server_replicamanager_underminisrpartitioncount", ""] == 0
        active = await cluster.active_controller()
        numbers = await metrics(cluster, active)
        prefix = "kafka_controller_kafkacontroller_"
        assert numbers[prefix + "activecontrollercount", ""] == 1
        assert (numbers[prefix + "activebrokercount", ""], numbers[prefix + "fencedbrokercount", ""]) == (2, 1)
        assert numbers[prefix + "globaltopiccount", ""] == 1
        assert numbers[prefix + "offlinepartitionscount", ""] == 0
        cluster.start(victim)
        await cluster.wait_ready()
        with trio.fail_after(60):
            while not (numbers := await metrics(cluster, heir))["kafka_server_replicamanager_isrexpands_total", ""]:
                await trio.sleep(0.5)
        assert numbers["kafka_server_replicamanager_underreplicatedpartitions", ""] == 0

    play(story)


@pytest.mark.feature("OB-04")
def test_a_thousand_partitions_are_told_in_a_moment() -> None:
    """The bound is loose, as machines are busy; what it costs is in the benchmark's notes."""

    async def story(cluster: SimulatedClusterForTests) -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
            await admin.create_topics([NewTopic("many", 1_000, 3)])
        await cluster.leader_of("many", 999)
        await asked(cluster, "broker-1", "/metrics")
        began = time.process_time()
        told = await asked(cluster, "broker-1", "/metrics")
        assert time.process_time() - began < 1.0
        assert told.count("topic=\"many\"") > 4_000

    play(story)


@pytest.mark.feature("OB-04")
def test_every_metric_is_in_its_page() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
    known = {word for row in page.splitlines() for word in full_names(re.findall(r"`([a-z0-9_…]+)`", row))}

    async def story(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights")
        for node in (*cluster.brokers, *cluster.controllers):
            families = text_string_to_metric_families(await asked(cluster, node, "/metrics"))
            names = {f"{it.name}_total" if it.type == "counter" else it.name for it in families}
            assert names - known == set()

    play(story)


def full_names(words: list[str]) -> list[str]:
    """`…bytesin_total` begins as the first name of its row does."""
    names: list[str] = []
    for word in words:
        if word.startswith("…"):
            begin = re.match(r"kafka_[a-z]+_[a-z]+_", words[0])
            assert begin is not None, words[0]
            word = begin.group() + word[1:]
        names.append(word)
    return names
