"""Share consumers of others (librdkafka, franz-go, Java), with one program on our cluster and on Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable
from typing import NamedTuple

import pytest
import trio

from barnabas import Admin, AlterConfigOp, ConfigResource, Producer, ResourceType, TopicPartition
from tests.compat.available import FRANZ_GO
from tests.compat.client.any_cluster import AnyCluster

pytestmark = [pytest.mark.compat, pytest.mark.feature("CG-17", "CG-18")]

PARTITIONS = 3
GOOD, AGAIN, BAD = 120, 30, 15
ALL = GOOD + AGAIN + BAD
WAIT_SECONDS = 45.0


class Delivery(NamedTuple):
    """A record as a member got it, and what the member answered: accept, release or reject."""

    value: str
    count: int
    answer: str


def answer_to(value: str, delivery_count: int) -> str:
    if value.startswith("bad"):
        return "reject"
    return "release" if value.startswith("again") and delivery_count == 1 else "accept"


def expected() -> list[Delivery]:
    """All deliveries that a group must get."""
    values = [f"{stem}-{number}" for stem, count in stems() for number in range(count)]
    first = [Delivery(value, 1, answer_to(value, 1)) for value in values]
    second = [Delivery(it.value, 2, "accept") for it in first if it.answer == "release"]
    return sorted(first + second)


def stems() -> Iterable[tuple[str, int]]:
    return (("good", GOOD), ("again", AGAIN), ("bad", BAD))


async def _prepare(cluster: AnyCluster, topic: str, group: str) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        resource = ConfigResource(ResourceType.GROUP, group)
        configs = {"share.auto.offset.reset": "earliest", "share.heartbeat.interval.ms": "5000"}
        operations = [AlterConfigOp(name, value) for name, value in configs.items()]
        await admin.incremental_alter_configs({resource: operations})
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        values = [f"{stem}-{number}" for stem, count in stems() for number in range(count)]
        for number, value in enumerate(values):
            await producer.send(topic, value.encode(), partition=number % PARTITIONS)


def prepared(cluster: AnyCluster) -> tuple[str, str]:
    """(topic, group): all records are there, and the group begins with the first."""
    topic, group = cluster.create_topic("jobs", PARTITIONS), cluster.new_name("workers")
    trio.run(_prepare, cluster, topic, group)
    return topic, group


async def _lags(cluster: AnyCluster, group: str, topic: str) -> list[int | None]:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = (await admin.list_share_group_offsets(group))[group]
        offsets = [found[TopicPartition(topic, index)] for index in range(PARTITIONS)]
        return [None if each is None else each.lag for each in offsets]


def wait_until_nothing_is_left(cluster: AnyCluster, group: str, topic: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (lags := trio.run(_lags, cluster, group, topic)) != [0] * PARTITIONS:
        assert time.monotonic() < deadline, f"the group still has a lag: {lags}"


@pytest.mark.client("confluent-kafka")
def test_members_of_librdkafka_share_all_records(any_cluster: AnyCluster) -> None:
    from confluent_kafka import AcknowledgeType, ShareConsumer

    types = {
        "accept": AcknowledgeType.ACCEPT,
        "release": AcknowledgeType.RELEASE,
        "reject": AcknowledgeType.REJECT,
    }
    topic, group = prepared(any_cluster)
    config = {
        "bootstrap.servers": any_cluster.bootstrap_servers,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
    }
    members = [ShareConsumer(config) for _ in range(2)]
    got: list[Delivery] = []
    errors: list[object] = []
    try:
        for member in members:
            member.set_acknowledgement_commit_callback(lambda _offsets, error: errors.append(error))
            member.subscribe([topic])
        deadline = time.monotonic() + WAIT_SECONDS
        while sum(each.answer != "release" for each in got) < ALL:
            assert time.monotonic() < deadline, f"{len(got)} deliveries"
            for member in members:
                for message in member.poll(0.2):
                    assert message.error() is None, message.error()
                    value, count = message.value().decode(), message.delivery_count()
                    got.append(Delivery(value, count, answer_to(value, count)))
                    member.acknowledge(message, types[got[-1].answer])
                outcomes = member.commit_sync(30.0)
                assert set(outcomes.values()) <= {None}, outcomes
    finally:
        for member in members:
            member.close()
    assert sorted(got) == expected()
    assert set(errors) <= {None}
    wait_until_nothing_is_left(any_cluster, group, topic)


@pytest.mark.client("franz-go")
def test_a_member_of_franz_go_answers_for_all_records(any_cluster: AnyCluster) -> None:
    topic, group = prepared(any_cluster)
    command = [str(FRANZ_GO), any_cluster.bootstrap_servers, topic, group, str(ALL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS + 10, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(Delivery(it["value"], it["delivery"], it["answer"]) for it in lines) == expected()
    assert {(it["partition"], it["offset"]) for it in lines} == {
        (index, offset) for index in range(PARTITIONS) for offset in range(ALL // PARTITIONS)
    }
    wait_until_nothing_is_left(any_cluster, group, topic)
