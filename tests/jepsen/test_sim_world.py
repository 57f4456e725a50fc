"""The simulated cluster under test: what its faults do, and that a seed gives the same run to the last byte."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from barnabas import Admin, NewTopic, Producer
from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.rules import MessageRule
from barnabas.protocol.api_keys import ApiKey
from nemeses.kinds import FAULTS
from nemeses.messages import AMONG_NODES, PROVOKED_SECONDS, draw
from operations import Place
from running.experiment import NODE_SETTINGS, VALID, carry_out
from running.plan import Plan
from simulation.cluster import SimCluster
from tests.jepsen import sim_story
from worlds.cluster import ClusterUnderTest, Damage, LinkFault
from worlds.world_options import WorldOptions, run_in

ROOT = Path(__file__).resolve().parents[2]
STORY = Path(__file__).with_name("sim_story.py")
PLACE = Place("t", 0)


def in_sim(directory: Path, main: Callable[[SimCluster], Awaitable[None]]) -> None:
    run_in(WorldOptions("sim", 5, directory), main)  # type: ignore[arg-type]


def play_elsewhere(directory: Path, hash_seed: str, seed: int) -> bytes:
    """In a process with another order of sets."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'jepsen-style'}"}
    subprocess.run([sys.executable, STORY, directory, str(seed)], env=environment, timeout=300, check=True)
    return (directory / "history.jsonl").read_bytes()


@pytest.mark.feature("FI-05")
def test_a_seed_gives_the_same_history_byte_for_byte_whatever_the_hash_seed(tmp_path: Path) -> None:
    first = play_elsewhere(tmp_path / "a", "1", 5)
    sim_story.play(tmp_path / "b", 5)
    assert (tmp_path / "b" / "history.jsonl").read_bytes() == first
    for name in ("views.jsonl", "coverage.json", "logs/broker-1.log"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    found = [json.loads(line) for line in first.decode().splitlines()]
    assert sum(each["type"] == "ok" for each in found) > 20
    promises = json.loads((tmp_path / "a" / "promises.json").read_text())
    assert promises["kept"] and promises["nodes_struck"] > 8, promises
    cells = json.loads((tmp_path / "a" / "coverage.json").read_text())["cells"]
    assert cells["after replica.fetched.written"]["kill-at"] == 1
    assert cells["follows in the ISR"]["pause"] == 1


async def write(cluster: SimCluster, host: str = "client-0", seconds: float = 2.0) -> int | None:
    """The offset of a new record, None if it was not acked in this time."""
    with trio.move_on_after(seconds):
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world(host)) as producer:
            offset: int = (await producer.send(PLACE.topic, value=b"x", partition=PLACE.partition)).offset
            return offset
    return None


async def make_topic(cluster: SimCluster) -> str:
    """Its leader."""
    async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world("client-9")) as admin:
        await admin.create_topics([NewTopic(PLACE.topic, num_partitions=1, replication_factor=3)])
    leader = await cluster.leader_of(PLACE)
    assert leader is not None
    return leader


@pytest.mark.feature("FI-05")
def test_links_of_clients_are_cut_those_of_later_ones_too(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        leader = await make_topic(cluster)
        assert await write(cluster) == 0
        await cluster.cut("client", leader)
        assert await write(cluster, "client-3") is None, "it came after the cut, and is a client like the others"
        await cluster.mend("client", leader)
        assert await write(cluster, "client-4") is not None
        await cluster.set_link(leader, "client", LinkFault(half_open=True))
        assert await write(cluster, "client-5") is None
        await cluster.heal()
        assert await write(cluster, "client-5") is not None

    in_sim(tmp_path, story)


@pytest.mark.feature("FI-05")
def test_nodes_die_lose_their_power_and_their_disks(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        leader = await make_topic(cluster)
        await write(cluster)
        follower = next(name for name in cluster.brokers if name != leader)
        await cluster.pause(leader)
        assert (await cluster.states())[leader] == "paused"
        assert not any(view.node == leader for view in await cluster.views())
        await cluster.kill(leader)
        with pytest.raises(ClusterError, match="runs: stop or kill it"):
            await cluster.wipe(follower)
        assert await cluster.damage(leader, Damage("truncate", "t-0/*.log", bytes_=10))
        await cluster.start(leader)
        await cluster.wait_ready()
        while any(len(each.isr) < 3 for each in await cluster.memberships()):
            await trio.sleep(0.5)
        leads = await cluster.leader_of(PLACE)
        follower = next(name for name in cluster.brokers if name != leads)
        await cluster.kill_at(follower, "replica.fetched.written", power_cut=True)
        await write(cluster, "client-1")
        assert await cluster.disarm(follower)
        assert (await cluster.states())[follower] == "dead"
        await cluster.wipe(follower)
        await cluster.start(follower)
        await cluster.wait_ready()
        await cluster.stop(follower)
        await cluster.unregister(follower)
        await cluster.start(follower)
        await cluster.wait_ready()
        with pytest.raises(ClusterError, match="there is no node broker-9"):
            await cluster.kill("broker-9")

    in_sim(tmp_path, story)
    assert json.loads((tmp_path / "promises.json").read_text())["kept"]


@pytest.mark.feature("FI-03", "FI-05")
def test_a_coordinator_is_frozen_between_its_decision_and_the_markers(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        await make_topic(cluster)
        world = cluster.world("client-0")
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, world=world, transactional_id="pays")
        async with producer:
            async with producer.transaction():
                await producer.send(PLACE.topic, value=b"x", partition=PLACE.partition)
            coordinator = await cluster.coordinator_of("transaction", "pays")
            assert coordinator is not None
            await cluster.pause_at(coordinator, "transactions.prepared")
            assert (await cluster.states())[coordinator] == "running"
            with trio.move_on_after(2):
                async with producer.transaction():
                    await producer.send(PLACE.topic, value=b"x", partition=PLACE.partition)
                while (await cluster.states())[coordinator] == "running":
                    await trio.sleep(0.1)
            assert (await cluster.states())[coordinator] == "paused"
            assert await cluster.disarm(coordinator) and not await cluster.disarm(coordinator)
            await cluster.resume(coordinator)
        await cluster.wait_ready()

    in_sim(tmp_path, story)
    cells = json.loads((tmp_path / "coverage.json").read_text())["cells"]
    assert cells["coordinates a transaction in PREPARE_COMMIT"]["pause-at"] == 1
    assert cells["after transactions.prepared"]["pause-at"] == 1
    assert json.loads((tmp_path / "promises.json").read_text())["kept"]


@pytest.mark.feature("FI-05")
def test_a_broken_promise_is_reported_at_once_and_recorded(tmp_path: Path) -> None:
    found: list[str] = []

    async def story(cluster: SimCluster) -> None:
        cluster.on_broken = found.append
        cluster.cluster.on_failure and cluster.cluster.on_failure("broker-1", ValueError("a mistake"))
        assert found
        known: ClusterUnderTest = cluster
        assert all(kind in FAULTS for kind in known.cannot)

    in_sim(tmp_path, story)
    promises = json.loads((tmp_path / "promises.json").read_text())
    assert not promises["kept"]
    assert "broker-1 ended by itself: ValueError: a mistake" in promises["broken"][0] == found[0]


@pytest.mark.feature("FI-05")
def test_single_messages_are_held_dropped_and_answered_by_a_reset(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        leader = await make_topic(cluster)

        async def is_taken(rule: MessageRule | None) -> bool:
            number = await cluster.add_rule(rule) if rule is not None else 0
            taken = await write(cluster, "client-1", seconds=3.0) is not None
            await cluster.clear_rule(number)
            return taken

        held = MessageRule(int(ApiKey.PRODUCE), "request", "hold", source="client", target=leader)
        assert await is_taken(None)
        for rule in (held, replace(held, direction="response"), replace(held, action="drop")):
            assert not await is_taken(rule), rule
        assert not await is_taken(replace(held, direction="response", action="reset"))
        assert await is_taken(replace(held, action="delay", delay_ms=500.0))
        assert await is_taken(replace(held, source="broker-1")), "nobody but clients produces"
        assert await is_taken(replace(held, api_key=int(ApiKey.END_TXN)))
        follower = next(name for name in cluster.brokers if name != leader)
        fetches = MessageRule(int(ApiKey.FETCH), "request", "hold", source=follower, target=leader)
        number = await cluster.add_rule(fetches)
        assert await write(cluster, "client-2", seconds=20.0) is not None, "acknowledged without the follower"
        # The leader acknowledges when its change is accepted, just before its metadata shows it.
        with trio.fail_after(5):
            while any(follower in each.isr for each in await cluster.memberships() if each.node == leader):
                await trio.sleep(0.01)
        assert await cluster.clear_rule(number) >= 1, "it returns the number of messages it met"
        silent = await cluster.add_rule(replace(held, api_key=int(ApiKey.VOTE), source=None))
        assert await cluster.clear_rule(silent) == 0
        while any(len(each.isr) < 3 for each in await cluster.memberships()):
            await trio.sleep(0.5)

    in_sim(tmp_path, story)
    assert json.loads((tmp_path / "promises.json").read_text())["kept"]


@pytest.mark.feature("FI-03", "FI-05")
def test_messages_between_nodes_can_be_wished_for(tmp_path: Path) -> None:
    """Compares the list of `nemeses.messages` with a cluster that loses leaders and a disk and ends transactions."""
    sent: dict[ApiKey, None] = {}

    async def story(cluster: SimCluster) -> None:
        await make_topic(cluster)
        world = cluster.world("client-0")
        servers = cluster.bootstrap_servers
        async with Producer(bootstrap_servers=servers, world=world, transactional_id="pays") as producer:
            for _ in range(2):
                async with producer.transaction():
                    await producer.send(PLACE.topic, value=b"x", partition=PLACE.partition)
                leader, active = await cluster.leader_of(PLACE), await cluster.active_controller()
                assert leader is not None and active is not None
                await cluster.stop(leader)
                await cluster.wipe(leader)
                await cluster.stop(active)
                await cluster.start(leader, active)
                await cluster.wait_ready()
        nodes = {*cluster.brokers, *cluster.controllers}
        sent.update({ApiKey(way.api_key): None for way in await cluster.asked() if way.source in nodes})

    in_sim(tmp_path, story)
    # Clients send CreateTopics, too, and brokers for internal topics.
    assert set(sent) <= {*AMONG_NODES, ApiKey.CREATE_TOPICS}
    assert set(AMONG_NODES) - set(sent) <= {ApiKey.FETCH_SNAPSHOT, ApiKey.LIST_OFFSETS}


@pytest.mark.feature("FI-03", "FI-05")
def test_messages_that_only_a_change_causes_are_provoked(tmp_path: Path) -> None:
    """None of 52 faults of VOTE, BEGIN_QUORUM_EPOCH and ALTER_PARTITION had met a message: nothing ever changed."""
    met: dict[str, int] = {}

    async def story(cluster: SimCluster) -> None:
        await make_topic(cluster)
        for seed in range(100):
            drawn = await draw(random.Random(seed), cluster, {})
            if drawn is None or drawn.api_name in met:
                continue
            assert drawn.provoked_by is not None
            number, provoking = [await cluster.add_rule(rule) for rule in (drawn.rule, drawn.provoked_by)]
            await trio.sleep(PROVOKED_SECONDS)
            await cluster.clear_rule(provoking)
            await trio.sleep(5.0)
            met[drawn.api_name] = await cluster.clear_rule(number)
            await cluster.wait_ready()
            assert await write(cluster, "client-1", seconds=20.0) is not None

    run_in(WorldOptions("sim", 5, tmp_path, NODE_SETTINGS), story)  # type: ignore[arg-type]
    assert set(met) == {"VOTE", "BEGIN_QUORUM_EPOCH", "ALTER_PARTITION"} and all(met.values()), met


@pytest.mark.feature("FI-03", "FI-05")
@pytest.mark.parametrize("workload", ["offsets", "metadata"])
def test_faults_of_messages_meet_some_whatever_clients_do(tmp_path: Path, workload: str) -> None:
    """Neither workload sends a record or ends a transaction, and each of their faults of clients met nothing."""
    plan = Plan(
        workload,
        seed=3,
        cluster="sim",
        nemesis=("message",),
        store=tmp_path,
        time=40.0,
        rate=15.0,
        interval=5.0,
        concurrency=4,
        quiet=3.0,
    )
    outcome = carry_out(plan, lambda _line: None)
    assert outcome.exit_code == VALID, outcome.summary
    lines = (outcome.directory / "history.jsonl").read_text().splitlines()
    values = [found["value"] for found in map(json.loads, lines) if found["f"] == "heal" and found["type"] == "info"]
    # Those that had their time, and not the last ones.
    met = [value["met"] for value in values if "api" in value]
    # Two faults at a time: what one holds up the other may wait for in vain.
    assert len(met) >= 8 and met.count(0) <= len(met) / 3, met


@pytest.mark.slow
@pytest.mark.feature("FI-05")
def test_a_whole_run_with_every_fault_is_the_same_again(tmp_path: Path) -> None:
    def history(hash_seed: str) -> bytes:
        store = tmp_path / hash_seed
        words = ["run", "queue", "--cluster", "sim", "--nemesis", ",".join(FAULTS), "--seed", "11", "--store", store]
        words += ["--time", "12", "--interval", "2", "--rate", "20", "--concurrency", "4", "--quiet", "3"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, ROOT / "jepsen-style", *words], env=environment, timeout=600, check=True)
        [path] = store.glob("*/history.jsonl")
        return path.read_bytes()

    assert history("1") == history("77")
