"""A broker: its parts, the order in which they start, and the order in which they stop.

disks ─► metadata log (observer) ─► registered ─► caught up ─► partitions ─► listeners ─► unfenced
"""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import TYPE_CHECKING

import trio

from barnabas.broker.dispatch import PAGES, load_rooms
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.log_store import LogStore
from barnabas.broker.metadata_publisher import MetadataPublisher
from barnabas.broker.metadata_steps import MetadataSteps
from barnabas.broker.parts import BrokerParts
from barnabas.broker.periodic import PeriodicPorts, PeriodicWork
from barnabas.broker.serving import dispatcher_of, make_server
from barnabas.broker.setting_checks import reason_against_disabling_tiers, warn_of_other_defaults
from barnabas.broker.timers import run_timers
from barnabas.kraft.node import ControllerNode, run_replica
from barnabas.kraft.quorum_watch import without_controllers
from barnabas.runtime.decisions import DecisionKind, Decisions
from barnabas.runtime.late import Late
from barnabas.runtime.process import CannotRun
from barnabas.runtime.rooms import Rooms
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.controller import ControllerSettings
from barnabas.settings.listeners import Listener
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log_directory import LogDirectoryError
from barnabas.storage.open_files import limit_for_logs

if TYPE_CHECKING:
    from barnabas.runtime.observatory import Observatory

log = logging.getLogger(__name__)

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
    rooms_are_late: bool = False,
    task_status: trio.TaskStatus[BrokerParts] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run until `stop` is set or something fails; started once clients are served.

    With `controller` this is a combined node (`process.roles=broker,controller`): both roles in one process, over one
    replica of the metadata log in one directory. With `rooms_are_late` modules are loaded when a request needs them
    (`runtime/rooms.py`).
    """
    rooms = Rooms(are_late=rooms_are_late)
    if not rooms_are_late:
        load_rooms()
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
            node = BrokerNode(BrokerParts(settings, world, store, nursery, decisions, beside, rooms=rooms))
            await node.start()
            task_status.started(node.parts)
            await stop.wait()
            await node.stop()
            nursery.cancel_scope.cancel()
    finally:
        directories.abandon()


class BrokerNode:
    """Starts and stops the parts of one broker."""

    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        steps = MetadataSteps(parts)
        parts.publisher = MetadataPublisher(
            parts.partitions.prepare, parts.store.make_logs, steps.announce, steps.apply
        )
        parts.dispatcher = dispatcher_of(parts)
        parts.server = make_server(parts)
        self._observatory: Late[Observatory] = parts.rooms.part(PAGES, parts)

    async def start(self) -> None:
        """Returns when clients are served."""
        parts = self.parts
        if parts.static.http_listener is not None:
            await parts.nursery.start(self._observatory.get().serve, parts.world, parts.static.http_listener)
        await parts.nursery.start(run_replica, parts.metadata_log.replica)
        if parts.controller is not None:
            await parts.controller.start()
        parts.nursery.start_soon(parts.security.run)
        parts.nursery.start_soon(parts.lifecycle.run)
        parts.nursery.start_soon(parts.isr_changes.run)
        parts.nursery.start_soon(parts.disk_space.run)
        parts.nursery.start_soon(run_timers, parts.world, parts.wheel, self._timer_failed)
        await parts.metadata_log.caught_up.wait()
        image = parts.metadata_log.image
        if (reason := reason_against_disabling_tiers(image, parts.static)) is not None:
            raise CannotRun(reason)
        threads = parts.static.num_recovery_threads_per_data_dir
        # A topic has many partitions: its config is resolved once.
        await parts.store.load(cache(partial(parts.topic_config, image)), threads)
        self._note_start()
        parts.store.settle_copies(image, parts.static.node_id)
        await parts.store.put_aside_strays(image, parts.static.node_id)
        parts.nursery.start_soon(parts.publisher.run)
        parts.metadata_log.publish(parts.publisher)
        await parts.published.wait()
        parts.nursery.start_soon(parts.assignments.run)
        parts.nursery.start_soon(self._periodic_work().run)
        if parts.remote is not None:
            parts.nursery.start_soon(parts.remote.run)
        for listener in parts.static.listeners:
            await self._serve(listener)
        log.info("serving on %s", ", ".join(map(str, parts.static.listeners)))
        parts.lifecycle.ready_to_unfence()
        await parts.lifecycle.unfenced_once.wait()
        for listener in parts.static.shared_listeners:
            await self._serve(listener, shared=True)
        parts.nursery.start_soon(warn_of_other_defaults, parts.to_controller, parts.metadata_log.replica, parts.static)

    async def _serve(self, listener: Listener, *, shared: bool = False) -> None:
        parts = self.parts
        if parts.authorization is not None:
            await parts.authorization.ready_for(listener.name)
        bound = await parts.world.network.listen(listener.host, listener.port, shared=shared)
        parts.nursery.start_soon(parts.server.serve, bound, listener.name, parts.security.of_listener(listener))

    async def stop(self) -> None:
        """Hand over leaderships, finish requests under way, and close the logs cleanly."""
        parts = self.parts
        if parts.static.controlled_shutdown_enable:
            parts.lifecycle.begin_controlled_shutdown()
            with trio.move_on_after(CONTROLLED_SHUTDOWN_TIMEOUT_MS / 1000) as waiting:
                parts.nursery.start_soon(self._cancel_without_controllers, waiting)
                await parts.lifecycle.may_shut_down.wait()
        # Stop all writers first: the clean-shutdown marker makes recovery skip anything written after this. Leaders
        # that stop, too, need not wait for fetches of this broker.
        parts.fetchers.stop()
        with trio.move_on_after(CLOSING_TIMEOUT_MS / 1000):
            await parts.server.stop()
        parts.coordination.stop()
        await parts.metadata_log.snapshot_before_stop()
        await parts.store.close(parts.lifecycle.broker_epoch)
        if parts.controller is not None:
            await parts.controller.stop()

    async def _cancel_without_controllers(self, waiting: trio.CancelScope) -> None:
        """Nobody is left to move leaderships away if all controllers are gone: the whole cluster is being stopped."""
        parts = self.parts
        await without_controllers(parts.world, parts.metadata_log.replica)
        if not parts.lifecycle.may_shut_down.is_set():
            log.warning("all controllers are gone: stopping without a controlled shutdown")
            waiting.cancel()

    def _periodic_work(self) -> PeriodicWork:
        parts = self.parts
        cleaner = LogCleaner(parts.world, parts.store, parts.current_settings, parts.cleaner_work)
        ports = PeriodicPorts(
            world=parts.world,
            store=parts.store,
            partitions=parts.partitions,
            metadata=parts.metadata,
            coordinators=parts.coordination.all,
            may_be_fenced=parts.lifecycle.may_be_fenced,
            cleaner=cleaner,
            make_room=parts.make_room,
        )
        return PeriodicWork(parts.settings, ports)

    def _note_start(self) -> None:
        parts = self.parts
        directories = parts.store.directories
        unclean = [it.path for it in directories.with_replicas if it.failure is None and not it.was_clean]
        cause = "it was stopped cleanly"
        if not directories.logs:
            cause = "its log directories are empty"
        elif unclean:
            cause = f"it was not stopped cleanly: logs in {' and '.join(unclean)} were recovered"
        parts.decisions.note(
            DecisionKind.LIFECYCLE,
            f"broker {parts.static.node_id}",
            f"broker {parts.static.node_id} starts with {len(directories.logs)} logs",
            cause=cause,
            broker_epoch=parts.lifecycle.broker_epoch,
            metadata_offset=parts.metadata_log.image.offset,
            logs=len(directories.logs),
        )

    def _timer_failed(self, error: Exception) -> None:
        log.error("a delayed operation failed", exc_info=error)
