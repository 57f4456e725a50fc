"""Runs a development node: makes its directory, starts it, creates its topics."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.cluster.ports import free_base_port, is_free
from barnabas.dev.directory import data_directory
from barnabas.dev.options import EVERYWHERE, LOOPBACK, NODE_ID, DevOptions, DevPorts, NewDevTopic
from barnabas.dev.registry import registry_settings, serve_registry
from barnabas.dev.runner import BrokerRunner
from barnabas.dev.snapshots import copy_state, replace_state
from barnabas.dev.topics import create_topics, delete_all_topics
from barnabas.runtime.error_groups import only_error
from barnabas.settings.errors import SettingsError

if TYPE_CHECKING:
    from barnabas.broker.parts import BrokerParts
    from barnabas.client.admin import Admin
    from barnabas.dev.security import DevSecurity
    from barnabas.protocol.schema import Message
    from barnabas.registry.running import RunningRegistry
    from barnabas.settings.combined import CombinedSettings

DATA = "data"
"""The part of the node's directory that belongs to the broker."""
SECURE_PORTS = 41
"""Ports of a secure node from its first one on."""


@dataclass(frozen=True, slots=True)
class DevNode:
    """A development node that serves clients."""

    runner: BrokerRunner
    bootstrap_servers: str
    directory: Path
    is_secure: bool = False
    registry: RunningRegistry | None = None

    @property
    def broker(self) -> BrokerParts:
        """The broker that runs; another one after a snapshot or a restoration."""
        return self.runner.parts

    @property
    def client_file(self) -> Path | None:
        """The `client.properties` of the administrator; None without security."""
        return self.directory / "security" / "admin" / "client.properties" if self.is_secure else None

    def admin(self) -> Admin:
        """A client for the administrator, to be opened by `async with`."""
        from barnabas.client.admin import Admin

        return Admin(bootstrap_servers=self.bootstrap_servers, **self.client_settings())

    async def create_topics(self, topics: Sequence[NewDevTopic]) -> None:
        """Create topics that do not exist. Raises `WrongArgument` for a refused one."""
        async with self.admin() as admin:
            await create_topics(admin, topics)

    async def reset(self) -> None:
        """Delete all topics, records, groups, offsets and transactions. Raises `ClusterError`."""
        kept: tuple[str, ...] = ()
        if self.registry is not None:
            await self.registry.service.clear()
            kept = (self.registry.topic,)
        async with self.admin() as admin:
            await delete_all_topics(admin, kept)
        self.create_internal_topics()

    async def snapshot(self) -> Path:
        """Keep a copy of all data, and return its directory. The broker is restarted meanwhile."""
        places = (self.directory / "snapshots" / str(number) for number in count(1))
        kept = next(place for place in places if not place.exists())
        await self.runner.while_stopped(partial(copy_state, self.directory / DATA, kept), cleanly=True)
        return kept

    async def restore(self, snapshot: Path) -> None:
        """Let the broker begin again with the data of a snapshot. Raises `ClusterError` if there is no such."""
        if not snapshot.is_dir():
            raise ClusterError(f"there is no snapshot {snapshot}")
        await self.runner.while_stopped(partial(replace_state, self.directory / DATA, snapshot), cleanly=False)
        if self.registry is not None:
            await self.registry.service.begin_again()

    def create_internal_topics(self) -> None:
        """Begin to create the topic of groups, as the first look for a coordinator does. Without it the first consumer
        of librdkafka waits for a second."""
        from barnabas.broker.internal_topics import GROUP_TOPIC

        self.broker.coordination.auto_topics.create_internal(GROUP_TOPIC)

    def client_settings(self) -> dict[str, Any]:
        """Keyword arguments of our clients beside `bootstrap_servers`, for the administrator."""
        if self.client_file is None:
            return {}
        from barnabas.security.client_files import Access, ours
        from barnabas.security.local_security import LocalSecurity
        from barnabas.security.users import ADMIN

        security = LocalSecurity.of(self.directory)
        password = security.users.read()[ADMIN]
        settings = ours(Access(self.bootstrap_servers, ADMIN, password, str(security.authority_file)))
        del settings["bootstrap_servers"]
        return settings

    def registry_settings(self) -> dict[str, str]:
        """Keyword arguments of our producers and consumers for the schema registry. Raises `ClusterError` if there is
        none."""
        if self.registry is None:
            raise ClusterError("there is no registry: use embedded(registry=True)")
        return registry_settings(self.registry.url, self.directory, is_secure=self.is_secure)


@asynccontextmanager
async def dev_node(options: DevOptions) -> AsyncIterator[DevNode]:
    """A node that runs as long as the block. Raises as `run_dev_node`."""
    stop = trio.Event()
    try:
        async with trio.open_nursery() as nursery:
            node: DevNode = await nursery.start(partial(run_dev_node, options, stop))
            try:
                yield node
            finally:
                stop.set()
    except BaseExceptionGroup as group:
        raise only_error(group) from None


async def run_dev_node(
    options: DevOptions, stop: trio.Event, *, task_status: trio.TaskStatus[DevNode] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a node until `stop` is set; started once it serves clients and has its topics.

    Raises `ClusterError`, or `WrongArgument` if the options are the reason.
    """
    with data_directory(options.directory) as directory:
        ports = choose_ports(options)
        security = _security(options, directory, ports)
        settings = _load(options, directory / DATA, ports, security)
        _format(settings, security)
        host = LOOPBACK if options.host in EVERYWHERE else options.host
        servers = f"{host}:{ports.clients}" if security is None else security.bootstrap_servers
        try:
            async with trio.open_nursery() as nursery:
                runner = BrokerRunner(settings, nursery)
                await runner.start()
                node = DevNode(runner, servers, directory, options.is_secure)
                node.create_internal_topics()
                if options.topics:
                    await node.create_topics(options.topics)
                if options.registry_port is not None:
                    node = replace(node, registry=await nursery.start(serve_registry, options, node, stop))
                task_status.started(node)
                await stop.wait()
                # If nothing is kept, nothing has to be left in good order.
                await (runner.abandon() if options.directory is None else runner.stop())
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _in_one_line(only_error(group)) from None


def choose_ports(options: DevOptions) -> DevPorts:
    """The ports of a node. Raises `ClusterError` if the wanted one is taken."""
    needed = range(SECURE_PORTS) if options.is_secure else range(1)
    if options.port == 0:
        first = free_base_port([*needed, SECURE_PORTS])
        return DevPorts(first, first + SECURE_PORTS)
    taken = [port for each in needed if not is_free(port := options.port + each)]
    if taken:
        raise ClusterError(f"port {taken[0]} is taken by another process; --port 0 takes any free one")
    controller = options.port
    while controller - options.port in needed:
        controller = free_base_port([0])
    return DevPorts(options.port, controller)


def _security(options: DevOptions, directory: Path, ports: DevPorts) -> DevSecurity | None:
    if not options.is_secure:
        return None
    from barnabas.dev.security import make_security

    return make_security(directory, ports)


def _load(options: DevOptions, data: Path, ports: DevPorts, security: DevSecurity | None) -> CombinedSettings:
    from barnabas.runtime.process import host_name
    from barnabas.settings.combined import load_combined_settings

    text = options.properties(data, ports, {} if security is None else security.settings)
    try:
        return load_combined_settings(text, "barnabas dev", hostname=host_name())[0]
    except SettingsError as error:
        raise WrongArgument(str(error)) from None


def _format(settings: CombinedSettings, security: DevSecurity | None) -> None:
    """Format the directory if it is new."""
    from barnabas.kraft.format import FormatError, FormatRequest, format_directories
    from barnabas.kraft.metadata.bootstrap import bootstrap_records
    from barnabas.protocol.primitives import uuid_to_string
    from barnabas.runtime.disk import RealDisk
    from barnabas.runtime.uuids import random_uuid
    from barnabas.storage.log_directory import LogDirectoryError, read_meta_properties

    disk, chance = RealDisk(), random.SystemRandom()
    directories = settings.controller.all_log_dirs
    try:
        if read_meta_properties(disk, directories[0]) is not None:
            return
        features = bootstrap_records()
        users = [] if security is None else _first_users(security, features[0].feature_level, chance)
        cluster_id = uuid_to_string(random_uuid(chance))
        format_directories(disk, FormatRequest(cluster_id, NODE_ID, directories, [*features, *users]), chance)
    except (FormatError, LogDirectoryError) as error:
        raise ClusterError(str(error)) from None


def _first_users(security: DevSecurity, metadata_version: int, chance: random.Random) -> Sequence[Message]:
    from barnabas.kraft.first_users import first_users

    return first_users(security.first_users, metadata_version, chance)


def _in_one_line(error: BaseException) -> BaseException:
    """The error as its user is to see it: refusals of the machine and of the node as `ClusterError`."""
    from barnabas.runtime.process import CannotRun

    if isinstance(error, OSError):
        return ClusterError(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return ClusterError(str(error)) if isinstance(error, CannotRun) else error
