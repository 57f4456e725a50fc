"""Polls the status of a local cluster, and reports changes of leaders, ISRs and the active controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.status import ClusterStatus, PartitionStatus

POLL_SECONDS = 0.2


class StatusWatch:
    """The last known status of a cluster and one topic."""

    def __init__(self, cluster: LocalCluster, topic: str, report: Callable[[str], None]) -> None:
        """`report` gets a line for each change."""
        self._cluster = cluster
        self._topic = topic
        self._report = report
        self._news = trio.Event()
        self.status = ClusterStatus("", cluster.bootstrap_servers, cluster.processes())
        """The newest answers; from earlier polls where the last one was not answered."""
        self._last_poll = self.status
        """The answers of the last poll."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Polls until cancelled; started after the first answer."""
        self.status = await self._ask()
        task_status.started()
        while True:
            await trio.sleep(POLL_SECONDS)
            seen = await self._ask()
            for line in changes(self.status, seen):
                self._report(line)
            self._last_poll = newest(self.status, seen)
            self.status = replace(
                self._last_poll,
                partitions=self._last_poll.partitions or self.status.partitions,
                quorum=self._last_poll.quorum or self.status.quorum,
            )
            self._news.set()
            self._news = trio.Event()

    async def until(self, what: str, holds: Callable[[ClusterStatus], bool], timeout_seconds: float) -> None:
        """Waits until a poll that starts after this call satisfies `holds`. Raises `ClusterError` after the timeout."""
        with trio.move_on_after(timeout_seconds):
            await self._news.wait()  # this poll may have started before the call
            while True:
                await self._news.wait()
                if holds(self._last_poll):
                    return
        raise ClusterError(f"not within {timeout_seconds:.0f} s: {what}")

    async def _ask(self) -> ClusterStatus:
        return await trio.to_thread.run_sync(self._cluster.status, [self._topic], abandon_on_cancel=True)


def newest(before: ClusterStatus, seen: ClusterStatus) -> ClusterStatus:
    """`seen`, without partition states of older leader epochs, as a restarted broker reports them."""
    known = {(each.topic, each.partition): each for each in before.partitions}
    partitions = []
    for each in seen.partitions:
        older = known.get((each.topic, each.partition))
        partitions.append(older if older is not None and older.epoch > each.epoch else each)
    return replace(seen, partitions=partitions)


def changes(before: ClusterStatus, seen: ClusterStatus) -> list[str]:
    """One line per kind of change from `before` to `seen`."""
    after = newest(before, seen)
    lines = []
    if after.quorum and before.quorum and after.quorum.epoch > before.quorum.epoch:
        lines.append(f"controller-{after.quorum.leader} is active, epoch {after.quorum.epoch}")
    known = {(each.topic, each.partition): each for each in before.partitions}
    pairs = [(old, each) for each in after.partitions if (old := known.get((each.topic, each.partition))) is not None]
    elected = [new for old, new in pairs if new.leader >= 0 and (new.leader, new.epoch) != (old.leader, old.epoch)]
    for leader in sorted({each.leader for each in elected}):
        led = ", ".join(f"{_name(each)} (epoch {each.epoch})" for each in elected if each.leader == leader)
        lines.append(f"broker-{leader} leads {led}")
    leaderless = [new for old, new in pairs if new.leader < 0 <= old.leader]
    if leaderless:
        lines.append("nobody leads " + ", ".join(map(_name, leaderless)))
    if any(sorted(new.isr) != sorted(old.isr) for old, new in pairs):
        lines.append("in sync: " + _in_sync(after.partitions))
    return lines


def is_whole(status: ClusterStatus) -> bool:
    """Whether all nodes run, all partitions have a leader and all replicas in sync, and a controller is active."""
    return (
        all(node.state == "running" for node in status.nodes)
        and status.quorum is not None
        and bool(status.partitions)
        and all(each.leader >= 0 and sorted(each.isr) == sorted(each.replicas) for each in status.partitions)
    )


def _in_sync(partitions: list[PartitionStatus]) -> str:
    texts = {_name(each): ",".join(map(str, sorted(each.isr))) or "nobody" for each in partitions}
    if len(set(texts.values())) == 1:
        return f"{next(iter(texts.values()))} everywhere"
    return "; ".join(f"{name} {isr}" for name, isr in texts.items())


def _name(partition: PartitionStatus) -> str:
    return f"{partition.topic}-{partition.partition}"
