"""Replicas that move while clients work and nodes die: to other brokers, and to other log directories of their own.

An administrator draws the moves, more often than the fault `move-log` of the laboratory does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.client.admin import Admin, TopicPartitionReplica
from barnabas.client.cluster import ClusterSettings, TopicPartition
from barnabas.cluster.simulated import DATA
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.simulated.chance import Stream
from simulation.cluster import SimCluster
from simulation.moving_logs import SECOND

HOST = "mover"
ACT_SECONDS = 10.0
CLIENT = ClusterSettings(request_timeout_ms=3_000, retry_backoff_ms=50, socket_connection_setup_timeout_ms=1_000)


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
