"""Other people's clients through the fault proxy, before a cluster of ours and before Apache Kafka."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

import barnabas
from barnabas import sync
from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.embedded import ProxiedServers
from tests.compat.available import kafka_libs
from tests.compat.client.any_cluster import AnyCluster
from tests.compat.client.secured_kafka import SecuredKafka
from tests.compat.foreign import AioKafka, Client, Confluent, JavaConsole, KafkaPython, Seen, Sent
from tests.compat.java import TIMEOUT_SECONDS, Java
from tests.eventually import eventually

pytestmark = pytest.mark.compat

RECORDS = [Sent(f"key-{number}", f"value-{number}") for number in range(200)]
SEEN = [Seen(number, *record) for number, record in enumerate(RECORDS)]


class JavaThroughFaults(JavaConsole):
    """It warns about each fault, so its warnings are no failure."""

    def __init__(self, java: Java) -> None:
        super().__init__(java)
        self._command = java.command
        self._bootstrap = java.bootstrap

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        words = ("--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=\t")
        done = subprocess.run(
            self._command("console-producer", "--bootstrap-server", self._bootstrap, *words),
            input="".join(f"{key}\t{value}\n" for key, value in records),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def consume(self, topic: str, count: int, partition: int = 0) -> list[Seen]:
        where = ("--topic", topic, "--partition", str(partition), "--offset", "earliest", "--max-messages", str(count))
        done = subprocess.run(
            self._command(
                "console-consumer",
                *("--bootstrap-server", self._bootstrap),
                *where,
                *("--timeout-ms", str(TIMEOUT_SECONDS * 1000)),
                *self.shown("print.key", "print.offset"),
            ),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        return [Seen(int(offset.removeprefix("Offset:")), key, value) for offset, key, value in rows]


def java(bootstrap: str) -> JavaThroughFaults:
    libs = kafka_libs()
    assert libs is not None
    return JavaThroughFaults(Java(libs, bootstrap))


CLIENTS: dict[str, Callable[[str], Client]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "java": java,
}


@pytest.fixture
def proxy(any_cluster: AnyCluster) -> Iterator[ProxiedServers]:
    with barnabas.proxy(to=any_cluster.bootstrap_servers) as servers:
        yield servers


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.client(name)) for name in CLIENTS])
def test_a_client_gets_over_faults_that_pass(name: str, any_cluster: AnyCluster, proxy: ProxiedServers) -> None:
    client = CLIENTS[name](proxy)
    topic = any_cluster.create_topic("faulty")
    proxy.fail("Metadata", topic=topic, error="LEADER_NOT_AVAILABLE", times=1)
    proxy.fail("Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
    client.produce(topic, RECORDS)
    proxy.fail("ListOffsets", topic=topic, error="LEADER_NOT_AVAILABLE", times=1)
    proxy.fail("Fetch", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
    proxy.fail("Fetch", topic=topic, response_delay_ms=50, times=1)
    assert client.consume(topic, len(RECORDS)) == SEEN
    never = proxy.never_struck()
    # kafka-python asks for no offsets when it starts at the beginning of a partition.
    assert [line for line in never if "ListOffsets" not in line] == []


@pytest.mark.client("confluent-kafka")
def test_an_idempotent_producer_writes_once_though_answers_are_lost(
    any_cluster: AnyCluster, proxy: ProxiedServers
) -> None:
    client, topic = Confluent(proxy), any_cluster.create_topic("once")
    lost = proxy.fail("Produce", topic=topic, cut="response", times=1)
    torn = proxy.fail("Produce", topic=topic, cut="mid-frame", times=1)
    client.produce(topic, RECORDS)
    assert (lost.struck, torn.struck) == (1, 1)
    assert Confluent(any_cluster.bootstrap_servers).consume(topic, len(RECORDS)) == SEEN


@pytest.mark.client("confluent-kafka")
def test_a_group_finds_its_coordinator_through_the_proxy(any_cluster: AnyCluster, proxy: ProxiedServers) -> None:
    from confluent_kafka import Consumer

    topic, group = any_cluster.create_topic("grouped", partitions=3), any_cluster.new_name("group")
    with sync.Producer(bootstrap_servers=proxy) as producer:
        for number in range(30):
            producer.send(topic, str(number).encode(), partition=number % 3)
    proxy.fail("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", times=1)
    joined = proxy.fail("JoinGroup", error="NOT_COORDINATOR", times=1)
    refused = proxy.fail("OffsetCommit", topic=topic, error="COORDINATOR_LOAD_IN_PROGRESS", times=1)
    consumer = Consumer({"bootstrap.servers": proxy, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen = 0
    while seen < 30:
        for message in consumer.consume(30, 1.0):
            assert message.error() is None
            seen += 1
    consumer.commit(asynchronous=False)
    consumer.close()
    assert (joined.struck, refused.struck) == (1, 1)
    with sync.Admin(bootstrap_servers=any_cluster.bootstrap_servers) as admin:
        committed = admin.list_consumer_group_offsets(group)[group]
    assert sum(each.offset for each in committed.values()) == 30


def test_clients_see_no_address_of_the_cluster(any_cluster: AnyCluster, proxy: ProxiedServers) -> None:
    topic = any_cluster.create_topic("shared")
    with (
        sync.Producer(bootstrap_servers=proxy, transactional_id=any_cluster.new_name("writer")) as producer,
        producer.transaction(),
    ):
        producer.send(topic, b"in a transaction")
    with sync.Consumer(
        topic,
        bootstrap_servers=proxy,
        group_id=any_cluster.new_name("readers"),
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        assert next(iter(consumer)).value == b"in a transaction"
    with sync.Admin(bootstrap_servers=proxy) as admin:
        nodes = admin.describe_cluster().nodes
    known = {f"{node.host}:{node.port}" for node in nodes}
    assert len(known) == any_cluster.replication_factor
    assert not known & set(any_cluster.bootstrap_servers.split(","))


@pytest.mark.client("confluent-kafka")
def test_the_proxy_logs_in_where_the_client_knows_of_no_security(secured: SecuredKafka) -> None:
    config = secured.options("SASL_SSL")
    with barnabas.proxy(to=config.pop("bootstrap_servers"), config=config) as proxy:
        topic = "secured-through-a-proxy"
        with sync.Admin(bootstrap_servers=proxy) as admin:
            admin.create_topics([barnabas.NewTopic(topic, 1, 1)])
        rule = proxy.fail("Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=1)
        client = Confluent(proxy)
        client.produce(topic, RECORDS)
        assert client.consume(topic, len(RECORDS)) == SEEN
        assert rule.struck == 1


def test_a_session_that_ends_is_renewed_under_the_requests_of_the_client(secured: SecuredKafka) -> None:
    config = secured.options("REAUTH")
    with (
        barnabas.proxy(to=config.pop("bootstrap_servers"), config=config) as proxy,
        sync.Admin(bootstrap_servers=proxy) as admin,
    ):
        connections = proxy.fail("ApiVersions", delay_ms=1)
        for _ in range(2):
            admin.describe_cluster()  # the second one goes to a node by its id
        opened, until = connections.matched, time.monotonic() + 3.5
        while time.monotonic() < until:
            admin.describe_cluster()
        assert connections.matched == opened


def test_a_wrong_password_is_reported_by_the_proxy(secured: SecuredKafka) -> None:
    config = secured.options("SASL_SSL") | {"sasl_plain_password": "wrong"}
    servers = config.pop("bootstrap_servers")
    with (
        pytest.raises(ClusterError, match="the cluster does not answer"),
        barnabas.proxy(to=servers, config=config),
    ):
        pass


def test_a_share_consumer_gets_every_record_in_spite_of_errors(any_cluster: AnyCluster, proxy: ProxiedServers) -> None:
    topic, group = any_cluster.create_topic("shared"), any_cluster.new_name("sharers")
    with sync.Admin(bootstrap_servers=any_cluster.bootstrap_servers) as admin:
        resource = barnabas.ConfigResource(barnabas.ResourceType.GROUP, group)
        admin.incremental_alter_configs({resource: [barnabas.AlterConfigOp("share.auto.offset.reset", "earliest")]})
    with sync.Producer(bootstrap_servers=proxy) as producer:
        for number in range(50):
            producer.send(topic, str(number).encode())
    refused = proxy.fail("ShareFetch", topic=topic, error="NOT_LEADER_OR_FOLLOWER", after=1, times=2)
    lost = proxy.fail("ShareAcknowledge", error="NOT_LEADER_OR_FOLLOWER", times=1)
    seen: set[bytes] = set()
    with sync.ShareConsumer(topic, bootstrap_servers=proxy, group_id=group, max_poll_records=10) as consumer:
        while len(seen) < 50 or refused.struck < 2:
            seen.update(record.value for record in consumer.poll(timeout_ms=500))
            consumer.commit()
    assert len(seen) == 50
    assert (refused.struck, lost.struck) == (2, 1)


@pytest.mark.client("confluent-kafka")
def test_a_transaction_ends_once_though_its_answers_are_lost(any_cluster: AnyCluster, proxy: ProxiedServers) -> None:
    from confluent_kafka import Producer

    topic = any_cluster.create_topic("transacted")
    writer = Producer({"bootstrap.servers": proxy, "transactional.id": any_cluster.new_name("writer")})
    proxy.fail("InitProducerId", error="COORDINATOR_LOAD_IN_PROGRESS", times=1)
    lost = proxy.fail("EndTxn", cut="response", times=1)
    writer.init_transactions(30)
    writer.begin_transaction()
    for key, value in RECORDS:
        writer.produce(topic, value, key, partition=0)
    writer.commit_transaction(30)
    assert lost.struck == 1
    assert Confluent(any_cluster.bootstrap_servers).consume(topic, len(RECORDS)) == SEEN


@pytest.mark.client("java")
def test_rules_find_the_topics_of_a_consumer_that_is_in_a_fetch_session(
    any_cluster: AnyCluster, proxy: ProxiedServers
) -> None:
    topic, writer = any_cluster.create_topic("in-session"), Confluent(any_cluster.bootstrap_servers)
    heartbeat = proxy.fail("ConsumerGroupHeartbeat", topic=topic, error="COORDINATOR_LOAD_IN_PROGRESS", times=1)
    libs = kafka_libs()
    assert libs is not None
    words = ("--topic", topic, "--group", any_cluster.new_name("group"), "--max-messages", str(2 * len(RECORDS)))
    new_protocol = ("--command-property", "group.protocol=consumer", "--from-beginning")
    command = Java(libs).command("console-consumer", "--bootstrap-server", proxy, *words, *new_protocol)
    consumer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert consumer.stdout is not None
    try:
        values = [value for _, value in RECORDS]
        writer.produce(topic, RECORDS)
        assert [consumer.stdout.readline().strip() for _ in RECORDS] == values
        refused = proxy.fail("Fetch", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
        eventually(lambda: refused.struck == 2)
        writer.produce(topic, RECORDS)
        assert [consumer.stdout.readline().strip() for _ in RECORDS] == values
        assert consumer.wait(TIMEOUT_SECONDS) == 0
    finally:
        consumer.kill()
        consumer.wait()
        consumer.stdout.close()
    assert (refused.struck, heartbeat.struck) == (2, 1)


def test_a_client_may_log_in_by_itself_through_the_proxy(secured: SecuredKafka) -> None:
    config = secured.options("SASL_PLAINTEXT")
    with barnabas.proxy(to=config.pop("bootstrap_servers")) as proxy:
        with sync.Admin(bootstrap_servers=proxy, **config) as admin:
            [node] = admin.describe_cluster().nodes
            assert f"{node.host}:{node.port}" == proxy
        refused = proxy.fail("SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED", times=1)
        with (
            sync.Admin(bootstrap_servers=proxy, **config) as admin,
            pytest.raises(barnabas.errors.SaslAuthenticationException),
        ):
            admin.describe_cluster()
        assert refused.struck == 1
