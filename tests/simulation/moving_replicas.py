"""Replicas that move while clients work and nodes die: to other brokers, and to other log directories of their own.

An administrator draws the moves. Every promise holds through each of them: the watch ignores a copy until it takes the
place of its log, and then checks it as it checks a log that was recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import trio

from barnabas.client.admin import Admin, TopicPartitionReplica
from barnabas.client.cluster import ClusterSettings, TopicPartition
from barnabas.cluster.simulated import DATA
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.simulated.chance import Stream
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.names import FUTURE_DIRECTORY_SUFFIX
from simulation.cluster import SimCluster

HOST = "mover"
SECOND = "second"
LOG_DIRS = ",".join(f"/{{name}}/{each}" for each in (DATA, SECOND))
"""Value of `log.dirs` for simulated nodes with two directories each."""
SWAPS = "replicas that changed their log directory"
ACT_SECONDS = 10.0
CLIENT = ClusterSettings(request_timeout_ms=3_000, retry_backoff_ms=50, socket_connection_setup_timeout_ms=1_000)


@contextmanager
def watching_moves(sim: SimCluster) -> Iterator[None]:
    """The watch sees a future log as the log of its partition from its swap on, and not before. If a crash left two
    logs of a partition, it sees the one that stays."""
    watch, findings = sim.watch, sim.findings
    promote = LogDirectories.promote_future
    seen_before = {name: getattr(watch, name) for name in ("log_opened", "high_watermark_set", "log_truncated")}

    settle = LogDirectories.settle_copies
    twins: list[tuple[PartitionLog, dict[str, Any]]] = []

    def of_current(seen: Callable[..., None], log: PartitionLog, **more: Any) -> None:
        if log.directory.endswith(FUTURE_DIRECTORY_SUFFIX):
            return
        if seen is seen_before["log_opened"] and _has_twin(log):
            twins.append((log, more))
        else:
            seen(log, **more)

    def settled(directories: LogDirectories, *arguments: Any) -> None:
        settle(directories, *arguments)
        for log, more in twins[:]:
            if any(each is log for each in directories.logs.values()):
                twins.remove((log, more))
                seen_before["log_opened"](log, **more)

    def promoted(
        directories: LogDirectories,
        key: tuple[str, int],
        now_ms: int,
        between: Callable[[PartitionLog], None] | None = None,
    ) -> bool:
        def opened(log: PartitionLog) -> None:
            if between is not None:
                between(log)
            seen_before["log_opened"](log, recovered=False)
            findings.count(SWAPS)

        return promote(directories, key, now_ms, opened)

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(LogDirectories, "promote_future", promoted))
        patches.enter_context(mock.patch.object(LogDirectories, "settle_copies", settled))
        for name, seen in seen_before.items():
            patches.enter_context(mock.patch.object(watch, name, partial(of_current, seen)))
        yield


def _has_twin(log: PartitionLog) -> bool:
    """True if another directory of the node holds the partition as well, or a copy of it."""
    home, _, name = log.directory.rpartition("/")
    roots = [f"{home.rpartition('/')[0]}/{each}" for each in (DATA, SECOND)]
    found = [each for root in roots if root != home and log.disk.exists(root) for each in log.disk.list(root)]
    return any(each == name or (each.startswith(f"{name}.") and each.endswith("-future")) for each in found)


@dataclass(slots=True)
class MovingReplicas:
    """The administrator who moves the replicas of `topics`."""

    cluster: SimCluster
    topics: Mapping[str, int]
    """Number of partitions by name."""
    pause_seconds: float
    """Mean time between two moves."""
    log_dirs: Sequence[str] = (DATA, SECOND)
    acts: dict[str, int] = field(default_factory=dict)
    """Number of moves that were begun, by kind."""

    async def run(self) -> None:
        """Move replicas until cancelled."""
        universe = self.cluster.universe
        chance = universe.stream("moving replicas")
        async with self.cluster.cluster.client(self.cluster.world(HOST), CLIENT) as client:
            admin = Admin.over(client)
            kinds = (self._reassign, self._move, self._move, self._cancel)
            while True:
                await trio.sleep(chance.expovariate(1.0 / self.pause_seconds))
                await self._try(chance.choice(kinds), admin, chance)

    async def _try(self, act: Callable[[Admin, Stream], Any], admin: Admin, chance: Stream) -> None:
        """While things break, any of it may be refused."""
        name = act.__name__.strip("_")
        try:
            with trio.move_on_after(ACT_SECONDS):
                await act(admin, chance)
                self.acts[name] = self.acts.get(name, 0) + 1
        except KafkaError as error:
            self.cluster.findings.count(f"mover: {error.code.name}")

    def _partition(self, chance: Stream) -> TopicPartition:
        topic = chance.choice(list(self.topics))
        return TopicPartition(topic, chance.randrange(self.topics[topic]))

    async def _reassign(self, admin: Admin, chance: Stream) -> None:
        """Other brokers, or the same in another order."""
        brokers = [int(name.rpartition("-")[2]) for name in self.cluster.brokers]
        replicas = chance.sample(brokers, min(3, len(brokers)))
        await admin.alter_partition_reassignments({self._partition(chance): replicas})

    async def _cancel(self, admin: Admin, chance: Stream) -> None:
        await admin.alter_partition_reassignments(dict.fromkeys(await admin.list_partition_reassignments()))

    async def _move(self, admin: Admin, chance: Stream) -> None:
        name = chance.choice(list(self.cluster.brokers))
        where = self._partition(chance)
        replica = TopicPartitionReplica(where.topic, where.partition, int(name.rpartition("-")[2]))
        await admin.alter_replica_log_dirs({replica: f"/{name}/{chance.choice(list(self.log_dirs))}"})
