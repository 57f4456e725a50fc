"""A broker, wired on one screen: what it is made of, in which order it comes up, and in which it goes down.

    disks ─► metadata replica (observer) ─► registered ─► caught up ─► partitions ─► listeners ─► unfenced

Until its own registration stands in the metadata it has read, a broker only reads: old history must not make it lead.
Then it takes all of the cluster's present state in one step, and every later change as it is committed.
"""

from __future__ import annotations

import logging
from functools import cache, partial

import trio

from broker.controller_channel import ControllerChannel
from broker.directory_assignments import DirectoryAssignments
from broker.disk_room import DiskRoom
from broker.dispatch import make_dispatcher
from broker.fetch_news import FetchNews, Work
from broker.fetch_sessions import FetchSessions, PartitionKey
from broker.lifecycle import BrokerLifecycle, BrokerState, HeartbeatTimes
from broker.log_store import LogStore
from broker.metadata_cache import MetadataCache
from broker.metadata_publisher import MetadataPublisher
from broker.metrics import BrokerMetrics, Sources
from broker.periodic import run_periodic_tasks
from broker.producer_ids import ProducerIds
from broker.purgatory import Purgatory
from broker.replication.fetcher import Fetchers, FetchSettings
from broker.replication.isr_changes import IsrChanges
from broker.replication.partition import Partition, PartitionHost
from broker.replication.partitions import Partitions, ReplicationSettings
from broker.services import BrokerServices
from broker.state_page import broker_state_page
from broker.timers import run_timers
from broker.timing_wheel import TimingWheel
from kraft.commit_feed import CommittedBatch
from kraft.metadata.delta import MetadataDelta
from kraft.metadata.features import SUPPORTED_FEATURES
from kraft.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE, TOPIC_RESOURCE, MetadataImage
from kraft.metadata.loader import MetadataLoader
from kraft.metadata.snapshot import difference, image_to_records
from kraft.metadata_replica import MetadataReplica
from kraft.replica_config import replica_config
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.schema import Message
from runtime.background import Background
from runtime.channel import Channel
from runtime.decision_pages import decision_pages
from runtime.decisions import DecisionKind, Decisions
from runtime.exchange import ServerLimits
from runtime.observatory import Observatory
from runtime.process import CannotRun
from runtime.server import Server
from runtime.uuids import random_uuid
from runtime.world import World
from settings.broker import BrokerSettings
from settings.describe import BrokerLayers
from settings.dynamic import with_dynamic_configs
from settings.topic import TopicConfig
from storage.directories import LogDirectories
from storage.log import PartitionLog
from storage.log_directory import LogDirectory, LogDirectoryError

log = logging.getLogger(__name__)

ALTER_PARTITION_TIMEOUT_MS = 5_000
CONTROLLED_SHUTDOWN_TIMEOUT_MS = 30_000
"""How long a stopping broker waits for the controller to move its leaderships away."""
GOODBYE_MS = 2_000
"""How long requests under way may still take when the listeners close."""
_PLAINTEXT = 0


async def run_broker(
    settings: BrokerSettings,
    world: World,
    *,
    stop: trio.Event,
    task_status: trio.TaskStatus[BrokerServices] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run until `stop` is set or something breaks; started once clients are served."""
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
    try:
        async with trio.open_nursery() as nursery:
            decisions = Decisions(f"broker-{settings.node_id}", world.wall_clock.now_ms)
            store = LogStore(directories, world, decisions)
            node = _BrokerNode(settings, world, store, nursery, decisions)
            await node.start()
            task_status.started(node.services)
            await stop.wait()
            await node.stop()
            nursery.cancel_scope.cancel()
    finally:
        directories.abandon()


class _BrokerNode:
    """Everything that lives as long as the broker does; also what hears of each change of the metadata."""

    def __init__(
        self, settings: BrokerSettings, world: World, store: LogStore, nursery: trio.Nursery, decisions: Decisions
    ) -> None:
        directories = store.directories
        self._decisions = decisions
        self._settings = settings
        self._world = world
        self._nursery = nursery
        self._store = store
        store.settings_changed(settings)
        self._loader = MetadataLoader()
        self._publishing = False
        """Whether the logs that are here are open, so that steps of the metadata may be applied."""
        self._published = trio.Event()
        """Set when the metadata was applied for the first time."""
        self._caught_up = trio.Event()
        """Set when the metadata that was read tells of this very incarnation."""
        self._snapshotting = False
        self._replica = MetadataReplica(
            replica_config(
                settings,
                directories.cluster_id,
                store.id_of(settings.metadata_directory),
                settings.metadata_directory,
            ),
            world,
            self,
            self._decisions,
        )
        self._channels_to_controller = [
            ControllerChannel(world, nursery, self._voters(), f"broker-{settings.node_id}-{purpose}")
            for purpose in ("requests", "heartbeats", "isr")
        ]
        requests, heartbeats, isr_changes = self._channels_to_controller
        self._lifecycle = BrokerLifecycle(
            world=world,
            controller=heartbeats,
            registration=self._registration(),
            times=HeartbeatTimes(
                heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
                session_timeout_ms=settings.broker_session_timeout_ms,
                registration_timeout_ms=settings.initial_broker_registration_timeout_ms,
            ),
            metadata_offset=self._published_offset,
            offline_directories=lambda: store.offline_ids,
            full_directories=lambda: self._disk_room.full_ids,
        )
        self._isr_channel = isr_changes
        self._isr_changes = IsrChanges(
            settings.node_id, lambda: self._lifecycle.broker_epoch, self._alter_partition
        )
        self._metadata = MetadataCache(EMPTY_IMAGE, directories.cluster_id)
        self._fetchers = Fetchers(
            world, nursery, self._fetch_settings(), lambda: self._lifecycle.broker_epoch, self._channel_to
        )
        wheel = TimingWheel(world.monotonic.now_ms())
        fetches: Purgatory[PartitionKey] = Purgatory(wheel)
        sessions = FetchSessions(world.chance, max_sessions=settings.max_incremental_fetch_session_cache_slots)
        self._fetch_news = FetchNews(sessions, fetches, self._afterwards)
        partitions = Partitions(
            ReplicationSettings(settings.node_id, settings.replica_lag_time_max_ms),
            store,
            PartitionHost(
                monotonic=world.monotonic,
                wall_clock=world.wall_clock,
                propose_isr=self._isr_changes.propose,
                follow=self._fetchers.follow,
                changed=self._partition_changed,
                replica_fetch_backoff_ms=settings.replica_fetch_backoff_ms,
                fault_point=world.fault_point,
                leadership_changed=self._leadership_changed,
                may_be_fenced=self._lifecycle.may_be_fenced,
                session_timeout_ms=settings.broker_session_timeout_ms,
                decisions=decisions,
                committed=self._fetch_news.committed,
            ),
            self._topic_config,
            lambda: self._lifecycle.broker_epoch,
        )
        self._publisher = MetadataPublisher(
            partitions.prepare, store.make_logs, self._tell_clients, self._publish
        )
        self.services = BrokerServices(
            settings=settings,
            static=settings.raw,
            world=world,
            nursery=nursery,
            background=Background(nursery),
            metadata=self._metadata,
            publisher=self._publisher,
            store=store,
            partitions=partitions,
            fetchers=self._fetchers,
            controller=requests,
            lifecycle=self._lifecycle,
            wheel=wheel,
            fetches=fetches,
            deletions=Purgatory(wheel),
            sessions=sessions,
            producer_ids=ProducerIds(requests, settings.node_id),
            decisions=self._decisions,
        )
        directories.on_offline = self._directory_failed
        self._disk_room = DiskRoom(world, directories, self._lifecycle.heartbeat_soon)
        directories.on_no_room = self._disk_room.refused
        self._assignments = DirectoryAssignments(store, requests, self._lifecycle)
        dispatcher = make_dispatcher(self.services)
        self._server = Server(world, dispatcher, ServerLimits.of(settings, world.memory_bytes))
        self._server.on_long_turn = dispatcher.overran
        dispatcher.decisions = decisions
        if self.services.telemetry is not None:
            self._server.on_connection_closed = self.services.telemetry.disconnected
        self._observatory = Observatory(self._what_is_missing)
        sources = Sources(self.services, self._replica, dispatcher, self._server)
        self._observatory.pages["/metrics"] = BrokerMetrics(sources).page
        self._observatory.pages |= decision_pages(self._decisions)
        state = broker_state_page(self.services, self._replica, self._what_is_missing)
        self._observatory.pages["/state"] = state

    # -- up and down

    async def start(self) -> None:
        """Come up; returns when clients are served."""
        await self._nursery.start(self._observatory.serve, self._world, self._settings.http_listener)
        await self._nursery.start(self._replica_task)
        self._nursery.start_soon(self._lifecycle.run)
        self._nursery.start_soon(self._isr_changes.run)
        self._nursery.start_soon(self._disk_room.run)
        self._nursery.start_soon(run_timers, self._world, self.services.wheel, self._timer_failed)
        await self._caught_up.wait()
        image = self._loader.image
        threads = self._settings.num_recovery_threads_per_data_dir
        # Topics have many partitions.
        await self._store.load(cache(partial(self._topic_config, image)), threads)
        self._tell_start()
        self._store.put_aside_strays(self._loader.image, self._settings.node_id)
        self._nursery.start_soon(self._publisher.run)
        self._publishing = True
        self._publisher.put(difference(EMPTY_IMAGE, self._loader.image))
        await self._published.wait()
        self._nursery.start_soon(self._assignments.run)
        self._nursery.start_soon(run_periodic_tasks, self.services)
        for listener in self._settings.listeners:
            bound = await self._world.network.listen(listener.host, listener.port)
            self._nursery.start_soon(self._server.serve, bound, listener.name)
        log.info("serving on %s", ", ".join(map(str, self._settings.listeners)))
        self._lifecycle.ready_to_unfence()
        await self._lifecycle.unfenced_once.wait()

    async def stop(self) -> None:
        """Hand over what is led, answer what is under way, and leave clean logs behind."""
        if self._settings.controlled_shutdown_enable:
            self._lifecycle.begin_controlled_shutdown()
            with trio.move_on_after(CONTROLLED_SHUTDOWN_TIMEOUT_MS / 1000):
                await self._lifecycle.may_shut_down.wait()
        with trio.move_on_after(GOODBYE_MS / 1000):
            await self._server.stop()
        # Whatever were written from here on, the marker of a clean stop would say that nobody need look at it.
        self._fetchers.stop()
        for coordinator in self.services.coordinators:
            coordinator.stop()
        await self._store.close(self._lifecycle.broker_epoch)

    def _tell_start(self) -> None:
        directories = self._store.directories
        unclean = [it.path for it in directories.with_replicas if it.failure is None and not it.was_clean]
        cause = "it had stopped cleanly"
        if not directories.logs:
            cause = "there is nothing in its directories yet"
        elif unclean:
            cause = f"it had not stopped cleanly: what was not durable in {' and '.join(unclean)} was checked"
        self._decisions.note(
            DecisionKind.LIFECYCLE,
            f"broker {self._settings.node_id}",
            f"broker {self._settings.node_id} starts with {len(directories.logs)} logs",
            cause=cause,
            broker_epoch=self._lifecycle.broker_epoch,
            metadata_offset=self._loader.image.offset,
            logs=len(directories.logs),
        )

    def _what_is_missing(self) -> str:
        """Until clients are well served here."""
        lifecycle = self._lifecycle
        if not self._caught_up.is_set():
            return "the metadata log does not tell of this broker yet"
        if not self._published.is_set():
            return "logs are being loaded"
        if lifecycle.state is not BrokerState.RUNNING:
            return f"the broker is {lifecycle.state.name.lower().replace('_', ' ')}"
        return "the broker is fenced, or may be" if lifecycle.may_be_fenced() else ""

    async def _replica_task(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self._replica.run(task_status=task_status)

    def _timer_failed(self, error: Exception) -> None:
        log.error("a delayed operation failed", exc_info=error)

    # -- the metadata log: MetadataListener

    def handle_commit(self, batch: CommittedBatch) -> None:
        deltas: list[MetadataDelta] = []
        if batch.records:
            deltas = self._loader.handle_commit(
                batch.base_offset, batch.epoch, batch.append_time_ms, batch.records, continues=batch.continues
            )
        self._loader.last_offset = batch.last_offset
        self._apply(deltas)

    def handle_snapshot(
        self, records: list[Message], offset: int, epoch: int, timestamp_ms: int
    ) -> None:
        self._apply([self._loader.handle_snapshot(records, offset, epoch, timestamp_ms)])

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        for channel in self._channels_to_controller:
            channel.leader_is(leader_id)

    def _apply(self, deltas: list[MetadataDelta]) -> None:
        if self._publishing:
            for delta in deltas:
                self._publisher.put(delta)
        elif self._knows_itself(self._loader.image):
            self._caught_up.set()
        self._lifecycle.metadata_advanced()
        image = self._loader.image
        # A log that was grown in an earlier life may be due for a snapshot before any of it was read back.
        may_snapshot = image.offset >= 0 and not self._snapshotting and not self._loader.in_transaction
        if may_snapshot and self._replica.snapshots.is_due:
            self._snapshotting = True
            self._nursery.start_soon(self._snapshot, image)

    def _knows_itself(self, image: MetadataImage) -> bool:
        own = image.cluster.brokers.get(self._settings.node_id)
        return own is not None and own.incarnation_id == self._lifecycle.registration.incarnation_id

    def _tell_clients(self, delta: MetadataDelta) -> None:
        self._metadata.update(delta.after)
        session_ends_ms = self._world.monotonic.now_ms() + self._settings.broker_session_timeout_ms
        self._metadata.keep_listed(delta.fenced_on_evidence, session_ends_ms)

    def _publish(self, delta: MetadataDelta) -> None:
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            self.services.settings, passed_over = with_dynamic_configs(
                self._settings, self._layers(delta.after)
            )
            for line in passed_over:
                log.warning("a dynamic config is passed over: %s", line)
            self._store.settings_changed(self.services.settings)
        if self.services.telemetry is not None:
            self.services.telemetry.configs_are(delta.after.configs)
        self.services.partitions.apply_delta(delta)
        for coordinator in self.services.coordinators:
            coordinator.metadata_changed(delta)
        if delta.changed_brokers:
            self._fetchers.metadata_changed()
            self.services.markers.metadata_changed(delta)
            self.services.verifier.metadata_changed(delta)
        self._assignments.look()
        self._published.set()
        self._lifecycle.metadata_advanced()

    def _published_offset(self) -> int:
        """How far the metadata log was applied."""
        behind = self._publisher.behind
        return self._loader.last_offset if behind is None else behind

    def _afterwards(self, work: Work) -> None:
        self._server.afterwards(work)

    def _partition_changed(self, partition: Partition) -> None:
        self._fetch_news.changed(partition)
        deletions = self.services.deletions
        if deletions.delayed:
            deletions.check_and_complete((partition.topic_id, partition.index))

    def _leadership_changed(self, partition: Partition) -> None:
        for coordinator in self.services.coordinators:
            coordinator.leadership_changed(partition)

    async def _snapshot(self, image: MetadataImage) -> None:
        records = image_to_records(image)
        await self._replica.snapshots.create(records, image.offset, image.epoch, image.timestamp_ms)
        self._snapshotting = False

    # -- what the parts need of each other

    def _voters(self) -> dict[int, tuple[str, int]]:
        return {voter.id: (voter.host, voter.port) for voter in self._settings.controller_quorum_voters}

    def _channel_to(self, broker_id: int) -> Channel | None:
        node = self._metadata.node(broker_id, self._settings.inter_broker_listener_name)
        if node is None:
            return None
        client_id = f"broker-{self._settings.node_id}-fetcher-{broker_id}"
        return Channel(self._world, self._nursery, node.host, node.port, client_id=client_id)

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        response: AlterPartitionResponse = await self._isr_channel.call(
            request, timeout_ms=ALTER_PARTITION_TIMEOUT_MS
        )
        return response

    def _topic_config(self, image: MetadataImage, topic: str) -> TopicConfig:
        return TopicConfig.resolve(image.config(TOPIC_RESOURCE, topic), self._layers(image).merged())

    def _layers(self, image: MetadataImage) -> BrokerLayers:
        return BrokerLayers(
            static=self._settings.raw,
            cluster_default=image.config(BROKER_RESOURCE, ""),
            per_broker=image.config(BROKER_RESOURCE, str(self._settings.node_id)),
        )

    def _directory_failed(self, directory: LogDirectory, lost: list[PartitionLog]) -> None:
        log.error("log directory %s failed with %d logs in it", directory.path, len(lost))
        self.services.partitions.directory_failed(directory.path)
        if not self._store.online_ids or directory.path == self._settings.metadata_directory:
            # Nothing is left to serve from, or the metadata cannot be followed: another start may find the disk well.
            self._nursery.start_soon(_give_up, f"log directory {directory.path} failed: {directory.failure}")
            return
        self._lifecycle.heartbeat_soon()

    def _registration(self) -> BrokerRegistrationRequest:
        settings = self._settings
        return BrokerRegistrationRequest(
            broker_id=settings.node_id,
            cluster_id=self._store.directories.cluster_id,
            incarnation_id=random_uuid(self._world.chance),
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port, security_protocol=_PLAINTEXT)
                for each in settings.advertised_listeners
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in sorted(SUPPORTED_FEATURES.items())
            ],
            rack=settings.broker_rack,
            log_dirs=self._store.online_ids,
            previous_broker_epoch=self._store.directories.previous_broker_epoch,
        )

    def _fetch_settings(self) -> FetchSettings:
        settings = self._settings
        return FetchSettings(
            node_id=settings.node_id,
            fetch_wait_max_ms=settings.replica_fetch_wait_max_ms,
            fetch_min_bytes=settings.replica_fetch_min_bytes,
            fetch_max_bytes=settings.replica_fetch_max_bytes,
            fetch_response_max_bytes=settings.replica_fetch_response_max_bytes,
            socket_timeout_ms=settings.replica_socket_timeout_ms,
        )


async def _give_up(reason: str) -> None:
    raise CannotRun(reason)
