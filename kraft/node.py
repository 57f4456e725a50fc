"""A controller node: its parts, and how they are wired."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from barnabas.kraft.authorizing import make_authorization
from barnabas.kraft.controller.controller import QuorumController
from barnabas.kraft.controller.state import ControllerDefaults
from barnabas.kraft.controller_apis import make_dispatcher
from barnabas.kraft.controller_registration import keep_registered
from barnabas.kraft.controller_service import ControllerService
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.node_security import NodeSecurity
from barnabas.kraft.quotas import NodeQuotas
from barnabas.kraft.snapshots import read_bootstrap_records
from barnabas.protocol.schema import Message
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.dispatch import Execution
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.server import Server, ServerLimits
from barnabas.runtime.worker import Worker
from barnabas.runtime.world import World
from barnabas.settings.controller import ControllerSettings

log = logging.getLogger("kraft.node")

SHUTDOWN_MS = 500
"""Time for a stopping leader's resignation to reach the voters, and then for pending answers to
leave."""


class ControllerNode:
    """The parts of a controller on top of its replica of the metadata log.

    The replica is another's: `sole_controller.py` has one for these parts alone, a combined node shares it with its
    broker.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        world: World,
        nursery: trio.Nursery,
        decisions: Decisions,
        cluster_id: str,
    ) -> None:
        self.settings = settings
        self.world = world
        self._nursery = nursery
        self.decisions = decisions
        self._cluster_id = cluster_id
        self.security = NodeSecurity(settings, world)
        bootstrap = _bootstrap(world, settings.metadata_directory)
        core = QuorumController(controller_defaults(settings, cluster_id), world.chance, bootstrap)
        self.service = ControllerService(core, world, nursery, decisions)
        self.authorization = self.service.authorization = make_authorization(settings, world, nursery, decisions)
        window_ms = settings.controller_quota_window_size_seconds * 1000
        windows = QuotaWindows(settings.controller_quota_window_num, window_ms)
        self.quotas = NodeQuotas(settings, windows, world, decisions, f"controller {settings.node_id}")
        self.service.quotas = self.quotas

    def attach(self, replica: MetadataReplica) -> None:
        """The replica whose listener `service` is; before anything starts."""
        world, service = self.world, self.service
        self.replica = replica
        service.attach(replica)
        worker = Worker(world.run_blocking)
        authorizer = None if self.authorization is None else self.authorization.authorizer
        background = Background(self._nursery)
        execution = Execution(background, worker, world.count_work, authorizer, throttling=self.quotas.requests)
        self.dispatcher = make_dispatcher(service, execution, self.settings.listener_security_protocol_map)
        self.dispatcher.decisions = self.decisions
        self.server = Server(world, self.dispatcher, ServerLimits.of(self.settings, world.memory_bytes), worker)
        self.server.connection_quotas.ip_limit = self.quotas.ip_limit
        self.server.on_long_turn = service.queue.on_long_step = self.dispatcher.overran
        self.server.on_connection_closed = service.watch.connection_closed

    async def start(self) -> None:
        """The replica runs: open the listeners, and register with the active controller."""
        settings, world = self.settings, self.world
        for listener in settings.listeners:
            if self.authorization is not None:
                await self.authorization.ready_for(listener.name)
            bound = await world.network.listen(listener.host, listener.port)
            self._nursery.start_soon(
                self.server.serve, bound, listener.name, self.security.of_listener(listener)
            )
        self._nursery.start_soon(self.security.run)
        self._nursery.start_soon(self.service.run)
        self._nursery.start_soon(keep_registered, self.service, settings, world)
        log.info(
            "controller %d of cluster %s listens on %s",
            settings.node_id,
            self._cluster_id,
            ", ".join(map(str, settings.listeners)),
        )

    async def stop(self) -> None:
        """Resign, and answer the requests under way."""
        await self.replica.resign(SHUTDOWN_MS)
        with trio.move_on_after(SHUTDOWN_MS / 1000):
            await self.server.stop()
        await self.service.snapshot_before_stop()

    def reason_not_ready(self) -> str:
        """Reason why this controller is not ready; empty if it takes part in the quorum."""
        return "" if self.replica.is_in_quorum else "this controller neither leads the quorum nor follows its leader"


async def run_replica(replica: MetadataReplica, *, task_status: trio.TaskStatus[None]) -> None:
    """`MetadataReplica.run` as nurseries start it."""
    await replica.run(task_status=task_status)


def controller_defaults(settings: ControllerSettings, cluster_id: str) -> ControllerDefaults:
    """Settings that decisions depend on."""
    return ControllerDefaults(
        node_id=settings.node_id,
        cluster_id=cluster_id,
        quorum_ids=tuple(voter.id for voter in settings.controller_quorum_voters),
        num_partitions=settings.num_partitions,
        default_replication_factor=settings.default_replication_factor,
        min_insync_replicas=settings.min_insync_replicas,
        unclean_leader_election_enable=settings.unclean_leader_election_enable,
        delete_topic_enable=settings.delete_topic_enable,
        broker_session_timeout_ms=settings.broker_session_timeout_ms,
        auto_leader_rebalance_enable=settings.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_ms=settings.leader_imbalance_check_interval_seconds * 1000,
        unclean_leader_election_interval_ms=settings.unclean_leader_election_interval_ms,
        metadata_max_idle_interval_ms=settings.metadata_max_idle_interval_ms,
        delegation_token_secret_key=settings.delegation_token_secret_key or "",
        delegation_token_max_lifetime_ms=settings.delegation_token_max_lifetime_ms,
        delegation_token_expiry_time_ms=settings.delegation_token_expiry_time_ms,
        delegation_token_expiry_check_interval_ms=settings.delegation_token_expiry_check_interval_ms,
        raw=settings.raw,
    )


def _bootstrap(world: World, directory: str) -> Sequence[Message]:
    """The first records of a new cluster's log: those that `format` wrote, else the highest levels."""
    found = read_bootstrap_records(world.disk, directory)
    return found or bootstrap_records()
