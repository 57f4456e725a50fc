"""A broker: its parts, the order in which they start, and the order in which they stop.

disks ─► metadata log (observer) ─► registered ─► caught up ─► partitions ─► listeners ─► unfenced
"""

from __future__ import annotations

import logging
import re
from functools import cache, partial

import trio

from barnabas.broker.apis.alter_replica_log_dirs import AlterLogDirsPorts
from barnabas.broker.apis.api_versions import ApiVersionsPorts
from barnabas.broker.apis.configs import ConfigPorts
from barnabas.broker.apis.delegation_tokens import TokenPorts
from barnabas.broker.apis.delete_records import DeleteRecordsPorts
from barnabas.broker.apis.describe_cluster import ClusterPorts
from barnabas.broker.apis.fetch import FetchPorts
from barnabas.broker.apis.group_calls import share_groups_are_enabled
from barnabas.broker.apis.log_dirs import LogDirPorts
from barnabas.broker.apis.metadata import MetadataPorts
from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.produce_request import ProducePorts
from barnabas.broker.apis.share_calls import SharePorts
from barnabas.broker.broker_channels import BrokerChannels
from barnabas.broker.controller_channel import ControllerChannel
from barnabas.broker.coordination import Coordination, CoordinationPorts
from barnabas.broker.cordoned_directories import cordoned_paths
from barnabas.broker.delayed.deliveries import DelayedDeliveries, DelayedPorts
from barnabas.broker.delayed.metrics import delayed_families
from barnabas.broker.directory_assignments import DirectoryAssignments
from barnabas.broker.disk_space import DiskSpace
from barnabas.broker.dispatch import (
    ClusterHandlerPorts,
    DataPorts,
    Handlers,
    cluster_handlers,
    data_handlers,
    make_dispatcher,
    share_handlers,
    telemetry_handlers,
)
from barnabas.broker.fetch_session import PartitionKey
from barnabas.broker.fetch_sessions import PARTITION_BYTES, FetchSessions
from barnabas.broker.fetch_wakeups import FetchWakeups, Work
from barnabas.broker.forwarding import Forwarding, ForwardingPorts
from barnabas.broker.group_lag import GroupLagPorts, GroupLags
from barnabas.broker.keyed_queues import KeyedQueues
from barnabas.broker.lifecycle import BrokerLifecycle, BrokerState, HeartbeatTimes
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.log_store import LogStore
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.metadata_follower import MetadataFollower
from barnabas.broker.metadata_publisher import MetadataPublisher
from barnabas.broker.metrics import (
    BrokerMetrics,
    Families,
    broker_families,
    cleaner_families,
    log_families,
    replica_families,
    traffic_families,
    waiting_families,
)
from barnabas.broker.periodic import PeriodicPorts, PeriodicWork
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.registration import registration
from barnabas.broker.replication.fetcher import Fetchers, FetchSettings
from barnabas.broker.replication.isr_changes import IsrChanges
from barnabas.broker.replication.log_dir_moves import LogDirMoves, MovePorts
from barnabas.broker.replication.partition import Partition, PartitionHost
from barnabas.broker.replication.partitions import Partitions, ReplicationSettings
from barnabas.broker.replication.throttles import ReplicationThrottles
from barnabas.broker.seen_addresses import SeenAddresses
from barnabas.broker.setting_checks import coordinator_topic_differences, warn_of_other_defaults
from barnabas.broker.shares.dead_letters import DeadLetterPorts, DeadLetterTopics
from barnabas.broker.shares.inspection_page import SharesPorts, shares_page
from barnabas.broker.shares.lags import ShareLags
from barnabas.broker.shares.led_partitions import LedPorts
from barnabas.broker.shares.metrics import share_partition_families
from barnabas.broker.shares.node_part import ShareGroups
from barnabas.broker.shares.sessions import PARTITION_BYTES as SHARED_PARTITION_BYTES
from barnabas.broker.shares.sessions import ShareSessions
from barnabas.broker.shares.share_configs import ShareConfigsByGroup
from barnabas.broker.state_page import StatePorts, broker_state_page
from barnabas.broker.telemetry import REPORTER, ClientTelemetry
from barnabas.broker.timers import run_timers
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.broker.traffic import BytesOut, CleanerWork, Conversions
from barnabas.kraft.authorization import make_authorization
from barnabas.kraft.commit_feed import MetadataListener
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.features import (
    CORDONED_DIRECTORIES_SINCE,
    DIRECTORIES_SINCE,
    METADATA_VERSION,
    SHARE_VERSION,
)
from barnabas.kraft.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE, TOPIC_RESOURCE, MetadataImage
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.metrics import controller_families
from barnabas.kraft.node import ControllerNode, run_replica
from barnabas.kraft.node_security import NodeSecurity, security_families
from barnabas.kraft.quorum_watch import without_controllers
from barnabas.kraft.quotas import OF_BROKERS, OF_CONTROLLERS, NodeQuotas, connection_families
from barnabas.kraft.raft_metrics import raft_families
from barnabas.kraft.replica_config import replica_config
from barnabas.kraft.shared_listener import SharedListener
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.runtime.background import Background
from barnabas.runtime.channel import Channel
from barnabas.runtime.decision_pages import decision_pages
from barnabas.runtime.decisions import DecisionKind, Decisions
from barnabas.runtime.dispatch import Execution
from barnabas.runtime.memory import SESSIONS_PART
from barnabas.runtime.metrics import (
    BusyClock,
    busy_families,
    process_families,
    request_families,
    server_families,
    space_families,
)
from barnabas.runtime.observatory import Observatory, read_token
from barnabas.runtime.process import CannotRun
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.server import Server, ServerLimits
from barnabas.runtime.steps import Steps
from barnabas.runtime.worker import Worker
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.controller import ControllerSettings
from barnabas.settings.describe import BrokerLayers
from barnabas.settings.dynamic import with_dynamic_configs
from barnabas.settings.node import CLUSTER_SCOPE
from barnabas.settings.topic import TopicConfig
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_directory import LogDirectory, LogDirectoryError
from barnabas.storage.open_files import limit_for_logs

log = logging.getLogger(__name__)

ALTER_PARTITION_TIMEOUT_MS = 5_000
CONTROLLED_SHUTDOWN_TIMEOUT_MS = 30_000
"""Longest wait of a stopping broker until the controller has moved its leaderships away."""
CLOSING_TIMEOUT_MS = 2_000
"""Longest wait for requests under way when the listeners close."""


async def run_broker(
    settings: BrokerSettings,
    world: World,
    *,
    stop: trio.Event,
    controller: ControllerSettings | None = None,
    task_status: trio.TaskStatus[BrokerNode] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run until `stop` is set or something fails; started once clients are served.

    With `controller` this is a combined node (`process.roles=broker,controller`): both roles in one process, over one
    replica of the metadata log in one directory.
    """
    try:
        directories = await world.run_blocking(
            lambda: LogDirectories.open(
                world.disk,
                settings.log_dirs,
                settings.node_id,
                world.chance,
                metadata_path=settings.metadata_directory,
            )
        )
    except LogDirectoryError as error:
        raise CannotRun(str(error)) from None
    descriptors = None if world.count_descriptors is None else world.count_descriptors()
    directories.files.limit = world.tuned("log.open.files", limit_for_logs(descriptors))
    try:
        async with trio.open_nursery() as nursery:
            decisions = Decisions(f"broker-{settings.node_id}", world.wall_clock.now_ms)
            store = LogStore(directories, world, decisions)
            beside = None
            if controller is not None:
                beside = ControllerNode(controller, world, nursery, decisions, directories.cluster_id)
            node = BrokerNode(settings, world, store, nursery, decisions, beside)
            await node.start()
            task_status.started(node)
            await stop.wait()
            await node.stop()
            nursery.cancel_scope.cancel()
    finally:
        directories.abandon()


class BrokerNode:
    """The parts of one broker. They do not know the node: each gets what it needs from the `_wire_…` methods."""

    def __init__(
        self,
        settings: BrokerSettings,
        world: World,
        store: LogStore,
        nursery: trio.Nursery,
        decisions: Decisions,
        controller: ControllerNode | None,
    ) -> None:
        """`controller`: the other role of a combined node."""
        self.settings = settings
        """The settings as they hold now, with dynamic configs."""
        self.store = store
        self.decisions = decisions
        self.controller = controller
        self._static = settings
        """The settings of the broker's own file."""
        self.world = world
        self._nursery = nursery
        self._published = trio.Event()
        """Set when the metadata was applied for the first time."""
        store.settings_changed(settings)
        store.directories.cordoned = cordoned_paths(settings.cordoned_log_dirs, settings.log_dirs)
        self.wheel = TimingWheel(world.monotonic.now_ms())
        self.background = Background(nursery)
        self.worker = Worker(world.run_blocking)
        """For long work of requests."""
        self.authorization = controller.authorization if controller is not None else None
        if controller is None:
            self.authorization = make_authorization(settings, world, nursery, decisions)
        self._wire_metadata()
        self._wire_replication()
        self._wire_coordinators()
        self._wire_shares()
        self._wire_disks()
        self._wire_server()
        self._wire_pages()

    def current_settings(self) -> BrokerSettings:
        return self.settings

    # -- the parts

    def _wire_metadata(self) -> None:
        """The metadata log, and the channels to the active controller."""
        settings, world, store = self._static, self.world, self.store
        cluster_id = store.directories.cluster_id
        directory = settings.metadata_directory
        self.metadata_log = MetadataFollower(
            self._nursery,
            self._has_own_registration,
            self._metadata_advanced,
            writes_snapshots=self.controller is None,
        )
        self.metadata_log.leader_changed = self._controller_changed
        listener: MetadataListener = self.metadata_log
        if self.controller is not None:
            listener = SharedListener(self.controller.service, self.metadata_log)
        owner = settings if self.controller is None else self.controller.settings
        self._security = NodeSecurity(settings, world, lambda: self.metadata.image)
        self._securities = [self._security, *([] if self.controller is None else [self.controller.security])]
        to_controllers = self._security.to_controllers
        config = replica_config(owner, cluster_id, store.id_of(directory), directory, to_controllers)
        replica = MetadataReplica(config, world, listener, self.decisions)
        self.metadata_log.attach(replica)
        if self.controller is not None:
            self.controller.attach(replica)
        self._controller_channels = [
            ControllerChannel(
                world, self._nursery, replica, f"broker-{settings.node_id}-{purpose}", to_controllers
            )
            for purpose in ("requests", "heartbeats", "isr")
        ]
        self._controller, heartbeats, self._isr_channel = self._controller_channels
        self.lifecycle = BrokerLifecycle(
            world=world,
            controller=heartbeats,
            registration=registration(settings, world, store),
            times=HeartbeatTimes(
                heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
                session_timeout_ms=settings.broker_session_timeout_ms,
                registration_timeout_ms=settings.initial_broker_registration_timeout_ms,
            ),
            metadata_offset=lambda: self.metadata_log.applied_offset,
            offline_directories=lambda: store.offline_ids,
            note_epoch=store.note_epoch,
            full_directories=lambda: self._disk_space.full_ids,
            cordoned_directories=self._reported_cordons,
        )
        self.metadata = MetadataCache(EMPTY_IMAGE, cluster_id)
        self._channels = BrokerChannels(world, self.metadata, self.current_settings, self._security.between_brokers)

    def _wire_replication(self) -> None:
        """Partitions, the fetchers that follow leaders, and the requests that wait for partitions."""
        settings, world = self._static, self.world
        self.throttles = ReplicationThrottles(
            QuotaWindows(settings.replication_quota_window_num, settings.replication_quota_window_size_seconds * 1000),
            QuotaWindows(
                settings.alter_log_dirs_replication_quota_window_num,
                settings.alter_log_dirs_replication_quota_window_size_seconds * 1000,
            ),
        )
        self._isr_changes = IsrChanges(settings.node_id, self._broker_epoch, self._alter_partition)
        self.fetchers = Fetchers(
            world,
            self._nursery,
            FetchSettings.of(settings),
            self._broker_epoch,
            self._channel_to,
            self.throttles.follower,
        )
        self.fetches: Purgatory[PartitionKey] = Purgatory(self.wheel)
        self.deletions: Purgatory[PartitionKey] = Purgatory(self.wheel)
        self._limits = ServerLimits.of(settings, world.memory_bytes)
        self.sessions = FetchSessions(
            world.chance,
            max_sessions=settings.max_incremental_fetch_session_cache_slots,
            max_partitions=self._limits.memory_limit_bytes // SESSIONS_PART // PARTITION_BYTES,
        )
        self._fetch_wakeups = FetchWakeups(self.sessions, self.fetches, self._afterwards)
        self.partitions = Partitions(
            ReplicationSettings(settings.node_id, settings.replica_lag_time_max_ms),
            self.store,
            PartitionHost(
                monotonic=world.monotonic,
                wall_clock=world.wall_clock,
                propose_isr=self._isr_changes.propose,
                follow=self.fetchers.follow,
                changed=self._partition_changed,
                replica_fetch_backoff_ms=settings.replica_fetch_backoff_ms,
                fault_point=world.fault_point,
                leadership_changed=self._leadership_changed,
                may_be_fenced=self.lifecycle.may_be_fenced,
                session_timeout_ms=settings.broker_session_timeout_ms,
                decisions=self.decisions,
                committed=self._partition_committed,
            ),
            self._topic_config,
            self._broker_epoch,
        )
        self.deliveries = DelayedDeliveries(DelayedPorts(world, self.background, self.wheel, self.decisions))
        self._lookup = PartitionLookup(self.partitions, self.metadata, settings.node_id)
        self.publisher = MetadataPublisher(self.partitions.prepare, self.store.make_logs, self._announce, self._publish)

    def _wire_coordinators(self) -> None:
        ports = CoordinationPorts(
            world=self.world,
            nursery=self._nursery,
            background=self.background,
            wheel=self.wheel,
            metadata=self.metadata,
            partitions=self.partitions,
            controller=self._controller,
            settings=self.current_settings,
            decisions=self.decisions,
            broker_epoch=self._broker_epoch,
            channels=self._channels,
        )
        self.coordination = Coordination(ports)
        self.groups, self.transactions = self.coordination.groups, self.coordination.transactions
        self._group_lags = GroupLags(
            GroupLagPorts(
                self.world, self.groups, self.metadata, self.partitions, self.current_settings, self._channels
            )
        )

    def _wire_shares(self) -> None:
        """The share partitions that this broker leads; their states are stored by share coordinators."""
        world = self.world
        self._share_configs = ShareConfigsByGroup(lambda: self.metadata.image, self.current_settings)
        ports = LedPorts(
            lookup=self._lookup,
            store=self.coordination.share_states,
            configs=self._share_configs,
            background=self.background,
            wheel=self.wheel,
            monotonic=world.monotonic,
            wall_clock=world.wall_clock,
            decisions=self.decisions,
            dead_letters=self._dead_letters(),
        )
        sessions = ShareSessions(
            self._static.group_share_max_share_sessions,
            self._limits.memory_limit_bytes // SESSIONS_PART // SHARED_PARTITION_BYTES,
        )
        self.shares = ShareGroups(ports, sessions)

    def _dead_letters(self) -> DeadLetterTopics:
        return DeadLetterTopics(
            DeadLetterPorts(
                world=self.world,
                node_id=self._static.node_id,
                image=lambda: self.metadata.image,
                topic_config=self._topic_config,
                partitions=self.partitions,
                channel_to=partial(self._channel_to, purpose="dead-letters"),
                create=self.coordination.auto_topics.create_dead_letters,
                settings=self.current_settings,
            )
        )

    def _wire_disks(self) -> None:
        directories = self.store.directories
        self._disk_space = DiskSpace(self.world, directories, self.lifecycle.heartbeat_soon)
        self._assignments = DirectoryAssignments(self.store, self._controller, self.lifecycle)
        self.log_dir_moves = LogDirMoves(
            MovePorts(
                world=self.world,
                nursery=self._nursery,
                store=self.store,
                partitions=self.partitions,
                assign=self._assignments.assign,
                quota=self.throttles.log_dirs,
                decisions=self.decisions,
                node_id=self._static.node_id,
            )
        )
        directories.on_offline = self._directory_failed
        directories.on_no_room = self._disk_space.refused

    def _wire_server(self) -> None:
        """Handlers with their ports, the dispatcher, and the server."""
        world = self.world
        self.quotas = NodeQuotas(
            self._static, QuotaWindows(), world, self.decisions, f"broker {self._static.node_id}"
        )
        if self._static.quota_scope == CLUSTER_SCOPE:
            self.lifecycle.quotas = self.quotas.hold_for_cluster(self._static.broker_heartbeat_interval_ms)
        self._bytes_out = BytesOut()
        self._conversions = Conversions(world.stopwatch)
        self._fetch_conversions = Conversions(world.stopwatch)
        self.slow_admissions: KeyedQueues[int] = KeyedQueues()
        self.telemetry: ClientTelemetry | None = None
        """None: clients are not asked for metrics."""
        if REPORTER in re.split(r"\s*,\s*", self._static.raw.get("metric.reporters", "").strip()):
            self.telemetry = ClientTelemetry(world.chance, self._static.telemetry_max_bytes)
        handlers = self._data_handlers() | self._cluster_handlers() | self.coordination.handlers(self._group_lags.ends)
        handlers |= self._share_handlers()
        handlers |= telemetry_handlers(self.telemetry, world.monotonic)
        authorizer = None if self.authorization is None else self.authorization.authorizer
        self._dispatcher = make_dispatcher(
            handlers,
            ApiVersionsPorts(self.metadata, self.telemetry, lambda: self.metadata_log.replica.kraft_version),
            world.stopwatch,
            Execution(self.background, self.worker, world.count_work, authorizer, throttling=self.quotas.requests),
            self.settings,
        )
        self._dispatcher.decisions = self.decisions
        self._server = Server(world, self._dispatcher, self._limits, self.worker)
        if seen := frozenset(self._static.advertised_as_seen):
            addresses = SeenAddresses(self._static.node_id, seen, self._server.local_address)
            self.metadata.as_seen = addresses.of
        self._server.on_long_turn = self._dispatcher.overran
        self._server.connection_quotas.ip_limit = self.quotas.ip_limit
        if self.controller is not None:
            self._dispatcher.count_together(self.controller.dispatcher)
        self._server.on_connection_closed = self._connection_closed

    def _data_handlers(self) -> Handlers:
        world, settings = self.world, self.current_settings
        lookup = self._lookup
        produce = ProducePorts(
            lookup=lookup,
            slow_admissions=self.slow_admissions,
            conversions=self._conversions,
            wheel=self.wheel,
            monotonic=world.monotonic,
            wall_clock=world.wall_clock,
            worker=self.worker,
            verifier=self.coordination.verifier,
            deliveries=self.deliveries,
            settings=settings,
        )
        fetch = FetchPorts(
            lookup=lookup,
            metadata=self.metadata,
            sessions=self.sessions,
            fetches=self.fetches,
            deletions=self.deletions,
            report_follower=self.partitions.follower_fetches,
            bytes_out=self._bytes_out,
            conversions=self._fetch_conversions,
            monotonic=world.monotonic,
            settings=settings,
            throttle=self.throttles.leader,
        )
        deletions = DeleteRecordsPorts(lookup, self.deletions, world.monotonic)
        log_dirs = LogDirPorts(
            self.store.directories, self.partitions, self.fetchers.lag, world.disk, self._cordoned_ids
        )
        alter_log_dirs = AlterLogDirsPorts(
            self.store, self.partitions, self.log_dir_moves, self._cordoned_ids, world.wall_clock
        )
        return data_handlers(DataPorts(self.publisher, lookup, produce, fetch, deletions, log_dirs, alter_log_dirs))

    def _share_handlers(self) -> Handlers:
        return share_handlers(
            SharePorts(
                shares=self.shares,
                lookup=self._lookup,
                metadata=self.metadata,
                configs=self._share_configs,
                is_enabled=self._share_groups_are_enabled,
                monotonic=self.world.monotonic,
                settings=self.current_settings,
                bytes_out=self._bytes_out,
            )
        )

    def _cluster_handlers(self) -> Handlers:
        node_id, settings = self._static.node_id, self.current_settings
        self.forwarding = Forwarding(ForwardingPorts(self._controller, self.background, settings))
        metadata = MetadataPorts(node_id, self.metadata, self.coordination.auto_topics, self.world.monotonic)
        configs = ConfigPorts(
            node_id,
            self._static.raw,
            self.metadata,
            self.forwarding.forward,
            tuple(self._static.log_dirs),
            self._security.sasl_refusal,
        )
        tokens = TokenPorts(
            self.metadata,
            self.forwarding.forward,
            self._static.listener_security_protocol_map,
            self._static.delegation_token_secret_key or "",
        )
        return cluster_handlers(ClusterHandlerPorts(metadata, ClusterPorts(self.metadata, settings), configs, tokens))

    def _wire_pages(self) -> None:
        """Metrics, decisions and state, over HTTP."""
        world, partitions = self.world, self.partitions
        self._cleaner_work = CleanerWork()
        busy = BusyClock(world)
        families: list[Families] = [
            partial(replica_families, partitions, self.fetchers, self.metadata),
            partial(traffic_families, partitions, self._bytes_out, self._conversions, self._fetch_conversions),
            partial(log_families, partitions),
            partial(cleaner_families, self.store.directories, self._cleaner_work),
            partial(waiting_families, partitions, self.fetches, self.deletions),
            *self.coordination.families(),
            partial(share_partition_families, self.shares.partitions),
            partial(delayed_families, self.deliveries),
            partial(broker_families, self.lifecycle, self.metadata, self._server),
            partial(raft_families, self.metadata_log.replica),
            lambda: request_families(self._dispatcher.counters),
            partial(server_families, self._server),
            partial(self.quotas.families, OF_BROKERS),
            partial(connection_families, self._server.connection_quotas, world.monotonic),
            partial(security_families, self._securities),
            partial(busy_families, busy),
            partial(process_families, world),
            lambda: space_families(world.disk, [it.path for it in self.store.directories.online]),
        ]
        controller = self.controller
        if controller is not None:
            families.append(lambda: controller_families(controller.service, world))
            families.append(partial(controller.quotas.families, OF_CONTROLLERS))
        if self.authorization is not None:
            families.append(self.authorization.families)
        if self.telemetry is not None:
            telemetry = self.telemetry
            families.append(lambda: telemetry.families(world.monotonic.now_ms()))
        state = StatePorts(
            node_id=self._static.node_id,
            lifecycle=self.lifecycle,
            metadata=self.metadata,
            replica=self.metadata_log.replica,
            partitions=partitions,
            decisions=self.decisions,
            bytes_out=self._bytes_out,
            what_is_missing=self._what_is_missing,
            throttled=self.quotas.state,
            controller=None if controller is None else controller.state,
        )
        token = read_token(world, self._static.http_token_file)
        self._observatory = Observatory(self._what_is_missing, token)
        self._observatory.pages["/metrics"] = BrokerMetrics(
            families, self._group_lags, ShareLags(self.shares.partitions, world.wall_clock), world.wall_clock
        ).page
        self._observatory.pages |= decision_pages(self.decisions)
        self._observatory.pages["/state"] = broker_state_page(state)
        shares = SharesPorts(
            self._static.node_id, world, self.shares, self._share_configs, self.coordination.groups
        )
        self._observatory.pages["/shares"] = shares_page(shares)

    # -- start and stop

    async def start(self) -> None:
        """Returns when clients are served."""
        await self._nursery.start(self._observatory.serve, self.world, self._static.http_listener)
        await self._nursery.start(run_replica, self.metadata_log.replica)
        if self.controller is not None:
            await self.controller.start()
        self._nursery.start_soon(self._security.run)
        self._nursery.start_soon(self.lifecycle.run)
        self._nursery.start_soon(self._isr_changes.run)
        self._nursery.start_soon(self._disk_space.run)
        self._nursery.start_soon(run_timers, self.world, self.wheel, self._timer_failed)
        await self.metadata_log.caught_up.wait()
        image = self.metadata_log.image
        threads = self._static.num_recovery_threads_per_data_dir
        # A topic has many partitions: its config is resolved once.
        await self.store.load(cache(partial(self._topic_config, image)), threads)
        self._note_start()
        self.store.settle_copies(image, self._static.node_id)
        self.store.put_aside_strays(self.metadata_log.image, self._static.node_id)
        self._nursery.start_soon(self.publisher.run)
        self.metadata_log.publish(self.publisher)
        await self._published.wait()
        self._nursery.start_soon(self._assignments.run)
        self._nursery.start_soon(self._periodic_work().run)
        for listener in self._static.listeners:
            if self.authorization is not None:
                await self.authorization.ready_for(listener.name)
            bound = await self.world.network.listen(listener.host, listener.port)
            security = self._security.of_listener(listener)
            self._nursery.start_soon(self._server.serve, bound, listener.name, security)
        log.info("serving on %s", ", ".join(map(str, self._static.listeners)))
        self.lifecycle.ready_to_unfence()
        await self.lifecycle.unfenced_once.wait()
        self._nursery.start_soon(warn_of_other_defaults, self._controller, self.metadata_log.replica, self._static)

    async def stop(self) -> None:
        """Hand over leaderships, finish requests under way, and close the logs cleanly."""
        if self._static.controlled_shutdown_enable:
            self.lifecycle.begin_controlled_shutdown()
            with trio.move_on_after(CONTROLLED_SHUTDOWN_TIMEOUT_MS / 1000) as waiting:
                self._nursery.start_soon(self._cancel_without_controllers, waiting)
                await self.lifecycle.may_shut_down.wait()
        with trio.move_on_after(CLOSING_TIMEOUT_MS / 1000):
            await self._server.stop()
        # Stop all writers first: the clean-shutdown marker makes recovery skip anything written after this.
        self.fetchers.stop()
        self.coordination.stop()
        await self.store.close(self.lifecycle.broker_epoch)
        if self.controller is not None:
            await self.controller.stop()

    async def _cancel_without_controllers(self, waiting: trio.CancelScope) -> None:
        """Nobody is left to move leaderships away if all controllers are gone: the whole cluster is being stopped."""
        await without_controllers(self.world, self.metadata_log.replica)
        if not self.lifecycle.may_shut_down.is_set():
            log.warning("all controllers are gone: stopping without a controlled shutdown")
            waiting.cancel()

    def _periodic_work(self) -> PeriodicWork:
        cleaner = LogCleaner(self.world, self.store, self.current_settings, self._cleaner_work)
        ports = PeriodicPorts(
            world=self.world,
            store=self.store,
            partitions=self.partitions,
            metadata=self.metadata,
            coordinators=self.coordination.all,
            may_be_fenced=self.lifecycle.may_be_fenced,
            cleaner=cleaner,
            make_room=self.deliveries.make_room,
        )
        return PeriodicWork(self.settings, ports)

    def _note_start(self) -> None:
        directories = self.store.directories
        unclean = [it.path for it in directories.with_replicas if it.failure is None and not it.was_clean]
        cause = "it was stopped cleanly"
        if not directories.logs:
            cause = "its log directories are empty"
        elif unclean:
            cause = f"it was not stopped cleanly: logs in {' and '.join(unclean)} were recovered"
        self.decisions.note(
            DecisionKind.LIFECYCLE,
            f"broker {self._static.node_id}",
            f"broker {self._static.node_id} starts with {len(directories.logs)} logs",
            cause=cause,
            broker_epoch=self.lifecycle.broker_epoch,
            metadata_offset=self.metadata_log.image.offset,
            logs=len(directories.logs),
        )

    def _what_is_missing(self) -> str:
        """Reason why clients are not served well yet, in one line; empty if they are."""
        lifecycle = self.lifecycle
        if self.controller is not None and (reason := self.controller.reason_not_ready()):
            return reason
        if not self.metadata_log.caught_up.is_set():
            return "the metadata log does not have the registration of this broker yet"
        if not self._published.is_set():
            return "logs are being loaded"
        if lifecycle.state is not BrokerState.RUNNING:
            return f"the broker is {lifecycle.state.name.lower().replace('_', ' ')}"
        return "the broker is fenced, or may be" if lifecycle.may_be_fenced() else ""

    def _timer_failed(self, error: Exception) -> None:
        log.error("a delayed operation failed", exc_info=error)

    # -- steps of the metadata

    def _has_own_registration(self, image: MetadataImage) -> bool:
        own = image.cluster.brokers.get(self._static.node_id)
        return own is not None and own.incarnation_id == self.lifecycle.registration.incarnation_id

    def _metadata_advanced(self) -> None:
        self.lifecycle.metadata_advanced()

    def _controller_changed(self, leader_id: int | None) -> None:
        for channel in self._controller_channels:
            channel.leader_is(leader_id)

    def _announce(self, delta: MetadataDelta) -> None:
        """Show clients the new metadata, before this broker has applied it."""
        for line in coordinator_topic_differences(delta, self._static):
            log.warning("%s", line)
        self.metadata.update(delta.after)
        if self.authorization is not None and self.controller is None:
            self.authorization.put(delta, is_caught_up=True)
        session_ends_ms = self.world.monotonic.now_ms() + self._static.broker_session_timeout_ms
        self.metadata.keep_listed(delta.fenced_on_evidence, session_ends_ms)

    def _publish(self, delta: MetadataDelta) -> Steps:
        """Apply a step of the metadata to every part of this broker, in steps of the event loop."""
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            self.settings, ignored = with_dynamic_configs(self._static, self._layers(delta.after))
            for line in ignored:
                log.warning("a dynamic config is ignored: %s", line)
            self.store.settings_changed(self.settings)
            yield from self._security.sasl_configs_are(self._layers(delta.after).per_broker)
            self._nursery.start_soon(self._security.configs_are, self._layers(delta.after).per_broker)
            self._set_cordons()
            self._server.limits_changed(ServerLimits.of(self.settings, self.world.memory_bytes))
        self._set_throttles(delta)
        self.quotas.changed(delta)
        if self.telemetry is not None:
            self.telemetry.configs_are(delta.after.configs)
        if METADATA_VERSION in delta.changed_features:
            self._report_directories(delta.after)
        yield from self.partitions.apply_delta(delta)
        self._look_at_deliveries(delta)
        self.coordination.metadata_changed(delta)
        if SHARE_VERSION in delta.changed_features and not self._share_groups_are_enabled():
            self.shares.switched_off()
        if delta.changed_brokers:
            self.fetchers.metadata_changed()
        self.log_dir_moves.look()
        self._assignments.look()
        self._published.set()
        self.lifecycle.metadata_advanced()

    def _set_throttles(self, delta: MetadataDelta) -> None:
        image, node_id = delta.after, self._static.node_id
        layers = self._layers(image)
        self.throttles.set_rates(layers.cluster_default, layers.per_broker)
        for kind, name in delta.changed_configs:
            if kind == TOPIC_RESOURCE:
                self.throttles.set_topic(name, self._topic_config(image, name), node_id)
        if delta.deleted_topics:
            self.throttles.keep(image.topics.by_name)

    def _look_at_deliveries(self, delta: MetadataDelta) -> None:
        """Delayed delivery may be switched on or off for a topic."""
        topics = {name for kind, name in delta.changed_configs if kind == TOPIC_RESOURCE}
        if topics:
            for partition in self.partitions.led:
                if partition.topic in topics:
                    self.deliveries.look(partition)

    def _report_directories(self, image: MetadataImage) -> None:
        """A registration at an old metadata.version has no log directories."""
        own = image.cluster.brokers.get(self._static.node_id)
        if own is not None and not own.log_directories and image.features.metadata_version >= DIRECTORIES_SINCE:
            self.lifecycle.register_again()

    # -- callbacks between the parts

    def _afterwards(self, work: Work) -> None:
        self._server.afterwards(work)

    def _partition_changed(self, partition: Partition) -> None:
        self._fetch_wakeups.changed(partition)
        self.shares.partition_changed(partition)
        if self.deletions.delayed:
            self.deletions.check_and_complete((partition.topic_id, partition.index))

    def _partition_committed(self, partition: Partition) -> None:
        self._fetch_wakeups.committed(partition)
        self.shares.partition_changed(partition)

    def _leadership_changed(self, partition: Partition) -> None:
        self.deliveries.look(partition)
        self.coordination.leadership_changed(partition)
        self.shares.leadership_changed(partition)

    def _connection_closed(self, connection_id: int) -> None:
        self.shares.connection_closed(connection_id)
        if self.telemetry is not None:
            self.telemetry.disconnected(connection_id)

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    def _channel_to(self, broker_id: int, purpose: str = "fetcher") -> Channel | None:
        node = self._channels.node(broker_id)
        return None if node is None else self._channels.open(node, self._nursery, purpose)

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        response: AlterPartitionResponse = await self._isr_channel.call(request, timeout_ms=ALTER_PARTITION_TIMEOUT_MS)
        return response

    def _cordoned_ids(self) -> list[bytes]:
        """Ids of the cordoned directories, if the cluster's metadata.version supports them."""
        directories = self.store.directories
        if self.metadata.image.features.metadata_version < CORDONED_DIRECTORIES_SINCE:
            return []
        known = [it for it in directories.with_replicas if it.path in directories.cordoned]
        return [it.directory_id for it in known if it.directory_id is not None]

    def _reported_cordons(self) -> list[bytes] | None:
        """For heartbeats; None if they are not reported, or not yet."""
        supported = self.metadata.image.features.metadata_version >= CORDONED_DIRECTORIES_SINCE
        return self._cordoned_ids() if supported and self._published.is_set() else None

    def _set_cordons(self) -> None:
        directories, settings = self.store.directories, self.settings
        cordoned = cordoned_paths(settings.cordoned_log_dirs, settings.log_dirs)
        if cordoned != directories.cordoned:
            directories.cordoned = cordoned
            self.lifecycle.heartbeat_soon()

    def _directory_failed(self, directory: LogDirectory, lost: list[PartitionLog]) -> None:
        log.error("log directory %s failed with %d logs in it", directory.path, len(lost))
        self.partitions.directory_failed(directory.path)
        self.log_dir_moves.look()
        if not self.store.online_ids or directory.path == self._static.metadata_directory:
            # Nothing is left to serve, or the metadata log cannot be followed: a restart may find the disk repaired.
            self._nursery.start_soon(_give_up, f"log directory {directory.path} failed: {directory.failure}")
            return
        self.lifecycle.heartbeat_soon()

    # -- settings in the form that the parts take

    def _share_groups_are_enabled(self) -> bool:
        return share_groups_are_enabled(self.metadata.image)

    def _topic_config(self, image: MetadataImage, topic: str) -> TopicConfig:
        return TopicConfig.resolve(image.config(TOPIC_RESOURCE, topic), self._layers(image).merged())

    def _layers(self, image: MetadataImage) -> BrokerLayers:
        return BrokerLayers(
            static=self._static.raw,
            cluster_default=image.config(BROKER_RESOURCE, ""),
            per_broker=image.config(BROKER_RESOURCE, str(self._static.node_id)),
        )


async def _give_up(reason: str) -> None:
    raise CannotRun(reason)
