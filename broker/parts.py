"""The parts of one broker, and the calls between them.

No part knows this class: each gets what it needs from one of the `_wire_…` methods.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.broker_channels import BrokerChannels
from barnabas.broker.controller_channel import ControllerChannel
from barnabas.broker.coordination import Coordination
from barnabas.broker.coordination_ports import CoordinationPorts
from barnabas.broker.cordoned_directories import cordoned_paths
from barnabas.broker.directory_assignments import DirectoryAssignments
from barnabas.broker.disk_space import DiskSpace
from barnabas.broker.fetch_session import PartitionKey
from barnabas.broker.fetch_sessions import PARTITION_BYTES, FetchSessions
from barnabas.broker.fetch_wakeups import FetchWakeups, Work
from barnabas.broker.forwarding import Forwarding, ForwardingPorts
from barnabas.broker.group_lag import GroupLagPorts, GroupLags
from barnabas.broker.internal_topics import NEVER_TIERED
from barnabas.broker.keyed_queues import KeyedQueues
from barnabas.broker.lifecycle import BrokerLifecycle, BrokerState, HeartbeatTimes
from barnabas.broker.log_store import LogStore
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.metadata_follower import MetadataFollower
from barnabas.broker.metadata_publisher import MetadataPublisher
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.registration import registration
from barnabas.broker.replication.fetcher import Fetchers, FetchSettings
from barnabas.broker.replication.isr_changes import IsrChanges
from barnabas.broker.replication.log_dir_moves import LogDirMoves, MovePorts
from barnabas.broker.replication.partition import Partition, PartitionHost
from barnabas.broker.replication.partitions import Partitions, ReplicationSettings
from barnabas.broker.replication.throttles import ReplicationThrottles
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.broker.traffic import BytesOut, CleanerWork, Conversions
from barnabas.kraft.authorizing import make_authorization
from barnabas.kraft.commit_feed import MetadataListener
from barnabas.kraft.metadata.features import (
    CORDONED_DIRECTORIES_SINCE,
)
from barnabas.kraft.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE, TOPIC_RESOURCE, MetadataImage
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.node import ControllerNode
from barnabas.kraft.node_security import NodeSecurity
from barnabas.kraft.quotas import NodeQuotas
from barnabas.kraft.replica_config import replica_config
from barnabas.kraft.shared_listener import SharedListener
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.runtime.background import Background
from barnabas.runtime.channel import Channel
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.dispatch import Dispatcher
from barnabas.runtime.late import Late
from barnabas.runtime.memory import GROUPS_PART, SESSIONS_PART
from barnabas.runtime.process import CannotRun
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.rooms import Rooms
from barnabas.runtime.server import Server, ServerLimits
from barnabas.runtime.worker import Worker
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.describe import BrokerLayers
from barnabas.settings.errors import SettingsError
from barnabas.settings.node import CLUSTER_SCOPE
from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from barnabas.broker.delayed.deliveries import DelayedDeliveries
    from barnabas.broker.remote.parts import RemoteParts
    from barnabas.broker.shares.node_part import ShareGroups
    from barnabas.broker.shares.share_configs import ShareConfigsByGroup
    from barnabas.broker.telemetry import ClientTelemetry

log = logging.getLogger(__name__)

ALTER_PARTITION_TIMEOUT_MS = 5_000
MOST_CONFIGS_KEPT = 1_000
TELEMETRY_REPORTER = "barnabas.ClientTelemetry"
"""The word in `metric.reporters` that lets clients push their metrics."""
AT_ONCE = Rooms(are_late=False)


class BrokerParts:
    """Everything that a broker consists of, not yet started. `broker.node` starts and stops it."""

    dispatcher: Dispatcher
    server: Server
    """Both are made from these parts by `broker.serving`."""
    publisher: MetadataPublisher
    """Passes each step of the metadata to these parts; made from them by `broker.node`."""

    def __init__(  # noqa: PLR0913 - made in one place
        self,
        settings: BrokerSettings,
        world: World,
        store: LogStore,
        nursery: trio.Nursery,
        decisions: Decisions,
        controller: ControllerNode | None = None,
        *,
        rooms: Rooms = AT_ONCE,
    ) -> None:
        """`controller`: the other role of a combined node."""
        self.rooms = rooms
        self.settings = settings
        """The settings as they hold now, with dynamic configs."""
        self.static = settings
        """The settings of the broker's own file."""
        self._inherited: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        """Dynamic defaults of the cluster and settings of this broker, from which `_topic_configs` follow."""
        self._topic_configs: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        """Configs of topics by their own settings."""
        self.store = store
        self.decisions = decisions
        self.controller = controller
        self.world = world
        self.nursery = nursery
        self.published = trio.Event()
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
        self.limits = ServerLimits.of(settings, world.memory_bytes)
        self._wire_metadata()
        self._wire_replication()
        self._wire_coordinators()
        self._wire_shares()
        self._wire_disks()
        self._wire_quotas()
        self.remote = self._remote_parts()
        """Tiered storage; None: it is off."""
        if self.remote is not None:
            self.fetchers.remote_states = self.remote.reading.states
        self.bytes_out = BytesOut()
        self.produce_conversions = Conversions(world.stopwatch)
        self.fetch_conversions = Conversions(world.stopwatch)
        self.cleaner_work = CleanerWork()

    def current_settings(self) -> BrokerSettings:
        return self.settings

    def _wire_metadata(self) -> None:
        """The metadata log, and the channels to the active controller."""
        settings, world, store = self.static, self.world, self.store
        cluster_id = store.directories.cluster_id
        directory = settings.metadata_directory
        self.metadata_log = MetadataFollower(
            self.nursery,
            self._has_own_registration,
            self._metadata_advanced,
            writes_snapshots=self.controller is None,
        )
        self.metadata_log.leader_changed = self._controller_changed
        listener: MetadataListener = self.metadata_log
        if self.controller is not None:
            listener = SharedListener(self.controller.service, self.metadata_log)
        owner = settings if self.controller is None else self.controller.settings
        self.security = NodeSecurity(settings, world, lambda: self.metadata.image)
        self.securities = [self.security, *([] if self.controller is None else [self.controller.security])]
        to_controllers = self.security.to_controllers
        config = replica_config(owner, cluster_id, store.id_of(directory), directory, to_controllers)
        replica = MetadataReplica(config, world, listener, self.decisions)
        self.metadata_log.attach(replica)
        if self.controller is not None:
            self.controller.attach(replica)
        self._controller_channels = [
            ControllerChannel(world, self.nursery, replica, f"broker-{settings.node_id}-{purpose}", to_controllers)
            for purpose in ("requests", "heartbeats", "isr")
        ]
        self.to_controller, heartbeats, self._isr_channel = self._controller_channels
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
            full_directories=lambda: self.disk_space.full_ids,
            cordoned_directories=self._reported_cordons,
            obstacle=lambda: replica.calls.obstacle,
        )
        self.metadata = MetadataCache(EMPTY_IMAGE, cluster_id)
        self.forwarding = Forwarding(ForwardingPorts(self.to_controller, self.background, self.current_settings))
        self._channels = BrokerChannels(world, self.metadata, self.current_settings, self.security.between_brokers)

    def _wire_replication(self) -> None:
        """Partitions, the fetchers that follow leaders, and the requests that wait for partitions."""
        settings, world = self.static, self.world
        self.throttles = ReplicationThrottles(
            QuotaWindows(settings.replication_quota_window_num, settings.replication_quota_window_size_seconds * 1000),
            QuotaWindows(
                settings.alter_log_dirs_replication_quota_window_num,
                settings.alter_log_dirs_replication_quota_window_size_seconds * 1000,
            ),
        )
        self.isr_changes = IsrChanges(settings.node_id, self._broker_epoch, self._alter_partition)
        self.fetchers = Fetchers(
            world,
            self.nursery,
            FetchSettings.of(settings),
            self._broker_epoch,
            self.channel_to,
            self.throttles.follower,
        )
        self.fetches: Purgatory[PartitionKey] = Purgatory(self.wheel)
        self.deletions: Purgatory[PartitionKey] = Purgatory(self.wheel)
        self.sessions = FetchSessions(
            world.chance,
            max_sessions=settings.max_incremental_fetch_session_cache_slots,
            max_partitions=self.limits.memory_limit_bytes // SESSIONS_PART // PARTITION_BYTES,
        )
        self._fetch_wakeups = FetchWakeups(self.sessions, self.fetches, self._afterwards)
        self.partitions = Partitions(
            ReplicationSettings(settings.node_id, settings.replica_lag_time_max_ms),
            self.store,
            PartitionHost(
                monotonic=world.monotonic,
                wall_clock=world.wall_clock,
                propose_isr=self.isr_changes.propose,
                follow=self.fetchers.follow,
                changed=self._partition_changed,
                replica_fetch_backoff_ms=settings.replica_fetch_backoff_ms,
                fault_point=world.fault_point,
                leadership_changed=self._leadership_changed,
                may_be_fenced=self.lifecycle.may_be_fenced,
                session_timeout_ms=settings.broker_session_timeout_ms,
                decisions=self.decisions,
                committed=self._partition_committed,
                begins_behind_copied=lambda: self.settings.follower_fetch_last_tiered_offset_enable,
            ),
            self.topic_config,
            self._broker_epoch,
        )
        self.late_deliveries: Late[DelayedDeliveries] = self.rooms.part(
            "barnabas.broker.rooms.delayed:delayed_deliveries", self
        )
        self.lookup = PartitionLookup(self.partitions, self.metadata, settings.node_id)

    def _wire_coordinators(self) -> None:
        ports = CoordinationPorts(
            world=self.world,
            nursery=self.nursery,
            background=self.background,
            wheel=self.wheel,
            metadata=self.metadata,
            partitions=self.partitions,
            controller=self.to_controller,
            settings=self.current_settings,
            decisions=self.decisions,
            broker_epoch=self._broker_epoch,
            channels=self._channels,
            most_group_bytes=self.limits.memory_limit_bytes // GROUPS_PART,
        )
        self.coordination = Coordination(ports, self.rooms)
        self.groups, self.transactions = self.coordination.groups, self.coordination.transactions
        self.group_lags = GroupLags(
            GroupLagPorts(
                self.world, self.groups, self.metadata, self.partitions, self.current_settings, self._channels
            )
        )

    def _wire_shares(self) -> None:
        """The share partitions that this broker leads; their states are stored by share coordinators."""
        self.late_share_configs: Late[ShareConfigsByGroup] = self.rooms.part(
            "barnabas.broker.shares.share_configs:ShareConfigsByGroup",
            lambda: self.metadata.image,
            self.current_settings,
        )
        self.late_shares: Late[ShareGroups] = self.rooms.part("barnabas.broker.rooms.shares:share_groups", self)

    @property
    def share_configs(self) -> ShareConfigsByGroup:
        return self.late_share_configs.get()

    @property
    def shares(self) -> ShareGroups:
        return self.late_shares.get()

    def _wire_disks(self) -> None:
        directories = self.store.directories
        self.disk_space = DiskSpace(self.world, directories, self.lifecycle.heartbeat_soon)
        self.assignments = DirectoryAssignments(self.store, self.to_controller, self.lifecycle)
        self.log_dir_moves = LogDirMoves(
            MovePorts(
                world=self.world,
                nursery=self.nursery,
                store=self.store,
                partitions=self.partitions,
                assign=self.assignments.assign,
                quota=self.throttles.log_dirs,
                decisions=self.decisions,
                node_id=self.static.node_id,
            )
        )
        directories.on_offline = self._directory_failed
        directories.on_no_room = self.disk_space.refused

    def _wire_quotas(self) -> None:
        """Quotas, and what is bounded or counted for each client."""
        world, settings = self.world, self.static
        self.quotas = NodeQuotas(settings, QuotaWindows(), world, self.decisions, f"broker {settings.node_id}")
        if settings.quota_scope == CLUSTER_SCOPE:
            self.lifecycle.quotas = self.quotas.hold_for_cluster(settings.broker_heartbeat_interval_ms)
        self.slow_admissions: KeyedQueues[int] = KeyedQueues()
        self.telemetry: ClientTelemetry | None = None
        """None: clients are not asked for metrics."""
        if TELEMETRY_REPORTER in re.split(r"\s*,\s*", settings.raw.get("metric.reporters", "").strip()):
            maker, most_bytes = "barnabas.broker.telemetry:ClientTelemetry", settings.telemetry_max_bytes
            self.telemetry = self.rooms.part(maker, world.chance, most_bytes).get()

    def _remote_parts(self) -> RemoteParts | None:
        world, settings = self.world, self.static
        if not settings.remote_log_storage_system_enable:
            return None
        # A node without tiers does not load them.
        from barnabas.broker.remote.metadata_topic import RemoteMetadata, RemoteMetadataPorts
        from barnabas.broker.remote.parts import RemoteParts, RemotePartsPorts

        assert settings.remote_store is not None
        if world.object_store is None:
            raise CannotRun("tiered storage is on, but this world has no object stores")
        try:
            store = world.object_store(settings.remote_store)
        except SettingsError as error:
            raise CannotRun(str(error)) from None
        metadata = RemoteMetadata(
            RemoteMetadataPorts(
                world=world,
                background=self.background,
                node_id=settings.node_id,
                image=lambda: self.metadata.image,
                partitions=self.partitions,
                channel_to=partial(self.channel_to, purpose="remote-metadata"),
                create_internal=self.coordination.auto_topics.create_internal,
                settings=self.current_settings,
            )
        )
        return RemoteParts(
            RemotePartsPorts(
                world=world,
                directory=settings.metadata_directory,
                node_id=settings.node_id,
                settings=self.current_settings,
                partitions=self.partitions,
                image=lambda: self.metadata.image,
                metadata=metadata,
                background=self.background,
                decisions=self.decisions,
                memory_bytes=self.limits.memory_limit_bytes,
            ),
            store,
        )

    def what_is_missing(self) -> str:
        """Reason why clients are not served well yet, in one line; empty if they are."""
        if self.controller is not None and (reason := self.controller.reason_not_ready()):
            return reason
        if not self.metadata_log.caught_up.is_set():
            return "the metadata log does not have the registration of this broker yet"
        if not self.published.is_set():
            return "logs are being loaded"
        if self.lifecycle.state is not BrokerState.RUNNING:
            return f"the broker is {self.lifecycle.state.name.lower().replace('_', ' ')}"
        return "the broker is fenced, or may be" if self.lifecycle.may_be_fenced() else ""

    # -- callbacks between the parts

    def _has_own_registration(self, image: MetadataImage) -> bool:
        own = image.cluster.brokers.get(self.static.node_id)
        return own is not None and own.incarnation_id == self.lifecycle.registration.incarnation_id

    def _metadata_advanced(self) -> None:
        self.lifecycle.metadata_advanced()

    def _controller_changed(self, leader_id: int | None) -> None:
        for channel in self._controller_channels:
            channel.leader_is(leader_id)

    def _afterwards(self, work: Work) -> None:
        self.server.afterwards(work)

    def _partition_changed(self, partition: Partition) -> None:
        self._fetch_wakeups.changed(partition)
        if (shares := self.late_shares.here) is not None:
            shares.partition_changed(partition)
        if self.deletions.delayed:
            self.deletions.check_and_complete((partition.topic_id, partition.index))

    def _partition_committed(self, partition: Partition) -> None:
        self._fetch_wakeups.committed(partition)
        if self.remote is not None:
            self.remote.partition_committed(partition)
        if (shares := self.late_shares.here) is not None:
            shares.partition_changed(partition)

    def _leadership_changed(self, partition: Partition) -> None:
        self.look_at_deliveries(partition)
        self.coordination.leadership_changed(partition)
        if (shares := self.late_shares.here) is not None:
            shares.leadership_changed(partition)
        if self.remote is not None:
            self.remote.leadership_changed(partition)

    @property
    def deliveries(self) -> DelayedDeliveries:
        return self.late_deliveries.get()

    def look_at_deliveries(self, partition: Partition) -> None:
        """The leadership of the partition, or its config, may have changed."""
        late = self.late_deliveries
        if late.here is not None or (late.is_loaded and partition.log.config.barnabas_delayed_delivery_enable):
            late.get().look(partition)
        elif partition.log.config.barnabas_delayed_delivery_enable:
            self.background.spawn(self._load_deliveries, partition)

    async def _load_deliveries(self, partition: Partition) -> None:
        await self.worker.run(self.late_deliveries.load)
        self.deliveries.look(partition)

    def make_room(self) -> None:
        """To be called before retention; see `DelayedDeliveries.make_room`."""
        if self.late_deliveries.here is not None:
            self.late_deliveries.here.make_room()

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    def channel_to(self, broker_id: int, purpose: str = "fetcher") -> Channel | None:
        node = self._channels.node(broker_id)
        return None if node is None else self._channels.open(node, self.nursery, purpose)

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        response: AlterPartitionResponse = await self._isr_channel.call(request, timeout_ms=ALTER_PARTITION_TIMEOUT_MS)
        return response

    def cordoned_ids(self) -> list[bytes]:
        """Ids of the cordoned directories, if the cluster's metadata.version supports them."""
        directories = self.store.directories
        if self.metadata.image.features.metadata_version < CORDONED_DIRECTORIES_SINCE:
            return []
        known = [it for it in directories.with_replicas if it.path in directories.cordoned]
        return [it.directory_id for it in known if it.directory_id is not None]

    def _reported_cordons(self) -> list[bytes] | None:
        """For heartbeats; None if they are not reported, or not yet."""
        supported = self.metadata.image.features.metadata_version >= CORDONED_DIRECTORIES_SINCE
        return self.cordoned_ids() if supported and self.published.is_set() else None

    def set_cordons(self) -> None:
        directories, settings = self.store.directories, self.settings
        cordoned = cordoned_paths(settings.cordoned_log_dirs, settings.log_dirs)
        if cordoned != directories.cordoned:
            directories.cordoned = cordoned
            self.lifecycle.heartbeat_soon()

    def _directory_failed(self, directory: LogDirectory, lost: list[PartitionLog]) -> None:
        log.error("log directory %s failed with %d logs in it", directory.path, len(lost))
        self.partitions.directory_failed(directory.path)
        self.log_dir_moves.look()
        if not self.store.online_ids or directory.path == self.static.metadata_directory:
            # Nothing is left to serve, or the metadata log cannot be followed: a restart may find the disk repaired.
            self.nursery.start_soon(_give_up, f"log directory {directory.path} failed: {directory.failure}")
            return
        self.lifecycle.heartbeat_soon()

    # -- settings in the form that the parts take

    def topic_config(self, image: MetadataImage, topic: str) -> TopicConfig:
        """The same object for topics with equal settings, as long as those of the broker stay."""
        layers = self.layers(image)
        inherited = (layers.cluster_default, layers.per_broker)
        if inherited != self._inherited or len(self._topic_configs) > MOST_CONFIGS_KEPT:
            self._inherited, self._topic_configs = inherited, {}
        overrides = tuple(sorted(image.config(TOPIC_RESOURCE, topic).items()))
        config = self._topic_configs.get(overrides)
        if config is None:
            config = self._topic_configs[overrides] = TopicConfig.resolve(dict(overrides), layers.merged())
        if config.remote_storage_enable and topic in NEVER_TIERED:
            return replace(config, remote_storage_enable=False)
        return config

    def layers(self, image: MetadataImage) -> BrokerLayers:
        return BrokerLayers(
            static=self.static.raw,
            cluster_default=image.config(BROKER_RESOURCE, ""),
            per_broker=image.config(BROKER_RESOURCE, str(self.static.node_id)),
        )


async def _give_up(reason: str) -> None:
    raise CannotRun(reason)
