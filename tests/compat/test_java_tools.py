"""Kafka's own command line tools on our cluster: they succeed without warnings and print correct values."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.compat.foreign import JavaConsole, Kcat, Sent
from tests.compat.java import Java
from tests.compat.running import RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]


@pytest.mark.feature("TO-02", "TO-09", "AD-01", "AD-03", "MB-08", "MB-22")
def test_kafka_topics(java: Java, cluster: RunningCluster) -> None:
    create = ("--create", "--topic", "flights", "--partitions", "2", "--replication-factor", "3")
    assert "Created topic flights." in java.ask("topics", *create, "--config", "retention.ms=3600000").out
    again = java.ask("topics", *create, code=1)
    assert "TopicExistsException" in again.err

    java.ask("topics", "--alter", "--topic", "flights", "--partitions", "4")
    cluster.wait_for("four partitions are led", lambda: len(cluster.partitions("flights")) == 4)
    head, *partitions = java.ask("topics", "--describe", "--topic", "flights").lines
    assert re.search(r"PartitionCount: 4\s+ReplicationFactor: 3\s+Configs: .*retention.ms=3600000", head)
    for line, known in zip(partitions, cluster.partitions("flights"), strict=True):
        replicas = ",".join(map(str, known.replicas))
        assert f"Partition: {known.partition}\tLeader: {known.leader}\tReplicas: {replicas}\t" in line
        assert re.search(r"\tElr: \tLastKnownElr: ", line)
    assert java.ask("topics", "--describe", "--under-replicated-partitions").lines == []

    java.ask("topics", "--delete", "--topic", "flights")
    assert "flights" not in java.ask("topics", "--list").lines
    gone = java.ask("topics", "--describe", "--topic", "flights", code=1)
    assert "Topic 'flights' does not exist as expected" in gone.out + gone.err


@pytest.mark.feature("TO-02", "TO-09", "AD-02", "MB-20", "MB-22")
def test_kafka_configs_for_topics(java: Java, cluster: RunningCluster) -> None:
    topic = cluster.create_topic("configured")
    entity = ("--entity-type", "topics", "--entity-name", topic)
    java.ask("configs", "--alter", *entity, "--add-config", "max.message.bytes=2000000,retention.ms=5000")
    java.ask("configs", "--alter", *entity, "--delete-config", "retention.ms")
    printed = java.ask("configs", "--describe", *entity).out
    assert re.search(r"max.message.bytes=2000000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:", printed)
    assert "retention.ms" not in printed
    refused = java.ask("configs", "--alter", *entity, "--add-config", "max.message.bytes=many", code=1)
    assert "InvalidConfigurationException: max.message.bytes=many" in refused.err


@pytest.mark.feature("TO-02", "TO-09", "AD-02", "MB-20", "MB-22")
def test_kafka_configs_for_brokers(java: Java, cluster: RunningCluster) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "1")
    every = ("--entity-type", "brokers", "--entity-default")
    java.ask("configs", "--alter", *one, "--add-config", "log.cleaner.threads=2")
    java.ask("configs", "--alter", *every, "--add-config", "log.cleaner.threads=3")
    printed = java.ask("configs", "--describe", *one).out
    synonyms = (
        "DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=3, "
        "DEFAULT_CONFIG:log.cleaner.threads=1"
    )
    assert f"log.cleaner.threads=2 sensitive=false synonyms={{{synonyms}}}" in printed
    printed = java.ask("configs", "--describe", "--all", *one).out
    assert "  node.id=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:node.id=1}" in printed
    java.ask("configs", "--alter", *one, "--delete-config", "log.cleaner.threads")
    java.ask("configs", "--alter", *every, "--delete-config", "log.cleaner.threads")
    assert "log.cleaner.threads" not in java.ask("configs", "--describe", *one).out


@pytest.mark.feature("TO-06", "TO-08", "TO-09", "AD-05", "PR-10", "PR-11")
def test_producer_performance_and_what_it_wrote(java: Java, cluster: RunningCluster, tmp_path: Path) -> None:
    topic = cluster.create_topic("measured", partitions=2)
    load = ("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    printed = java.ask("producer-perf-test", *load, "--command-property", "acks=all")
    assert "20000 records sent" in printed.out

    def offsets(time: str) -> dict[int, int]:
        lines = java.ask("get-offsets", "--topic", topic, "--time", time).lines
        return {int(partition): int(offset) for _, partition, offset in (line.split(":") for line in lines)}

    assert offsets("earliest") == {0: 0, 1: 0}
    ends = offsets("latest")
    assert sum(ends.values()) == 20000
    assert all(0 <= offset < ends[partition] for partition, offset in offsets("max-timestamp").items())

    found = json.loads(java.ask("log-dirs", "--describe", "--topic-list", topic).lines[-1])
    sizes = {
        (broker["broker"], partition["partition"]): (partition["size"], partition["offsetLag"])
        for broker in found["brokers"]
        for log_dir in broker["logDirs"]
        for partition in log_dir["partitions"]
    }
    assert len(sizes) == 6
    for (broker, partition), (size, lag) in sizes.items():
        directory = cluster.partition_directory(f"broker-{broker}", topic, int(partition[-1]))
        assert size == sum(path.stat().st_size for path in directory.glob("*.log"))
        assert lag == 0

    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 1000}]}
    (tmp_path / "offsets.json").write_text(json.dumps(wanted))
    printed = java.ask("delete-records", "--offset-json-file", str(tmp_path / "offsets.json"))
    assert f"partition: {topic}-0\tlow_watermark: 1000" in printed.out
    assert offsets("earliest") == {0: 1000, 1: 0}


@pytest.mark.client("kcat")
@pytest.mark.feature("TO-08", "TO-09", "PF-20", "CL-03", "RE-05")
def test_the_console_consumer_reads_a_partition_from_an_offset(java: Java, cluster: RunningCluster) -> None:
    topic = cluster.create_topic("console", partitions=2)
    kcat = Kcat(cluster.bootstrap_servers)
    for partition in ("0", "1"):
        lines = "".join(f"key {number}\tvalue {partition}/{number}\n" for number in range(50))
        kcat.run("-P", "-t", topic, "-p", partition, "-K", "\t", "-H", "trace=abc", stdin=lines)
    where = ("--topic", topic, "--partition", "1", "--offset", "45", "--max-messages", "5", "--timeout-ms", "20000")
    shown = JavaConsole.shown("print.partition", "print.offset", "print.headers", "print.key")
    for isolation in ("read_uncommitted", "read_committed"):
        printed = java.ask("console-consumer", *where, *shown, "--isolation-level", isolation)
        assert printed.lines == [
            f"Partition:1\tOffset:{number}\ttrace:abc\tkey {number}\tvalue 1/{number}" for number in range(45, 50)
        ]


@pytest.mark.feature("TO-04", "TO-06", "TO-09", "AD-03", "AD-05", "AD-06", "PF-04", "PF-05", "PF-06", "MB-22")
def test_the_tools_describe_the_cluster(java: Java, cluster: RunningCluster) -> None:
    cluster_id = cluster.layout.cluster_id
    controllers = {node.id for node in cluster.layout.controllers}
    controller_address = f"127.0.0.1:{cluster.layout.controllers[0].port}"
    leader = cluster.active_controller().removeprefix("controller-")

    for address in (
        ("--bootstrap-server", cluster.bootstrap_servers),
        ("--bootstrap-controller", controller_address),
    ):
        printed = java.run("metadata-quorum", *address, "describe", "--status").out
        assert re.search(rf"^ClusterId:\s+{re.escape(cluster_id)}$", printed, re.MULTILINE)
        assert re.search(rf"^LeaderId:\s+{leader}$", printed, re.MULTILINE)
        voters = re.search(r"^CurrentVoters:\s+(.*)$", printed, re.MULTILINE)
        assert voters is not None
        assert {voter["id"] for voter in json.loads(voters[1])} == controllers
        printed = java.run("features", *address, "describe").out
        assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: 4.3-IV0", printed)

    _head, *replicas = java.ask("metadata-quorum", "describe", "--replication").lines
    roles = {int(line.split()[0]): line.split()[-1] for line in replicas}
    assert roles == {1: "Observer", 2: "Observer", 3: "Observer"} | {
        node: "Leader" if node == int(leader) else "Follower" for node in controllers
    }

    assert java.run("cluster", "cluster-id", "--bootstrap-server", cluster.bootstrap_servers).out.strip() == (
        f"Cluster ID: {cluster_id}"
    )
    endpoints = java.run("cluster", "list-endpoints", "--bootstrap-server", cluster.bootstrap_servers).lines[1:]
    assert [line.split() for line in endpoints] == [
        [str(node.id), "127.0.0.1", str(node.port), f"rack-{node.id}", "unfenced", "broker"]
        for node in cluster.layout.brokers
    ]
    printed = java.run("cluster", "list-endpoints", "--bootstrap-controller", controller_address).out
    assert len(re.findall(r"\bcontroller\b", printed)) == len(controllers)

    printed = java.ask("broker-api-versions").out
    assert len(re.findall(r"\(id: [123] rack: rack-[123] isFenced: false\) -> \(", printed)) == 3
    assert "Produce(0): 0 to 13 [usable: 13]" in printed
    assert "Fetch(1): 4 to 18 [usable: 18]" in printed


@pytest.mark.feature("TO-06", "TO-09", "AD-05", "MB-13")
def test_kafka_leader_election_finds_the_preferred_leaders_leading(java: Java, cluster: RunningCluster) -> None:
    topic = cluster.create_topic("elected")
    where = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    printed = java.ask("leader-election", *where).out
    assert f"Valid replica already elected for partitions {topic}-0" in printed
    preferred = cluster.partitions(topic)[0].replicas[0]
    assert cluster.leader_of(topic, 0) == f"broker-{preferred}"


@pytest.mark.feature("TO-01", "TO-09")
def test_kafka_storage_knows_our_directories(java: Java, cluster: RunningCluster) -> None:
    node = cluster.layout.brokers[0]
    config = str(cluster.layout.config_file(node))
    # Kafka 5 will not read this key on brokers; 4.3 does, and so do we.
    printed = java.run("storage", "info", "-c", config, expected="default.replication.factor").out
    assert f"Found log directory:\n  {cluster.layout.log_directory(node)}\n" in printed
    assert f"cluster.id={cluster.layout.cluster_id}, " in printed
    assert "node.id=1, version=1" in printed
    assert "problem" not in printed


@pytest.mark.feature("PF-20", "TO-08", "MB-09")
def test_a_console_producer_makes_its_topic(java: Java, cluster: RunningCluster) -> None:
    console = JavaConsole(java)
    console.produce("made-by-writing", [Sent("a", "1"), Sent("b", "2")])
    (partition,) = cluster.partitions("made-by-writing")
    assert len(partition.replicas) == 3
    assert [(seen.key, seen.value) for seen in console.consume("made-by-writing", 2)] == [("a", "1"), ("b", "2")]


@pytest.mark.feature("TO-08", "CG-13")
def test_the_verifiable_producer_and_consumer_agree(java: Java, cluster: RunningCluster) -> None:
    """Both print each record as a line of JSON; the consumer read the acknowledged ones, each once and in order."""
    topic = cluster.create_topic("verified", partitions=2)
    sent = java.ask("verifiable-producer", "--topic", topic, "--max-messages", "500", "--acks", "-1")
    acked = [event for event in map(json.loads, sent.lines) if event["name"] == "producer_send_success"]
    assert len(acked) == 500

    group = ("--group-id", "verifiers", "--group-protocol", "consumer", "--reset-policy", "earliest", "--verbose")
    read = java.ask("verifiable-consumer", "--topic", topic, "--max-messages", "500", *group)
    events = [json.loads(line) for line in read.lines]
    records = [event for event in events if event["name"] == "record_data"]
    for partition in range(2):
        written = [(event["offset"], event["value"]) for event in acked if event["partition"] == partition]
        assert written == [(it["offset"], it["value"]) for it in records if it["partition"] == partition]
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert committed
    assert all(event["success"] for event in committed)


@pytest.mark.feature("TO-08")
def test_end_to_end_latency(java: Java, cluster: RunningCluster) -> None:
    topic = cluster.create_topic("there-and-back")
    load = ("--topic", topic, "--num-records", "200", "--producer-acks", "all", "--record-size", "100")
    assert re.search(r"Percentiles: 50th = \d+", java.ask("e2e-latency", *load).out)
