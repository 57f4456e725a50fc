"""A controller that is a node of its own: its directory, its replica of the metadata log, its pages."""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.kraft.controller_apis import load_late_parts
from barnabas.kraft.controller_pages import controller_pages
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.node import ControllerNode, run_replica
from barnabas.kraft.replica_config import replica_config
from barnabas.runtime.decision_pages import decision_pages
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.observatory import Observatory, read_token
from barnabas.runtime.world import World
from barnabas.settings.controller import ControllerSettings
from barnabas.settings.errors import SettingsError
from barnabas.storage.log_directory import LogDirectoryError, read_meta_properties


async def run_controller(
    settings: ControllerSettings,
    world: World,
    *,
    stop: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run until `stop` is set or something breaks; started once the listeners are open.

    Raises SettingsError for a directory that is not formatted for this node, OSError for what the machine
    refuses, and whatever breaks the metadata log.
    """
    load_late_parts()
    directory = settings.metadata_directory
    decisions = Decisions(f"controller-{settings.node_id}", world.wall_clock.now_ms)
    cluster_id, directory_id = _identity(settings, world)
    release_lock = _lock(world, directory)
    try:
        async with trio.open_nursery() as nursery:
            node = ControllerNode(settings, world, nursery, decisions, cluster_id)
            config = replica_config(settings, cluster_id, directory_id, directory, node.security.to_controllers)
            replica = MetadataReplica(config, world, node.service, decisions)
            node.attach(replica)
            observatory = Observatory(node.reason_not_ready, read_token(world, settings.http_token_file))
            observatory.pages |= controller_pages(node) | decision_pages(decisions)
            await nursery.start(observatory.serve, world, settings.http_listener)
            await nursery.start(run_replica, replica)
            await node.start()
            task_status.started()
            await stop.wait()
            await node.stop()
            nursery.cancel_scope.cancel()
    finally:
        release_lock()


def _identity(settings: ControllerSettings, world: World) -> tuple[str, bytes]:
    """The ids of the cluster and of the directory."""
    directory = settings.metadata_directory
    try:
        identity = read_meta_properties(world.disk, directory)
    except LogDirectoryError as error:
        raise SettingsError(str(error)) from None
    if identity is None:
        raise SettingsError("not formatted; run `barnabas storage format` first", "metadata.log.dir", directory)
    if identity.node_id != settings.node_id:
        raise SettingsError(f"formatted for node {identity.node_id}", "node.id", str(settings.node_id))
    if identity.directory_id is None:
        raise SettingsError("has no directory.id", "metadata.log.dir", directory)
    return identity.cluster_id, identity.directory_id


def _lock(world: World, directory: str) -> Callable[[], None]:
    try:
        return world.disk.lock(f"{directory}/.lock")
    except BlockingIOError:
        raise SettingsError("another process is using it", "metadata.log.dir", directory) from None
