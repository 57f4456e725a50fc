"""Polling a simulated cluster: only while a reader is connected, and with the right states after faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from barnabas.page.feed import Feed, Reader
from barnabas.page.kafka_view import KafkaView
from barnabas.page.node_state import NodeName
from barnabas.page.watch import Address, Watch
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.page.counting_network import CountingNetwork

HTTP_PORT = 9292
WELL = ["follower", "follower", "leader", "running", "running", "running"]


class Onlooker:
    """A watch over the cluster, and one reader of its feed who forgets nothing."""

    def __init__(self, cluster: SimulatedClusterForTests, *, by_kafka: bool = False) -> None:
        self.network = CountingNetwork(cluster.world.network)
        world = replace(cluster.world, network=self.network)
        names = [*cluster.brokers, *cluster.controllers]
        nodes = [NodeName(name, int(name.rpartition("-")[2]), name.partition("-")[0]) for name in names]
        addresses = [Address(node, node.name, HTTP_PORT) for node in nodes]
        self.feed = Feed()
        parts = [each.partition(":") for each in cluster.bootstrap_servers.split(",")]
        bootstrap = [(host, int(port)) for host, _, port in parts]
        beside = KafkaView(world, bootstrap) if by_kafka else None
        self.watch = Watch(world, self.feed, [] if by_kafka else addresses, discovery=beside)
        self.reader: Reader | None = None

    def come(self, topic: str = "flights") -> Reader:
        self.reader = self.feed.join(topic, lambda: None, self.watch.now_ms())
        return self.reader

    def go(self) -> None:
        assert self.reader is not None
        self.feed.leave(self.reader)

    def states(self) -> dict[str, str]:
        event = self.feed.newest.get("cluster", {"nodes": []})
        return {node["name"]: node["state"] for node in event["nodes"]}

    async def until(self, holds: Callable[[], Any], seconds: float = 60) -> None:
        with trio.fail_after(seconds):
            while not holds():
                if self.reader is not None:
                    self.reader.take(self.watch.now_ms())
                await trio.sleep(0.1)


def play(story: Callable[[SimulatedClusterForTests, Onlooker], Awaitable[None]], *, by_kafka: bool = False) -> None:
    cluster = SimulatedClusterForTests(seed=1)

    async def main() -> None:
        onlooker = Onlooker(cluster, by_kafka=by_kafka)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(onlooker.watch.run)
            await story(cluster, onlooker)
            nursery.cancel_scope.cancel()

    cluster.run(main)


@pytest.mark.feature("FI-10")
def test_nodes_are_not_polled_without_a_reader() -> None:
    async def story(cluster: SimulatedClusterForTests, onlooker: Onlooker) -> None:
        asked = onlooker.network.asked
        await trio.sleep(15)
        assert onlooker.network.dials == 0
        reader = onlooker.come()
        await trio.sleep(5)
        reader.take(onlooker.watch.now_ms())
        # Twice a second, six nodes; and of each its decisions, when there are new ones.
        states = [each for each in asked if each[1].startswith("/state")]
        assert 6 * 9 <= len(states) <= 6 * 11
        onlooker.go()
        await trio.sleep(2)
        count, dials = len(asked), onlooker.network.dials
        await trio.sleep(15)
        assert (len(asked), onlooker.network.dials) == (count, dials)

    play(story)


@pytest.mark.feature("FI-10")
def test_readers_share_the_polling() -> None:
    async def story(cluster: SimulatedClusterForTests, onlooker: Onlooker) -> None:
        for _ in range(10):
            onlooker.come("flights")
        await trio.sleep(5)
        states = [each for each in onlooker.network.asked if each[1].startswith("/state")]
        assert 6 * 9 <= len(states) <= 6 * 11
        onlooker.come("orders")
        onlooker.network.asked.clear()
        await trio.sleep(5)
        states = [each for each in onlooker.network.asked if each[1].startswith("/state")]
        assert (6 + 3) * 9 <= len(states) <= (6 + 3) * 11  # brokers are asked for the other topic, too

    play(story)


@pytest.mark.feature("FI-10", "OB-07")
def test_a_killed_leader_is_dead_its_successor_leads_and_the_election_is_a_mark() -> None:
    async def story(cluster: SimulatedClusterForTests, onlooker: Onlooker) -> None:
        await cluster.create_topic("flights", partitions=1)
        victim = await cluster.leader_of("flights", 0)
        onlooker.come()
        await onlooker.until(lambda: onlooker.states().get(victim) == "running")
        active = await cluster.active_controller()
        assert onlooker.states()[active] == "leader"
        cluster.kill(victim)
        await onlooker.until(lambda: onlooker.states()[victim] == "dead")
        heir = int((await cluster.leader_of("flights", 0, other_than=victim)).removeprefix("broker-"))
        await onlooker.until(lambda: any(each["kind"] == "election" for each in onlooker.feed.marks()))
        elections = [each for each in onlooker.feed.marks() if each["subject"] == "flights-0"]
        assert any(f"-> {heir}" in each["text"] and each["decision"]["cause"] for each in elections)
        times = [each["at_ms"] for each in onlooker.feed.marks()]
        assert len({each["number"] for each in onlooker.feed.marks()}) == len(times)
        cluster.start(victim)
        await onlooker.until(lambda: onlooker.states()[victim] == "running")
        answer = [(each["node"], each["decision"]["number"], each["text"]) for each in onlooker.feed.marks()]
        assert len(set(answer)) == len(answer)  # a node that counts from 1 again is not answer twice

    play(story)


@pytest.mark.feature("OB-07")
def test_the_restart_of_a_broker_with_123_partitions_is_a_few_events() -> None:
    async def story(cluster: SimulatedClusterForTests, onlooker: Onlooker) -> None:
        await cluster.create_topic("flights", partitions=123)
        victim = await cluster.leader_of("flights", 0)
        onlooker.come()
        await onlooker.until(lambda: onlooker.states().get(victim) == "running")
        before = {each["number"] for each in onlooker.feed.marks()}
        await cluster.stop(victim)
        await onlooker.until(lambda: onlooker.states()[victim] == "dead")
        cluster.start(victim)
        await onlooker.until(lambda: onlooker.states()[victim] == "running")
        await trio.sleep(2)
        news = [each for each in onlooker.feed.marks() if each["number"] not in before]
        texts = [each["text"] for each in news]
        assert len(texts) < 30, texts
        partitions = [each["decision"]["facts"].get("partitions", 1) for each in news]
        assert sum(partitions) > 2 * 123, "each partition that it left and joined"

    play(story)


def test_a_cluster_that_fails_is_away_until_it_returns() -> None:
    async def story(cluster: SimulatedClusterForTests, onlooker: Onlooker) -> None:
        names = [*cluster.brokers, *cluster.controllers]
        onlooker.come()
        await onlooker.until(lambda: sorted(onlooker.states().values()) == WELL)
        for name in names:
            cluster.kill(name)
        await onlooker.until(lambda: onlooker.feed.newest["cluster"]["away"])
        assert set(onlooker.states().values()) == {"dead"}
        for name in names:
            cluster.start(name)
        await onlooker.until(lambda: sorted(onlooker.states().values()) == WELL)
        assert not onlooker.feed.newest["cluster"]["away"]

    play(story)


def test_a_node_that_does_not_answer_delays_no_other() -> None:
    async def story(cluster: SimulatedClusterForTests, onlooker: Onlooker) -> None:
        onlooker.come()
        await onlooker.until(lambda: onlooker.states().get("broker-1") == "running")
        cluster.pause("broker-1")
        await onlooker.until(lambda: onlooker.states()["broker-1"] == "unreachable", seconds=5)
        assert onlooker.states()["broker-2"] == "running"
        before = onlooker.feed.newest["cluster"]["at_ms"]
        await trio.sleep(5)
        assert onlooker.feed.newest["cluster"]["at_ms"] - before > 4_000
        cluster.resume("broker-1")
        await onlooker.until(lambda: onlooker.states()["broker-1"] == "running")

    play(story)


@pytest.mark.feature("OB-07")
def test_a_story_is_merged_from_all_nodes() -> None:
    async def story(cluster: SimulatedClusterForTests, onlooker: Onlooker) -> None:
        await cluster.create_topic("flights", partitions=1)
        victim = await cluster.leader_of("flights", 0)
        cluster.kill(victim)
        await cluster.leader_of("flights", 0, other_than=victim)
        found = await onlooker.watch.story_of("flights-0")
        assert found and [each["at_ms"] for each in found] == sorted(each["at_ms"] for each in found)
        assert all({"flights-0", "topic flights"} & {each["subject"], *each["also"]} for each in found)
        elected = [each for each in found if each["kind"] == "election" and "moved" in each["told"]]
        assert len(elected) == 1, "reported once"
        answer = await onlooker.watch.poll_once("flights")
        assert answer["partitions"]["partitions"][0]["index"] == 0
        assert not answer["cluster"]["away"]
        asked = len(onlooker.network.asked)
        await trio.sleep(10)
        assert len(onlooker.network.asked) == asked

    play(story)


def test_nodes_are_discovered_by_kafkas_protocol_and_then_polled_over_http() -> None:
    async def story(cluster: SimulatedClusterForTests, onlooker: Onlooker) -> None:
        await cluster.create_topic("flights", partitions=2)
        onlooker.come()
        await onlooker.until(lambda: sorted(onlooker.states().values()) == WELL)
        assert {host for host, path in onlooker.network.asked if path.startswith("/state")} >= set(cluster.brokers)

    play(story, by_kafka=True)


def test_a_cluster_without_http_is_shown_by_kafkas_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.why.node_addresses.ABOVE_LISTENER", 1)
    monkeypatch.setattr("barnabas.why.node_addresses.CONTAINER_PORT", 1)
    monkeypatch.setattr("barnabas.why.node_addresses.CONTROLLERS_ABOVE_BROKERS", 1)

    async def story(cluster: SimulatedClusterForTests, onlooker: Onlooker) -> None:
        await cluster.create_topic("flights", partitions=2)
        onlooker.come()
        seen: list[Any] = []

        def partitions() -> list[Any]:
            assert onlooker.reader is not None
            for kind, data in onlooker.reader.take(onlooker.watch.now_ms()):
                if kind == "partitions" and '"index":1' in data:
                    seen.append(data)
            return seen

        await onlooker.until(partitions)
        await onlooker.until(lambda: sorted(onlooker.states().values()) == WELL)
        answer = {node["told"] for node in onlooker.feed.newest["cluster"]["nodes"]}
        assert answer == {"by Kafka's own protocol"}
        await onlooker.until(lambda: partitions() and '"high_watermark":0' in seen[-1])
        assert '"leader_epoch":0' in seen[-1]
        assert {"name": "flights", "partitions": 2} in onlooker.feed.newest["cluster"]["topics"]
        victim = await cluster.leader_of("flights", 0)
        cluster.kill(victim)
        others = {name: state for name, state in onlooker.states().items() if name != victim}

        def victim_is_fenced() -> bool:
            """No other node is shown as gone meanwhile, although one does not answer ListOffsets."""
            states = onlooker.states()
            assert {name: states[name] for name in others} == others
            return states[victim] == "fenced"

        await onlooker.until(victim_is_fenced)
        await onlooker.until(lambda: {"election", "fencing", "isr"} <= {each["kind"] for each in onlooker.feed.marks()})
        moved = next(each["text"] for each in onlooker.feed.marks() if each["kind"] == "election")
        assert moved.startswith(f"leader of flights-0 moved {victim[-1]} -> ") and "does not report the cause" in moved
        assert (await onlooker.watch.poll_once("flights"))["partitions"]["partitions"]

    play(story, by_kafka=True)
