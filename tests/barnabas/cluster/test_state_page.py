"""What nodes tell of themselves at `/state`, of a whole cluster in simulation."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from barnabas import Admin, Producer
from barnabas.client.admin import NewTopic
from barnabas.runtime.world import ConnectionLost
from barnabas.testing.simulated import SimulatedClusterForTests

HTTP_PORT = 9292


async def state(cluster: SimulatedClusterForTests, node: str, topic: str = "") -> dict[str, Any]:
    connection = await cluster.world.network.dial(node, HTTP_PORT)
    path = f"/state?topic={topic}" if topic else "/state"
    connection.send_now([f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode()])
    told, buffer = bytearray(), bytearray(1 << 16)
    try:
        while True:
            count = await connection.receive_into(memoryview(buffer))
            told += buffer[:count]
    except ConnectionLost:
        connection.close()
    head, _, body = bytes(told).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    found: dict[str, Any] = json.loads(body)
    return found


def play(story: Callable[[SimulatedClusterForTests], Awaitable[None]]) -> None:
    cluster = SimulatedClusterForTests(seed=1)
    cluster.run(lambda: story(cluster))


@pytest.mark.feature("OB-02")
def test_a_broker_tells_of_itself_and_of_the_topic_that_is_asked_for() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights", partitions=2)
        leader = await cluster.leader_of("flights", 0)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
            for _ in range(5):
                await producer.send("flights", b"x" * 100, partition=0)
        told = await state(cluster, leader, "flights")
        number = int(leader.removeprefix("broker-"))
        assert (told["node"], told["id"], told["role"]) == (leader, number, "broker")
        assert (told["state"], told["missing"]) == ("running", "")
        assert told["broker_epoch"] > 0
        assert told["messages_in"] == 5 and told["bytes_in"] > 500
        assert {"name": "flights", "partitions": 2} in told["topics"]
        metadata = told["metadata"]
        assert metadata["leader"] in (101, 102, 103) and metadata["epoch"] > 0
        assert 0 < metadata["high_watermark"] <= metadata["log_end_offset"]
        first = told["partitions"][0]
        assert (first["index"], first["leader"], first["is_leader"]) == (0, number, True)
        assert sorted(first["isr"]) == sorted(first["replicas"]) == [1, 2, 3]
        assert (first["log_start_offset"], first["log_end_offset"], first["high_watermark"]) == (0, 5, 5)
        assert (await state(cluster, leader))["partitions"] == []
        assert (await state(cluster, leader, "no-such-topic"))["partitions"] == []

    play(story)


@pytest.mark.feature("OB-02")
def test_replicas_elsewhere_are_told_without_offsets() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
            await admin.create_topics([NewTopic("single", replica_assignments={0: [2]})])
        await cluster.leader_of("single", 0)
        told = (await state(cluster, "broker-1", "single"))["partitions"][0]
        assert (told["leader"], told["replicas"], told["isr"]) == (2, [2], [2])
        assert (told["log_end_offset"], told["high_watermark"], told["is_leader"]) == (None, None, False)

    play(story)


@pytest.mark.feature("OB-03")
def test_controllers_tell_who_leads_and_which_brokers_are_fenced_or_behind() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights", partitions=2)
        victim = await cluster.leader_of("flights", 0)
        cluster.kill(victim)
        await cluster.leader_of("flights", 0, other_than=victim)
        told = [await state(cluster, node) for node in cluster.controllers]
        assert sorted(each["state"] for each in told) == ["follower", "follower", "leader"]
        leading = next(each for each in told if each["state"] == "leader")
        assert leading["metadata"]["leader"] == leading["id"]
        brokers = {each["id"]: each for each in leading["brokers"]}
        number = int(victim.removeprefix("broker-"))
        assert {key: each["fenced"] for key, each in brokers.items()} == {key: key == number for key in (1, 2, 3)}
        assert {key: each["out_of_sync"] for key, each in brokers.items()} == {
            key: 2 * (key == number) for key in (1, 2, 3)
        }

    play(story)


@pytest.mark.feature("OB-02")
def test_a_topic_among_a_thousand_partitions_is_told_in_a_moment() -> None:
    """The bound is loose, as machines are busy: 2 ms is what it may take on a quiet one."""

    async def story(cluster: SimulatedClusterForTests) -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
            await admin.create_topics([NewTopic("many", 988, 3), NewTopic("flights", 12, 3)])
        await cluster.leader_of("many", 987)
        await cluster.leader_of("flights", 11)
        await trio.sleep(1)
        times = []
        for _ in range(5):
            began = time.process_time()
            told = await state(cluster, "broker-1", "flights")
            times.append(time.process_time() - began)
            assert len(told["partitions"]) == 12
        assert min(times) < 0.02

    play(story)
