"""How the cluster is, asked a few times a second, and what has changed since it was asked last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.status import ClusterStatus, PartitionStatus

POLL_SECONDS = 0.2


class Watch:
    """The last status of a cluster, as far as one topic goes."""

    def __init__(self, cluster: LocalCluster, topic: str, tell: Callable[[str], None]) -> None:
        """`tell` gets a line for each change of leaders, ISRs and of the active controller."""
        self._cluster = cluster
        self._topic = topic
        self._tell = tell
        self._news = trio.Event()
        self.status = ClusterStatus("", cluster.bootstrap_servers, cluster.processes())
        """What is known: of what nobody told this time, what was told before."""
        self._told = self.status
        """What was told this time."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Asks until it is cancelled; started after the first answer."""
        self.status = await self._ask()
        task_status.started()
        while True:
            await trio.sleep(POLL_SECONDS)
            seen = await self._ask()
            for line in changes(self.status, seen):
                self._tell(line)
            self._told = newest(self.status, seen)
            self.status = replace(
                self._told,
                partitions=self._told.partitions or self.status.partitions,
                quorum=self._told.quorum or self.status.quorum,
            )
            self._news.set()
            self._news = trio.Event()

    async def until(self, what: str, holds: Callable[[ClusterStatus], bool], timeout_seconds: float) -> None:
        """Waits for a status that was asked for from now on. Raises `ClusterError` when the time is over."""
        with trio.move_on_after(timeout_seconds):
            await self._news.wait()  # the question of this one may have been on its way before
            while True:
                await self._news.wait()
                if holds(self._told):
                    return
        raise ClusterError(f"not within {timeout_seconds:.0f} s: {what}")

    async def _ask(self) -> ClusterStatus:
        return await trio.to_thread.run_sync(self._cluster.status, [self._topic], abandon_on_cancel=True)


def newest(before: ClusterStatus, seen: ClusterStatus) -> ClusterStatus:
    """What was seen, but of no partition anything older than before: a broker that just came back tells what was."""
    known = {(each.topic, each.partition): each for each in before.partitions}
    partitions = []
    for each in seen.partitions:
        older = known.get((each.topic, each.partition))
        partitions.append(older if older is not None and older.epoch > each.epoch else each)
    return replace(seen, partitions=partitions)


def changes(before: ClusterStatus, seen: ClusterStatus) -> list[str]:
    """One line for each kind of thing that is new in `seen`."""
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
    """All nodes run, all partitions are led and have all replicas in sync, and somebody is active."""
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
