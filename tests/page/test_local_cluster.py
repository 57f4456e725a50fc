"""A page over six real nodes: links, load and actions, and the cluster after its page has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.cli.main import run
from barnabas.cluster.breakable_programs import is_breakable
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.processes import ProcessId
from barnabas.page.control import Faults
from barnabas.page.feed import Feed
from barnabas.page.load import LoadRunner
from barnabas.page.local_side import LocalSide, open_for_faults, open_read_only, until_ready
from barnabas.page.show import addresses_of
from barnabas.page.watch import Watch
from barnabas.runtime.real import real_world
from tests.eventually import eventually


class Stage:
    """A cluster with links, a watch, a load."""

    def __init__(self, side: LocalSide) -> None:
        self.side = side
        world = real_world()
        self.feed = Feed()
        self.watch = Watch(
            world, self.feed, addresses_of(side.cluster.layout), processes=side.processes, cut=lambda: side.cut
        )
        self.faults = Faults(side, self.feed, world.wall_clock)
        self.load = LoadRunner(world, side.cluster.bootstrap_servers, self.feed)
        self.watch.at_each_poll.append(self.load.publish)
        self.reader = self.feed.join("demo", lambda: None, self.watch.now_ms())

    def state(self, name: str) -> str:
        nodes = self.feed.newest.get("cluster", {"nodes": []})["nodes"]
        return next((str(node["state"]) for node in nodes if node["name"] == name), "")

    async def leader(self) -> str:
        """The leader of the first partition, as soon as it has one."""
        with trio.fail_after(60):
            while True:
                answer = await self.watch.poll_once("demo")
                for partition in answer["partitions"]["partitions"][:1]:
                    if partition["leader"] is not None:
                        return f"broker-{partition['leader']}"
                await trio.sleep(0.05)

    async def until(self, holds: Callable[[], Any]) -> None:
        with trio.fail_after(60):
            while not holds():
                self.reader.take(self.watch.now_ms())
                await trio.sleep(0.05)


@pytest.mark.feature("FI-10")
def test_a_leader_is_killed_by_a_button_and_no_record_is_lost(tmp_path: Path) -> None:
    side = open_for_faults(tmp_path / "cluster", free_base_port(), {}, lambda text: None)

    async def story() -> None:
        stage = Stage(side)
        async with trio.open_nursery() as nursery:
            await until_ready(side)
            nursery.start_soon(stage.watch.run)
            await nursery.start(stage.load.run)
            stage.load.start()
            await stage.load.flowing.wait()
            await stage.until(lambda: stage.state("broker-1") == "running")
            victim = await stage.leader()
            await stage.faults.kill(victim)
            await stage.until(lambda: stage.state(victim) == "dead")
            await stage.until(lambda: any(each["subject"] == "demo-0" for each in stage.feed.marks()[5:]))
            await stage.faults.start(victim)
            await stage.until(lambda: stage.state(victim) == "running")
            await stage.faults.pause(victim)
            await stage.until(lambda: stage.state(victim) == "paused")
            await stage.faults.resume(victim)
            await stage.until(lambda: stage.state(victim) in ("running", "catching up"))
            await stage.faults.cut("controller-102", "controller-103", cut=True)
            await stage.until(lambda: stage.feed.newest["cluster"]["cut"] == [["controller-102", "controller-103"]])
            await stage.faults.cut("controller-103", "controller-102", cut=False)
            await stage.until(lambda: stage.feed.newest["cluster"]["cut"] == [])
            await stage.faults.kill("controller-103")
            # `barnabas cluster start` does this, and knows of no page.
            command = LocalCluster(tmp_path / "cluster")
            await trio.to_thread.run_sync(command.start, "controller-103")
            process = ProcessId.read(command.layout.pid_file(command.layout.node("controller-103")))
            assert process is not None and is_breakable(process)
            await stage.until(lambda: stage.state("controller-103") == "follower")
            stage.load.stop()
            verdict = await stage.load.ended()
            assert verdict.clean and verdict.acked > 100
            nursery.cancel_scope.cancel()

    try:
        trio.run(story)
        with pytest.raises(ClusterError, match="another page controls"):
            open_for_faults(tmp_path / "cluster", None, {}, lambda text: None)
        assert open_read_only(tmp_path / "cluster").close() is False
    finally:
        assert side.close()
    assert set(side.processes().values()) == {"stopped"}


def test_a_running_cluster_is_used_and_left_running(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster", free_base_port())
    cluster.up()
    answer: list[str] = []
    try:
        side = open_for_faults(tmp_path / "cluster", None, {}, answer.append)
        assert side.links is None and "links cannot be cut" in answer[0]
        assert side.close() is False
        assert set(side.processes().values()) == {"running"}
    finally:
        cluster.down()


def test_the_next_page_takes_over_from_one_that_was_killed(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    killed = open_for_faults(data, free_base_port(), {}, lambda text: None)
    assert killed.links is not None
    killed.links.set_cut("broker-1", "broker-2", cut=True)
    before = {node.name: node.pid for node in killed.cluster.processes()}
    killed.release_lock()
    answer: list[str] = []
    side = open_for_faults(data, None, {}, answer.append)
    try:
        assert "taking over the cluster" in answer[0]
        assert {node.name: node.pid for node in side.cluster.processes()} == before
        # Links that it does not show as cut are whole.
        assert side.cut == []
        trio.run(until_ready, side)
    finally:
        assert side.close()
    assert set(side.processes().values()) == {"stopped"}


def test_links_of_a_secure_cluster_are_cut_and_it_has_no_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = LocalCluster(tmp_path, free_base_port())
    cluster.make_secure()
    cluster.layout.save()
    assert run(["page", "--data", str(tmp_path), "--port", "0", "--allow-faults", "--load"]) == 2
    assert "which a secure cluster denies" in capsys.readouterr().err
    side = open_for_faults(tmp_path, None, {}, lambda text: None)
    try:
        trio.run(until_ready, side)
        assert side.links is not None
        for other in ("broker-1", "broker-2", "controller-101", "controller-102", "controller-103"):
            side.links.set_cut("broker-3", other, cut=True)
        eventually(lambda: "does not see brokers [3]" in side.cluster.not_ready())
        side.links.heal()
        trio.run(until_ready, side)
    finally:
        assert side.close()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--bootstrap", "127.0.0.1:1", "--allow-faults"], "need the local cluster"),
        (["--bootstrap", "nonsense"], "must be HOST:PORT"),
        (["--tour"], "need --allow-faults"),
        (["--load"], "need --allow-faults"),
        (["--base-port", "20000"], "for a cluster that the page starts"),
        (["--set", "num.partitions=3"], "for a cluster that the page starts"),
        (["--port", "70000"], "--port"),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["page", "--data", str(tmp_path), *words]) == 2
    answer = capsys.readouterr().err
    assert why in answer and answer.count("\n") == 1


def test_a_port_in_use_is_reported_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run(["page", "--data", str(tmp_path), "--port", port, "--allow-faults"]) == 1
    answer = capsys.readouterr().err
    assert f"127.0.0.1:{port}: Address already in use; choose another --port" in answer and answer.count("\n") == 1
    assert not (tmp_path / "run").exists()
