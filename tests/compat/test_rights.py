"""librdkafka's clients on a cluster with an authorizer: each gets the error that it knows, and nothing else breaks.

Everybody is anonymous here, brokers too, so what has no access control list is open to all
(`allow.everyone.if.no.acl.found`). A resource whose list allows somebody else is closed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.settings.authorization import STANDARD_AUTHORIZER

confluent: Any = pytest.importorskip("confluent_kafka")
confluent_admin: Any = importlib.import_module("confluent_kafka.admin")

pytestmark = [pytest.mark.compat, pytest.mark.client("confluent-kafka"), pytest.mark.feature("SE-09")]

SECONDS = 30
NODE = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9193
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9193
controller.listener.names=CONTROLLER
log.dirs=data
barnabas.http.listener=127.0.0.1:9292
authorizer.class.name={STANDARD_AUTHORIZER}
allow.everyone.if.no.acl.found=true
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
_numbers = count(1)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One node: the controllers of a quorum cannot find each other before they know that everybody may."""
    data = tmp_path_factory.mktemp("rights")
    (data / "shape").mkdir()
    (data / "shape" / "broker-1.properties").write_text(NODE)
    cluster = LocalCluster(data / "data", free_base_port([0, 101, 200]), config_dir=data / "shape")
    cluster.up()
    cluster.wait_ready()
    yield cluster.bootstrap_servers
    cluster.down()


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Any:
    return confluent_admin.AdminClient({"bootstrap.servers": bootstrap})


def new_topic(admin: Any, partitions: int = 1) -> str:
    name = f"topic-{next(_numbers)}"
    for future in admin.create_topics([confluent_admin.NewTopic(name, partitions, 1)]).values():
        future.result(SECONDS)
    return name


def close_to_others(admin: Any, kind: str, name: str, *operations: str) -> None:
    """Only a user called somebody may do these operations."""
    names = confluent_admin
    for operation in operations:
        acl = names.AclBinding(
            names.ResourceType[kind],
            name,
            names.ResourcePatternType.LITERAL,
            "User:somebody",
            "*",
            names.AclOperation[operation],
            names.AclPermissionType.ALLOW,
        )
        for future in admin.create_acls([acl]).values():
            future.result(SECONDS)


def code_of(error: Any) -> str:
    return str(error.args[0].name() if isinstance(error, Exception) else error.name())


def test_a_producer_is_refused_for_one_topic_and_served_for_another(bootstrap: str, admin: Any) -> None:

    closed, opened = new_topic(admin), new_topic(admin)
    close_to_others(admin, "TOPIC", closed, "WRITE")
    results: dict[str, str] = {}

    def delivered(error: Any, message: Any) -> None:
        results[message.topic()] = code_of(error) if error else "stored"

    producer = confluent.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for topic in (closed, opened):
        producer.produce(topic, b"value", on_delivery=delivered)
    assert producer.flush(SECONDS) == 0
    assert results == {closed: "TOPIC_AUTHORIZATION_FAILED", opened: "stored"}


def test_a_consumer_is_refused_for_a_topic_and_for_a_group(bootstrap: str, admin: Any) -> None:

    topic = new_topic(admin)
    close_to_others(admin, "TOPIC", topic, "READ")
    close_to_others(admin, "GROUP", "closed-group", "READ")
    for group, error in (("any-group", "TOPIC_AUTHORIZATION_FAILED"), ("closed-group", "GROUP_AUTHORIZATION_FAILED")):
        for protocol in ("classic", "consumer"):
            settings = {
                "bootstrap.servers": bootstrap,
                "group.id": f"{group}-{protocol}" if group == "any-group" else group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
            consumer = confluent.Consumer(settings)
            consumer.subscribe([topic])
            message = consumer.poll(SECONDS)
            assert message is not None
            assert code_of(message.error()) == error, protocol
            consumer.close()


def test_a_transactional_producer_is_refused_and_another_commits(bootstrap: str, admin: Any) -> None:

    close_to_others(admin, "TRANSACTIONAL_ID", "closed-id", "WRITE")
    base = {"bootstrap.servers": bootstrap}
    refused = confluent.Producer({**base, "transactional.id": "closed-id"})
    with pytest.raises(confluent.KafkaException) as failure:
        refused.init_transactions(SECONDS)
    assert code_of(failure.value) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    topic = new_topic(admin, 3)
    producer = confluent.Producer({**base, "transactional.id": "open-id"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, b"value", partition=partition)
    reader = confluent.Consumer({**base, "group.id": "exact", "isolation.level": "read_committed"})
    producer.send_offsets_to_transaction(
        [confluent.TopicPartition(topic, 0, 1)], reader.consumer_group_metadata(), SECONDS
    )
    producer.commit_transaction(SECONDS)
    reader.assign([confluent.TopicPartition(topic, partition, 0) for partition in range(3)])
    found = [reader.poll(SECONDS) for _ in range(3)]
    assert [it.value() for it in found if it is not None and it.error() is None] == [b"value"] * 3
    assert reader.committed([confluent.TopicPartition(topic, 0)], SECONDS)[0].offset == 1
    reader.close()


def test_descriptions_name_the_operations_that_are_allowed(admin: Any) -> None:

    topic = new_topic(admin)
    close_to_others(admin, "TOPIC", topic, "READ")
    # An allowed operation of somebody else closes every other one, too: the topic has a list now.
    hidden = admin.describe_topics(confluent.TopicCollection([topic]), include_authorized_operations=True)[topic]
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        hidden.result(SECONDS)
    other = new_topic(admin)
    described = admin.describe_topics(confluent.TopicCollection([other]), include_authorized_operations=True)[other]
    operations = set(described.result(SECONDS).authorized_operations)
    assert {confluent_admin.AclOperation.READ, confluent_admin.AclOperation.ALTER_CONFIGS} <= operations
    assert len(operations) == 8
    cluster = admin.describe_cluster(include_authorized_operations=True).result(SECONDS)
    assert len(cluster.authorized_operations) == 7
