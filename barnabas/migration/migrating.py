"""Carries out the steps of a migration through the cluster's own admin APIs, on Apache Kafka's nodes and on ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from barnabas.cli.offset_reset import Partition
from barnabas.cli.reassignment import by_partition
from barnabas.cli.reassignment_throttle import throttled
from barnabas.client.admin import ElectionType
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import BrokerIdNotRegisteredException
from barnabas.migration.plan import (
    AddVoter,
    CannotMigrate,
    Cluster,
    Elect,
    HasBothReplicas,
    Migration,
    Move,
    Placement,
    Quorum,
    RemoveVoter,
    Step,
    Unregister,
    Wait,
    next_step,
)
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, Endpoint, QuorumInfo

POLL_SECONDS = 0.5
LOOKS_AGAIN = 20
"""Number of looks at what a broker that is behind may describe."""
KRAFT_VERSION = "kraft.version"


@dataclass(frozen=True, slots=True)
class Options:
    throttle_bytes_per_second: int | None = None
    """Limit of each broker's traffic for moved replicas; None: no limit."""
    endpoints: Mapping[int, tuple[str, int]] | None = None
    """Host and port of each new controller."""
    waits_for_operator: bool = False
    """Wait for what a person has to do; otherwise the migration returns there."""


class Migrating:
    """One run of a migration. Interrupted at any point, it leaves a cluster that the next run goes on from: moves that
    are under way are cancelled, and a change of voters is one record of the metadata log."""

    def __init__(self, admin: Admin, wanted: Migration, options: Options, report: Callable[[str], None]) -> None:
        """`report` gets a line for each step."""
        self._admin = admin
        self._wanted = wanted
        self._options = options
        self._report = report

    async def run(self) -> Wait | None:
        """Take all steps. Returns what the operator has to do before the next run, None if the migration is complete.
        Raises `CannotMigrate` and the errors of the admin client.
        """
        reported: Step | None = None
        while True:
            cluster, step = await self._next_step()
            if step is None:
                return None
            if isinstance(step, Wait) and step.by_operator and not self._options.waits_for_operator:
                return step
            if step != reported:
                self._report(f"wait: {step}" if isinstance(step, Wait) else str(step))
            else:
                # It was taken, but the broker that described the cluster has not replayed that yet.
                await trio.sleep(POLL_SECONDS)
            reported = step
            await self._take(step, cluster)

    async def _next_step(self) -> tuple[Cluster, Step | None]:
        """Looks again for a while where the cluster may be described with older metadata."""
        for _ in range(LOOKS_AGAIN):
            cluster = await self.observe()
            try:
                return cluster, next_step(cluster, self._wanted)
            except HasBothReplicas:
                await trio.sleep(POLL_SECONDS)
        cluster = await self.observe()
        return cluster, next_step(cluster, self._wanted)

    async def observe(self) -> Cluster:
        admin = self._admin
        described = await admin.describe_cluster(include_fenced_brokers=True)
        names = list(await admin.list_topics(list_internal=True))
        topics = await admin.describe_topics(names) if names else {}
        features = (await admin.describe_features()).finalized_features
        level = features.get(KRAFT_VERSION)
        return Cluster(
            frozenset(node.node_id for node in described.nodes if not node.is_fenced),
            frozenset(node.node_id for node in described.nodes if node.is_fenced),
            {
                Partition(topic.name, part.partition): Placement(part.replicas, part.isr, part.leader)
                for topic in topics.values()
                for part in topic.partitions
            },
            frozenset(Partition(*each) for each in await admin.list_partition_reassignments()),
            _quorum(await admin.describe_metadata_quorum()),
            level.max_version_level if level is not None else 0,
        )

    async def _take(self, step: Step, cluster: Cluster) -> None:
        match step:
            case Move():
                await self._move(step, cluster)
            case Elect():
                await self._admin.elect_leaders(
                    ElectionType.PREFERRED, [TopicPartition(*each) for each in step.partitions], raise_errors=False
                )
            case AddVoter():
                endpoints = await self._endpoints(step.controller)
                await self._admin.add_raft_voter(step.controller, step.directory, endpoints)
            case RemoveVoter():
                await self._admin.remove_raft_voter(step.controller, step.directory)
            case Unregister():
                with suppress(BrokerIdNotRegisteredException):
                    await self._admin.unregister_broker(step.broker)
            case Wait():
                await trio.sleep(POLL_SECONDS)

    async def _move(self, move: Move, cluster: Cluster) -> None:
        plan = {each: list(replicas) for each, replicas in move.replicas.items()}
        before = {each: list(cluster.placements[each].replicas) for each in plan}
        wanted = by_partition(plan)
        async with throttled(self._admin, before, plan, self._options.throttle_bytes_per_second):
            try:
                await self._admin.alter_partition_reassignments(wanted)
                while left := await self._admin.list_partition_reassignments(wanted):
                    self._report(f"  {len(left)} of {len(wanted)} partitions are moving")
                    await trio.sleep(POLL_SECONDS)
            except (KafkaError, trio.Cancelled):
                with trio.move_on_after(30, shield=True):
                    moving = await self._admin.list_partition_reassignments(wanted)
                    await self._admin.alter_partition_reassignments(dict.fromkeys(moving), raise_errors=False)
                    self._report(f"  cancelled the moves of {len(moving)} partitions")
                raise

    async def _endpoints(self, controller: int) -> Iterator[Endpoint]:
        """The endpoint of a new controller, once for each listener of the present voters."""
        from barnabas.client.admin import Endpoint

        address = (self._options.endpoints or {}).get(controller)
        if address is None:
            raise CannotMigrate(f"no address of controller {controller}: --controllers OLD={controller}@HOST:PORT")
        quorum = await self._admin.describe_metadata_quorum()
        names = {endpoint.name for endpoints in quorum.nodes.values() for endpoint in endpoints}
        return iter([Endpoint(name, *address) for name in sorted(names)])


def _quorum(info: QuorumInfo) -> Quorum:
    replicas = {each.replica_id: each for each in (*info.voters, *info.observers)}
    leader = replicas.get(info.leader_id)
    end = leader.log_end_offset if leader is not None else info.high_watermark
    return Quorum(
        info.leader_id,
        {each.replica_id: each.replica_directory_id for each in info.voters},
        {each.replica_id: each.replica_directory_id for each in info.observers},
        {each.replica_id: max(0, end - each.log_end_offset) for each in replicas.values()},
    )
