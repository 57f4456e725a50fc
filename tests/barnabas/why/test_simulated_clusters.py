"""`why` on simulated clusters: the injected fault is the cause in the story."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from barnabas import Consumer, Producer
from barnabas.testing.simulated import SimulatedClusterForTests
from barnabas.why.node_addresses import NodeAddress, NodeListener, find_all
from barnabas.why.node_queries import Answers, ask_all
from barnabas.why.story import Event, story

pytestmark = pytest.mark.feature("OB-07")

HTTP_PORT = 9292


def play(
    test: Callable[[SimulatedClusterForTests], Awaitable[None]], seed: int = 1, settings: dict[str, str] | None = None
) -> None:
    cluster = SimulatedClusterForTests(seed=seed, settings=settings)
    cluster.run(lambda: test(cluster))


async def ask(cluster: SimulatedClusterForTests, text: str) -> Answers:
    addresses = [NodeAddress(name, name, HTTP_PORT) for name in (*cluster.brokers, *cluster.controllers)]
    return await ask_all(cluster.world.network, addresses, text, timeout_seconds=5)


async def events_about(cluster: SimulatedClusterForTests, text: str) -> list[Event]:
    return story((await ask(cluster, text)).decisions)


def causes(events: list[Event], kind: str) -> list[str]:
    return [f"{event.what}: {event.cause}" for event in events if event.decision["kind"] == kind]


def test_a_killed_leader_is_the_cause_of_the_election() -> None:
    async def test(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights")
        victim = await cluster.leader_of("flights", 0)
        cluster.kill(victim)
        heir = await cluster.leader_of("flights", 0, other_than=victim)
        answers = await ask(cluster, "flights-0")
        assert list(answers.silent) == [victim]
        name, other = victim.replace("-", " "), heir.rpartition("-")[2]
        (moved,) = [it for it in story(answers.decisions) if it.decision["facts"].get("leader_epoch") == 1]
        assert moved.what == f"leader of flights-0 moved {victim[-1]} -> {other} in epoch 1"
        assert moved.cause.startswith(f"{name} is fenced, its heartbeat connection ended and dialling {victim}")
        assert f"{other} was first in sync among replicas" in moved.cause
        assert heir in [it["node"] for it in moved.seen_by], "the new leader reports its start offset"
        cluster.start(victim)
        await cluster.wait_ready()
        with trio.fail_after(60):
            while not any("has caught up" in it for it in causes(await events_about(cluster, "flights-0"), "isr")):
                await trio.sleep(0.5)

    play(test)


def test_a_killed_active_controller_and_the_election_that_it_decided_before() -> None:
    async def test(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights")
        victim = await cluster.leader_of("flights", 0)
        cluster.kill(victim)
        await cluster.leader_of("flights", 0, other_than=victim)
        active = await cluster.active_controller()
        cluster.kill(active)
        with trio.fail_after(60):
            while await cluster.active_controller() == active:
                await trio.sleep(0.1)
        events = await events_about(cluster, "quorum")
        led = [it for it in events if "leads the quorum" in it.what]
        refused = f"the connection to {active.replace('-', ' ')} ended and dialling it was refused"
        assert refused in led[-1].cause and "elected by" in led[-1].cause
        moved = (await events_about(cluster, "flights-0"))[-1]
        assert f"{victim.replace('-', ' ')} is fenced, its process was seen to be gone" in moved.cause

    play(test)


def test_a_paused_broker_is_fenced_when_its_session_expires() -> None:
    async def test(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights")
        victim = await cluster.leader_of("flights", 0)
        cluster.pause(victim)
        await cluster.leader_of("flights", 0, other_than=victim)
        (fenced,) = causes(await events_about(cluster, victim), "fencing")[-1:]
        assert " ms expired, no heartbeat for " in fenced
        cluster.resume(victim)

    play(test)


def test_a_group_whose_member_leaves() -> None:
    async def test(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights")
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with Producer(**options) as producer:
            await producer.send("flights", b"x")
        async with Consumer(**options, group_id="etl", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["flights"])
            while not await consumer.poll(500):
                pass
        events = await events_about(cluster, "etl")
        rebalances = causes(events, "rebalance")
        assert any("begins generation 1 with 1 members" in it for it in rebalances)
        assert rebalances[-1].endswith(" left")

    play(test)


def test_http_ports_of_containers_are_found_from_kafka_listeners() -> None:
    async def test(cluster: SimulatedClusterForTests) -> None:
        listeners = [NodeListener("broker", int(name[-1]), name, 9092) for name in cluster.brokers]
        listeners += [NodeListener("controller", int(name[-3:]), name, 9093) for name in cluster.controllers]
        found = await find_all(cluster.world.network, listeners)
        assert found == [NodeAddress(it.name, it.name, HTTP_PORT) for it in listeners]

    play(test)


def test_an_unknown_subject_is_answered_with_the_known_ones() -> None:
    async def test(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights")
        answers = await ask(cluster, "fligths")
        assert answers.wanted == [] and answers.decisions == [] and not answers.silent
        assert "topic flights" in answers.subjects

    play(test)


def test_a_seed_replays_to_the_same_story() -> None:
    runs: list[str] = []

    async def test(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("flights", partitions=3)
        victim = await cluster.leader_of("flights", 0)
        cluster.kill(victim)
        await cluster.leader_of("flights", 0, other_than=victim)
        found = [await ask(cluster, text) for text in ("flights", "quorum", victim)]
        runs.append(json.dumps([[it.decisions, it.subjects] for it in found]))

    for _ in range(2):
        play(test, seed=7)
    assert runs[0] == runs[1] and "moved" in runs[0]
