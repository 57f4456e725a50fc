"""The worlds that need more than a user has: one line where they cannot be, and nothing left where they were."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import trio

from barnabas import Admin, NewTopic, Producer
from barnabas.cluster.errors import ClusterError
from nemeses.changes import Operator, Quorum
from nemeses.nemesis import Fault, Nemesis
from operations import Place
from worlds import compose, netns
from worlds.cluster import LinkFault
from worlds.netns import NetnsWorld
from worlds.packets import CLIENT, Packets
from worlds.world_options import WorldOptions, run_in


async def nothing(_cluster: object) -> None:
    raise AssertionError("there is no cluster")


@pytest.mark.feature("FI-03")
def test_without_root_there_are_no_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="network namespaces need root: --cluster local"):
        run_in(WorldOptions("netns", 1, tmp_path), nothing)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ClusterError, match="ip is not here"):
        run_in(WorldOptions("netns", 1, tmp_path), nothing)


@pytest.mark.feature("FI-03")
def test_without_docker_there_are_no_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(ClusterError, match="--cluster compose"):
        run_in(WorldOptions("compose", 1, tmp_path), nothing)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ClusterError, match="needs docker, which is not here: use --cluster local"):
        run_in(WorldOptions("compose", 1, tmp_path), nothing)


@pytest.mark.feature("FI-04")
def test_iptables_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    monkeypatch.setattr("worlds.packets.run", lambda *words: commands.append(" ".join(words)))
    packets = Packets(lambda name: ["in", name], {"a": "10.0.0.1", "b": "10.0.0.2", CLIENT: "10.0.0.9"}.__getitem__)
    packets.cut("a", "b", is_cut=True)
    packets.cut("a", "b", is_cut=True)
    packets.cut("a", CLIENT, is_cut=True)
    packets.set_link(CLIENT, "b", LinkFault(loss=0.25))
    drop, to_client = "INPUT -s 10.0.0.1 -p tcp -j DROP", "OUTPUT -d 10.0.0.9 -p tcp -j DROP"
    lossy = "INPUT -s 10.0.0.9 -p tcp -m statistic --mode random --probability 0.2500 -j DROP"
    assert commands == [
        f"in b iptables -w -A {drop}",
        f"in b iptables -w -D {drop}",
        f"in b iptables -w -A {drop}",
        f"in a iptables -w -A {to_client}",
        f"in b iptables -w -A {lossy}",
    ]
    commands.clear()
    packets.renew("b")
    assert commands == [f"in b iptables -w -A {drop}", f"in b iptables -w -A {lossy}"]
    commands.clear()
    packets.cut("a", "b", is_cut=False)
    packets.heal()
    packets.heal()
    assert sorted(commands) == sorted(
        [f"in b iptables -w -D {drop}", f"in a iptables -w -D {to_client}", f"in b iptables -w -D {lossy}"]
    )


@pytest.mark.feature("FI-03", "FI-04")
def test_a_stopped_node_gets_its_rules_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    alive = {"a": True, "b": True}

    monkeypatch.setattr("worlds.packets.run", lambda *words: commands.append(" ".join(words)))
    packets = Packets(
        lambda name: ["in", name] if alive[name] else None, {"a": "10.0.0.1", "b": "10.0.0.2"}.__getitem__
    )
    packets.cut("a", "b", is_cut=True)
    alive["b"] = False
    commands.clear()
    packets.cut("a", "b", is_cut=False)
    packets.cut("a", "b", is_cut=True)
    assert not commands, "its namespace went with it"
    alive["b"] = True
    packets.renew("b")
    assert commands == ["in b iptables -w -A INPUT -s 10.0.0.1 -p tcp -j DROP"]

    def dies(*_words: str) -> None:
        alive["b"] = False
        raise ClusterError("nsenter: cannot open /proc/17/ns/net")

    monkeypatch.setattr("worlds.packets.run", dies)
    packets.heal()
    assert not alive["b"]

    def refuses(*_words: str) -> None:
        raise ClusterError("iptables: refused")

    alive["b"] = True
    monkeypatch.setattr("worlds.packets.run", refuses)
    with pytest.raises(ClusterError, match="refused"):
        packets.cut("a", "b", is_cut=True)


PLACE = Place("t", 0)


def mentions_of(tag: str) -> str:
    """Namespaces, links and rules of one fabric that are left on the machine."""
    commands = [
        subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for words in (("ip", "netns"), ("ip", "-o", "link"), ("iptables", "-S"))
    ]
    return "\n".join(line for line in "".join(commands).splitlines() if tag in line)


@pytest.mark.slow
@pytest.mark.feature("FI-03", "FI-04")
def test_real_packets_are_dropped(tmp_path: Path) -> None:
    if reason := netns.reason_against():
        pytest.skip(reason)
    tags: list[str] = []

    async def tale(cluster: NetnsWorld) -> None:
        tags.append(cluster.tag)
        assert len(mentions_of(cluster.tag).splitlines()) >= 14
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.create_topics(NewTopic(PLACE.topic, num_partitions=1, replication_factor=3))
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send(PLACE.topic, b"value", partition=0)
            led_by = await cluster.leader_of(PLACE)
            assert led_by is not None and "message" in cluster.cannot
            # It receives nothing, while all receive from it; the observer's connections are let through.
            for other in (*cluster.brokers, *cluster.controllers, "client"):
                if other != led_by:
                    await cluster.cut(other, led_by)
            with trio.fail_after(40):
                while await cluster.leader_of(PLACE) in (None, led_by):
                    await trio.sleep(0.1)
            assert led_by in [each.node for each in await cluster.memberships()]
            assert (await producer.send(PLACE.topic, b"value", partition=0)).offset == 1
            await cluster.heal()
            with trio.fail_after(40):
                while not all(len(each.isr) == 3 for each in await cluster.memberships() if each.place == PLACE):
                    await trio.sleep(0.1)
            await cluster.kill(led_by)
            await cluster.start(led_by)
            await cluster.wait_ready()

    run_in(WorldOptions("netns", 1, tmp_path, faults=("partition",)), tale)
    assert mentions_of(tags[0]) == ""


@pytest.mark.slow
@pytest.mark.feature("FI-04", "KR-14")
def test_voters_in_namespaces_are_added_and_removed(tmp_path: Path) -> None:
    if reason := netns.reason_against():
        pytest.skip(reason)

    async def tale(cluster: NetnsWorld) -> None:
        assert "voters" not in cluster.cannot
        nemesis = Nemesis(cluster, ["voters"], random.Random(1), 1.0)
        operator = Operator(Fault(nemesis, 1, "voters", random.Random(1), 1.0))

        async def quorum_of(voters: int, observers: int) -> Quorum:
            with trio.fail_after(40):
                while True:
                    quorum = await operator.quorum()
                    if quorum and (len(quorum.voters), len(quorum.observers)) == (voters, observers):
                        return quorum
                    await trio.sleep(0.1)

        first = await quorum_of(3, 1)
        assert await operator.add(first.observers[0])
        await quorum_of(4, 0)
        assert await operator.remove(first.voters[0])
        await quorum_of(3, 1)

    run_in(WorldOptions("netns", 1, tmp_path, faults=("voters",)), tale)


@pytest.mark.docker
@pytest.mark.feature("FI-03", "FI-04")
def test_containers(tmp_path: Path) -> None:
    if reason := compose.reason_against():
        pytest.skip(reason)

    async def tale(cluster: compose.ComposeWorld) -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.create_topics(NewTopic(PLACE.topic, num_partitions=1, replication_factor=3))
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send(PLACE.topic, b"value", partition=0)
            led_by = await cluster.leader_of(PLACE)
            assert led_by is not None
            await cluster.kill(led_by)
            assert (await cluster.states())[led_by] == "dead"
            assert (await producer.send(PLACE.topic, b"value", partition=0)).offset == 1
            await cluster.start(led_by)
            await cluster.wait_ready()
            if "partition" not in cluster.cannot:
                led_by = await cluster.leader_of(PLACE)
                assert led_by is not None
                for other in (*cluster.brokers, *cluster.controllers):
                    if other != led_by:
                        await cluster.cut(led_by, other)
                with trio.fail_after(40):
                    while await cluster.leader_of(PLACE) in (None, led_by):
                        await trio.sleep(0.1)
                await cluster.heal()
            await cluster.pause("broker-1")
            assert (await cluster.states())["broker-1"] == "paused"
            await cluster.resume("broker-1")
            await cluster.wait_ready()

    run_in(WorldOptions("compose", 1, tmp_path), tale)
    assert "jepsen-" not in subprocess.run(["docker", "ps", "-a"], capture_output=True, text=True, check=True).stdout
    assert (tmp_path / "logs" / "broker-1.log").stat().st_size
