"""The world `bootstrap`: somebody else's cluster, of whatever kind, that is worked with and never broken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import trio

from barnabas import Admin
from barnabas.client.admin.config_values import ConfigResource, ResourceType
from barnabas.client.settings import parse_address
from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.rules import MessageRule, Way
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.schema import Message
from barnabas.runtime.real import real_world
from barnabas.runtime.world import World
from loss_budget import NodeState
from nemeses.kinds import FAULTS
from operations import Place
from worlds.cluster import AuthorityStep, Damage, LinkFault, ReplicaView
from worlds.world_options import WorldOptions

T = TypeVar("T")

_NOT_OURS = "the cluster of --bootstrap is not ours to break"
_ANSWER_MS = 10_000


class BootstrapCluster:
    """`ClusterUnderTest`, of which nothing is known but how clients reach it."""

    name = "bootstrap"
    brokers: Sequence[str] = ()
    controllers: Sequence[str] = ()
    cannot: Mapping[str, str] = dict.fromkeys(FAULTS, _NOT_OURS)

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.settings: Mapping[str, str] = {}
        """Settings of its first broker, as far as they were asked for and it answers."""
        self._world = real_world()
        self._began = trio.current_time()

    def world(self, host: str) -> World:
        return self._world

    def now_ns(self) -> int:
        return round((trio.current_time() - self._began) * 1e9)

    def wall_ms(self) -> int:
        return self._world.wall_clock.now_ms()

    async def kill(self, *names: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def start(self, *names: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def stop(self, name: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def pause(self, name: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def resume(self, name: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def states(self) -> Mapping[str, NodeState]:
        await trio.lowlevel.checkpoint()
        return {}

    async def cut(self, source: str, target: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        raise ClusterError(_NOT_OURS)

    async def add_rule(self, rule: MessageRule) -> int:
        raise ClusterError(_NOT_OURS)

    async def clear_rule(self, number: int) -> int | None:
        raise ClusterError(_NOT_OURS)

    async def asked(self) -> Mapping[Way, int]:
        raise ClusterError(_NOT_OURS)

    async def heal(self) -> None:
        await trio.lowlevel.checkpoint()

    async def renew_certificate(self, name: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def spoil_certificate(self, name: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def change_authority(self, step: AuthorityStep) -> None:
        raise ClusterError(_NOT_OURS)

    async def set_clock(self, name: str, offset_ms: int) -> None:
        raise ClusterError(_NOT_OURS)

    async def power_cut(self, name: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def fill_disk(self, name: str, *, full: bool) -> None:
        raise ClusterError(_NOT_OURS)

    async def damage(self, name: str, damage: Damage) -> Sequence[str]:
        raise ClusterError(_NOT_OURS)

    async def wipe(self, name: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def kill_at(self, name: str, point: str, *, power_cut: bool = False) -> None:
        raise ClusterError(_NOT_OURS)

    async def pause_at(self, name: str, point: str) -> None:
        raise ClusterError(_NOT_OURS)

    async def disarm(self, name: str) -> bool:
        raise ClusterError(_NOT_OURS)

    async def leader_of(self, place: Place) -> str | None:
        raise ClusterError(_NOT_OURS)

    async def ask(self, name: str, request: Message) -> Any:
        raise ClusterError(_NOT_OURS)

    async def active_controller(self) -> str | None:
        await trio.lowlevel.checkpoint()
        return None

    async def coordinator_of(self, kind: Literal["group", "transaction", "share"], id_: str) -> str | None:
        raise ClusterError(_NOT_OURS)

    async def views(self) -> Sequence[ReplicaView]:
        await trio.lowlevel.checkpoint()
        return []

    async def wait_ready(self, timeout_seconds: float = 60.0) -> None:
        """Until somebody answers."""
        timeout_ms = round(timeout_seconds * 1000)
        try:
            async with Admin(
                bootstrap_servers=self.bootstrap_servers,
                default_api_timeout_ms=timeout_ms,
                request_timeout_ms=min(timeout_ms, _ANSWER_MS),
            ) as admin:
                await admin.list_topics()
        except KafkaError as error:
            raise ClusterError(f"--bootstrap {self.bootstrap_servers}: {error.message or error}") from error

    async def ask_settings(self, keys: Sequence[str]) -> None:
        """Reads the settings that a run has to know into `settings`. They stay empty without authorization."""
        with suppress(KafkaError):
            async with Admin(bootstrap_servers=self.bootstrap_servers, default_api_timeout_ms=_ANSWER_MS) as admin:
                first = (await admin.describe_cluster()).nodes[0]
                broker = ConfigResource(ResourceType.BROKER, str(first.node_id))
                found = (await admin.describe_configs(broker))[broker]
                values = {key: found[key].value for key in keys if key in found}
                self.settings = {key: value for key, value in values.items() if value is not None}

    def log_files(self) -> Mapping[str, Path]:
        return {}


@asynccontextmanager
async def open_bootstrap(address: str) -> AsyncIterator[BootstrapCluster]:
    """ClusterError where nobody answers."""
    try:
        for each in address.split(","):
            parse_address(each.strip())
    except ValueError as error:
        raise ClusterError(f"--bootstrap: {error}") from error
    cluster = BootstrapCluster(address)
    await cluster.wait_ready(10.0)
    yield cluster


def run_in(options: WorldOptions, main: Callable[[BootstrapCluster], Awaitable[T]]) -> T:
    """See `worlds.world_options.run_in`."""
    if options.bootstrap is None:
        raise ClusterError("the world bootstrap needs --bootstrap HOST:PORT")
    address = options.bootstrap

    async def run() -> T:
        async with open_bootstrap(address) as cluster:
            return await main(cluster)

    return trio.run(run)
