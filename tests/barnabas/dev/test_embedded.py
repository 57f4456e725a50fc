"""A broker in the process of a test, and what the fixtures of the plug-in promise."""

from __future__ import annotations

from pathlib import Path

import pytest

import barnabas
from barnabas import sync
from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.dev.embedded import EmbeddedServers, embedded


def test_a_record_goes_through_a_group(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    with sync.Producer(bootstrap_servers=barnabas_broker) as producer:
        producer.send(barnabas_topic, b"departed")
    with sync.Consumer(
        barnabas_topic, bootstrap_servers=barnabas_broker, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        assert next(iter(consumer)).value == b"departed"
        consumer.commit()


@pytest.mark.barnabas_topic(partitions=3)
def test_a_fresh_topic_has_the_partitions_of_its_mark(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    with sync.Admin(bootstrap_servers=barnabas_broker) as admin:
        assert len(admin.describe_topics([barnabas_topic])[barnabas_topic].partitions) == 3


def test_a_reset_removes_topics_groups_and_transactions(barnabas_broker: EmbeddedServers) -> None:
    barnabas_broker.create_topic("left-over")
    with (
        sync.Producer(bootstrap_servers=barnabas_broker, transactional_id="left-over") as producer,
        producer.transaction(),
    ):
        producer.send("left-over", b"1")
    with sync.Admin(bootstrap_servers=barnabas_broker) as admin:
        admin.alter_consumer_group_offsets("left-over", {barnabas.TopicPartition("left-over", 0): 1})
        assert [each.group_id for each in admin.list_groups() if each.group_id == "left-over"]
        barnabas_broker.reset()
        assert admin.list_topics() == {}
        assert list(admin.list_groups()) == []
        assert list(admin.list_transactions()) == []
    barnabas_broker.create_topic("left-over")
    with (
        sync.Producer(bootstrap_servers=barnabas_broker, transactional_id="left-over") as producer,
        producer.transaction(),
    ):
        assert producer.send("left-over", b"2").offset == 0


def test_the_fixture_for_a_reset_leaves_nothing(barnabas_reset: EmbeddedServers) -> None:
    with sync.Admin(bootstrap_servers=barnabas_reset) as admin:
        assert admin.list_topics() == {}


def test_two_brokers_live_beside_each_other() -> None:
    with embedded(topics=["one"]) as first, embedded(topics={"two": 2}) as second:
        assert first != second
        with sync.Admin(bootstrap_servers=first) as admin:
            assert list(admin.list_topics()) == ["one"]
        with sync.Admin(bootstrap_servers=second) as admin:
            assert list(admin.list_topics()) == ["two"]


def test_memory_is_given_back() -> None:
    with embedded() as servers:
        directory = servers.directory
        assert directory.exists()
    assert not directory.exists()


def test_records_are_kept_in_a_directory(tmp_path: Path) -> None:
    with embedded(topics=["kept"], directory=tmp_path) as servers, sync.Producer(bootstrap_servers=servers) as producer:
        producer.send("kept", b"1")
    with embedded(topics=["kept"], directory=tmp_path) as servers, sync.Producer(bootstrap_servers=servers) as producer:
        assert producer.send("kept", b"2").offset == 1


def test_a_secure_broker_lets_only_its_users_in(tmp_path: Path) -> None:
    with embedded(topics=["secret"], secure=True, directory=tmp_path) as servers:
        with sync.Admin(bootstrap_servers=servers, **servers.client_settings) as admin:
            assert list(admin.list_topics()) == ["secret"]
        wrong = servers.client_settings | {"sasl_plain_password": "wrong"}
        with (
            pytest.raises(barnabas.errors.SaslAuthenticationException),
            sync.Admin(bootstrap_servers=servers, **wrong) as admin,
        ):
            admin.list_topics()


def test_one_directory_has_one_node(tmp_path: Path) -> None:
    with (
        embedded(directory=tmp_path),
        pytest.raises(ClusterError, match="is in use by another process"),
        embedded(directory=tmp_path),
    ):
        pass


def test_bad_arguments_are_named() -> None:
    with pytest.raises(WrongArgument, match=r"num\.partitions=0"), embedded(settings={"num.partitions": "0"}):
        pass
    with pytest.raises(WrongArgument, match="topic a b"), embedded(topics=["a b"]):
        pass
