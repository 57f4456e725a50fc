"""The scenarios: scripts of faults under load."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import trio

from barnabas.cluster.local import LocalCluster
from barnabas.cluster.status import ClusterStatus
from barnabas.demo.ledger import Ledger
from barnabas.demo.status_watch import StatusWatch, is_whole
from barnabas.demo.zombie import write_to

RECOVERY_SECONDS = 90.0
"""Time limit for the cluster to recover."""


@dataclass(slots=True)
class Stage:
    """The cluster under load, for scenarios."""

    cluster: LocalCluster
    watch: StatusWatch
    ledger: Ledger
    topic: str
    topic_id: bytes
    beat_seconds: float
    report: Callable[[str], None]
    report_fault: Callable[[str], None]
    now_ms: Callable[[], int]
    findings: dict[str, object] = field(default_factory=dict)
    """Results of a scenario for the summary."""

    async def beats(self, count: float) -> None:
        await trio.sleep(count * self.beat_seconds)

    async def act(self, what: str, work: Callable[[], object]) -> None:
        """Injects a fault. Gaps from now on are attributed to it."""
        self.ledger.begin_window(what, self.now_ms())
        self.report_fault(what)
        await trio.to_thread.run_sync(work)

    def leader(self) -> str:
        """The broker that leads the first partition."""
        return f"broker-{self.watch.status.partitions[0].leader}"

    async def active_controller(self) -> str:
        await self.watch.until("a controller is active", lambda status: status.quorum is not None, RECOVERY_SECONDS)
        quorum = self.watch.status.quorum
        assert quorum is not None
        return f"controller-{quorum.leader}"

    async def recovered(self) -> None:
        """Waits until every node runs, every replica is in sync and every controller has caught up."""
        since_ms = time.time_ns() // 1_000_000

        def holds(status: ClusterStatus) -> bool:
            quorum = status.quorum
            return is_whole(status) and quorum is not None and all(at > since_ms for at in quorum.voters.values())

        await self.watch.until("every node runs and every replica is in sync", holds, RECOVERY_SECONDS)
        took_ms = self.now_ms() - self.ledger.windows[-1].began_ms
        self.report(f"all nodes run and every replica is in sync, {took_ms / 1000:.1f} s later")


async def kill(stage: Stage) -> None:
    """A leader's broker is killed, then the active controller; both are restarted."""
    leader = stage.leader()
    await stage.act(f"kill -9 {leader}, leader of {stage.topic}-0", partial(stage.cluster.kill, leader))
    await stage.beats(2)
    active = await stage.active_controller()
    await stage.act(f"kill -9 {active}, the active controller", partial(stage.cluster.kill, active))
    await stage.beats(2)
    await stage.act(f"start {leader} and {active} again", partial(stage.cluster.start, leader, active))
    await stage.recovered()


async def pause(stage: Stage) -> None:
    """A leader is paused, replaced, and resumed with a stale view of its leadership."""
    leader, partition = stage.leader(), stage.watch.status.partitions[0]
    node = stage.cluster.layout.node(leader)
    name = f"{stage.topic}-0"
    await stage.act(f"SIGSTOP {leader}, leader of {name}", partial(stage.cluster.pause, leader))
    stage.report("a paused broker cannot be distinguished from a slow one until its session expires")
    await stage.watch.until(
        f"another broker leads {name} and {leader} is out of every ISR",
        lambda status: all(each.leader not in (-1, node.id) and node.id not in each.isr for each in status.partitions),
        RECOVERY_SECONDS,
    )
    await stage.beats(2)
    value = stage.ledger.value_aside("zombie")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write_to_zombie, stage, leader, value)
        await stage.act(
            f"SIGCONT {leader}, in epoch {partition.epoch} of {stage.watch.status.partitions[0].epoch}",
            partial(stage.cluster.resume, leader),
        )
    await stage.recovered()


async def _write_to_zombie(stage: Stage, name: str, value: bytes) -> None:
    port = stage.cluster.layout.node(name).port
    answer = await trio.to_thread.run_sync(
        write_to, port, stage.topic, stage.topic_id, 0, value, abandon_on_cancel=True
    )
    stage.ledger.aside(value, acked=answer.acked)
    stage.report(f"{name} answers the write that waited for it: {answer.text}")
    stage.findings["zombie"] = {"broker": name, "answer": answer.text, "acked": answer.acked}


async def all_at_once(stage: Stage) -> None:
    """All six nodes are killed at once and restarted."""
    names = [node.name for node in stage.cluster.nodes]
    await stage.act(f"kill -9 all {len(names)} nodes", partial(stage.cluster.kill, *names))
    await stage.beats(1)
    stage.report(f"start all {len(names)} nodes again")
    await trio.to_thread.run_sync(partial(stage.cluster.start, *names))
    await stage.recovered()


async def rolling(stage: Stage) -> None:
    """The nodes are restarted one by one, each when all replicas are in sync."""
    for node in stage.cluster.nodes:
        await stage.act(f"restart {node.name}", partial(_restart, stage.cluster, node.name))
        await stage.recovered()
        await stage.beats(0.5)


def _restart(cluster: LocalCluster, name: str) -> None:
    cluster.stop(name)
    cluster.start(name)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario with its name and length."""

    name: str
    play: Callable[[Stage], Awaitable[None]]
    beats: float
    """Length of the script, including one beat before and one after, without recovery times."""

    @property
    def summary(self) -> str:
        return (self.play.__doc__ or "").strip()


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("kill", kill, 6),
        Scenario("pause", pause, 4),
        Scenario("all-at-once", all_at_once, 3),
        Scenario("rolling", rolling, 5),
    )
}
