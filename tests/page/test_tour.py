"""The tour on six real nodes, and on a cluster that does not recover."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.status import ClusterStatus, NodeStatus, PartitionStatus, QuorumStatus
from barnabas.demo.ledger import Verdict
from barnabas.page.control import Faults, NotNow
from barnabas.page.feed import Feed
from barnabas.page.load import LoadRunner, TimedLedger
from barnabas.page.local_side import open_for_faults, until_ready
from barnabas.page.show import apache_kafka
from barnabas.page.tour import Tour
from barnabas.runtime.real import real_world

WINDOWS = ["no fault", "kill leader", "start leader", "kill controller", "start controller"]


@pytest.mark.slow
@pytest.mark.feature("FI-10")
def test_the_tour_injects_all_faults_and_loses_nothing(tmp_path: Path) -> None:
    side = open_for_faults(tmp_path / "cluster", free_base_port(), {}, lambda text: None)
    feed = Feed()

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            await until_ready(side)
            load = LoadRunner(real_world(), side.cluster.bootstrap_servers, feed)
            tour = Tour(Faults(side, feed, real_world().wall_clock), load, feed, apache_kafka())
            await nursery.start(load.run)
            await nursery.start(tour.run)
            tour.start()
            with pytest.raises(NotNow):
                tour.start()
            with trio.fail_after(300):
                while tour.is_running:
                    await trio.sleep(0.2)
            nursery.cancel_scope.cancel()

    try:
        trio.run(story)
        assert set(side.processes().values()) == {"running"} and side.cut == []
    finally:
        side.close()
    answer = feed.newest["tour"]
    summary = answer["summary"]
    assert answer["finished"] and answer["step"] == answer["of"] == 10, answer["text"]
    assert summary["acked"] > 1_000
    assert (summary["lost"], summary["duplicated"], summary["out_of_order"]) == (0, 0, 0)
    names = [window["what"] for window in summary["windows"]]
    assert names == [*WINDOWS, "cut link", "heal link", "pause leader", "resume leader"]
    gaps = {window["what"]: window for window in summary["windows"]}
    # The session of a broker would last 9 s: that a killed one is gone is noticed, not waited for.
    assert gaps["kill leader"]["gap_ms"] < 5_000 < gaps["kill leader"]["apache_kafka_gap_ms"]
    assert len([mark for mark in feed.marks() if mark["kind"] == "fault" and mark["subject"] != "load"]) == 8


class FakeLoad:
    """Its records are acked at once."""

    def __init__(self) -> None:
        self.ledger = TimedLedger("run", 3, lambda: 0)
        self.flowing = trio.Event()
        self.flowing.set()
        self.is_running = False
        self.done: list[str] = []

    def start(self) -> None:
        self.is_running = True
        self.done.append("start")

    def stop(self) -> None:
        self.done.append("stop")

    async def ended(self) -> Verdict:
        self.is_running = False
        return self.ledger.verdict()


class FakeCluster:
    """Three brokers without failover: a killed one stays dead until it is started."""

    def __init__(self) -> None:
        self.states = {"broker-1": "running", "broker-2": "running", "broker-3": "running"}

    def status(self, topics: Any) -> ClusterStatus:
        nodes = [NodeStatus(name, "broker", 0, state, None) for name, state in self.states.items()]
        partitions = [PartitionStatus("demo", index, 1, 0, [1], [1], 0) for index in range(3)]
        return ClusterStatus("c", "", nodes, QuorumStatus(101, 1, 1), [1], partitions)


class FakeFaults:
    def __init__(self) -> None:
        cluster = FakeCluster()

        class Side:
            links = None
            cut: tuple[Any, ...] = ()
            processes: Callable[[], Any] = staticmethod(lambda: dict(cluster.states))

        self.side: Any = Side()
        self.side.cluster = cluster

    async def kill(self, name: str) -> None:
        self.side.cluster.states[name] = "dead"

    async def start(self, name: str) -> None:
        self.side.cluster.states[name] = "running"


async def test_an_aborted_tour_is_reported_and_repairs_its_faults(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    monkeypatch.setattr("barnabas.page.tour.trio.to_thread.run_sync", _at_once)
    feed, load, faults = Feed(), FakeLoad(), FakeFaults()
    tour = Tour(faults, load, feed, {})  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        await nursery.start(tour.run)
        tour.start()
        while tour.is_running:
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    answer = feed.newest["tour"]
    assert answer["finished"] and answer["summary"] is None
    assert answer["text"] == "the tour was aborted: not within 90 s: other brokers lead"
    assert faults.side.cluster.states["broker-1"] == "running"
    assert load.done == ["start", "stop"]  # it was the tour's own
    with pytest.raises(ClusterError):
        tour.stop()


async def _at_once(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return work(*arguments)
