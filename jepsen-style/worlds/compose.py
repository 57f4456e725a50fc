"""The world `compose`: the six containers of this repository's docker-compose.yml, as users run them.

A project of its own on free ports, gone at the end with its volumes. Links are broken by root only (`packets.py`, in
the containers' namespaces): a cut between clients and a node also keeps out the views from this machine, so there are
no views of it meanwhile. What needs the inside of a node is off: the image has nothing but the product.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.guardian import Guardian
from barnabas.protocol.schema import Message
from barnabas.runtime.real import real_world
from barnabas.runtime.world import World
from loss_budget import Membership, NodeState
from operations import Place
from worlds.cluster import AuthorityStep, Damage, ReplicaView
from worlds.links import LinkFaults, PacketLinks
from worlds.node_views import Onlooker, onlooker
from worlds.packets import CLIENT, Packets, run
from worlds.processes import RunClocks, in_thread, run_alone, unregister
from worlds.world_options import NEVER, NO_INSIDE, WorldOptions

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
BROKERS = ("broker-1", "broker-2", "broker-3")
CONTROLLERS = ("controller-101", "controller-102", "controller-103")
BROKER_PORT, CONTROLLER_PORT = 9092, 9093
"""Ports in cluster-configs/compose."""
BUILD_SECONDS = 900.0
COMPOSE_SECONDS = 120.0
STOP_SECONDS = 40
KILLED = "137"
"""Exit code in docker of a process that was ended by SIGKILL."""
_NO_ROOT = "packets of containers are dropped by root only"


def reason_against() -> str | None:
    """Reason why containers cannot run here, in one line; None if they can."""
    if shutil.which("docker") is None:
        return "--cluster compose needs docker, which is not here: use --cluster local"
    if compose_command() is None:
        return "--cluster compose needs `docker compose` or docker-compose: use --cluster local"
    answer = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=30, check=False)
    if answer.returncode != 0:
        reply = (answer.stderr.strip() or answer.stdout.strip()).splitlines()[-1]
        return f"--cluster compose: no docker daemon answers ({reply}): start it, or use --cluster local"
    return None


def compose_command() -> list[str] | None:
    plugin = ["docker", "compose"]
    with suppress(OSError, subprocess.TimeoutExpired):
        if subprocess.run([*plugin, "version"], capture_output=True, timeout=30, check=False).returncode == 0:
            return plugin
    return ["docker-compose"] if shutil.which("docker-compose") else None


class Project:
    """Six containers, by docker's own commands: docker-compose 1 takes seconds to start."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        command = compose_command()
        assert command is not None
        self.name = f"jepsen-{os.getpid()}-{random.SystemRandom().randrange(1 << 20):x}"
        self.ports = free_ports(len(BROKERS))
        changes = directory / "compose.json"
        changes.write_text(json.dumps({"services": self._services(settings)}, indent=1))
        files = ["--file", str(ROOT / "docker-compose.yml"), "--file", str(changes)]
        self.command = [*command, *files, "--project-directory", str(ROOT), "--project-name", self.name]
        self.containers: dict[str, str] = {}
        """Ids, by node."""

    def _services(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """The services with the changes of the run: settings of the nodes, ports of this machine, and no restarts, so
        that the end of a node is noticed.
        """
        more = [f"--set={key}={value}" for key, value in settings.items()]
        services: dict[str, Any] = {name: {"command": [name, *more], "restart": "no"} for name in CONTROLLERS}
        for name, port in zip(BROKERS, self.ports, strict=True):
            advertised = f"--set=advertised.listeners=INTERNAL://{name}:{BROKER_PORT},HOST://127.0.0.1:{port}"
            services[name] = {"command": [name, advertised, *more], "restart": "no"}
        return services

    def up(self) -> None:
        environment = dict(os.environ)
        base_image = run(str(ROOT / "docker" / "base-image"), timeout_seconds=BUILD_SECONDS)
        environment["BARNABAS_BASE_IMAGE"] = base_image.strip()
        environment |= {f"KAFKA_PORT_{number}": str(port) for number, port in enumerate(self.ports, 1)}
        http_ports = zip((1, 2, 3, 101, 102, 103), free_ports(6), strict=True)
        environment |= {f"HTTP_PORT_{number}": str(port) for number, port in http_ports}
        for words in (["build"], ["up", "--detach"]):
            done = subprocess.run(
                [*self.command, *words],
                env=environment,
                capture_output=True,
                text=True,
                timeout=BUILD_SECONDS,
                check=False,
            )
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines()
                raise ClusterError(f"docker-compose {words[0]}: {lines[-1] if lines else done.returncode}")
        form = '{{.Label "com.docker.compose.service"}} {{.ID}}'
        mine = f"label=com.docker.compose.project={self.name}"
        lines = run("docker", "ps", "--all", "--filter", mine, "--format", form).splitlines()
        self.containers = dict(sorted(line.split(" ", 1) for line in lines))

    def docker(self, *words: str, of: Sequence[str], timeout_seconds: float = COMPOSE_SECONDS) -> str:
        for name in of:
            if name not in self.containers:
                raise ClusterError(f"there is no node {name}; there are {', '.join(self.containers)}")
        return run("docker", *words, *(self.containers[name] for name in of), timeout_seconds=timeout_seconds)

    def stop(self, name: str) -> None:
        self.docker("stop", "--time", str(STOP_SECONDS), of=[name])
        if self.inspect("{{.State.ExitCode}}", [name])[name] == KILLED:
            raise ClusterError(f"{name} did not stop within {STOP_SECONDS} s and was killed")

    def inspect(self, form: str, of: Sequence[str]) -> dict[str, str]:
        return dict(zip(of, self.docker("inspect", "--format", form, of=of).splitlines(), strict=True))

    def states(self) -> dict[str, NodeState]:
        found = self.inspect("{{.State.Status}}", list(self.containers))
        return {name: _STATES.get(state, "dead") for name, state in found.items()}

    def addresses(self) -> dict[str, str]:
        return self.inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", list(self.containers))

    def gateway(self) -> str:
        """The address of this machine for containers."""
        [found] = self.inspect("{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}", [BROKERS[0]]).values()
        return found

    def enter(self, name: str) -> list[str] | None:
        """None: it does not run, and its namespace went with it."""
        [pid] = self.inspect("{{.State.Pid}}", [name]).values()
        return None if pid == NO_PROCESS else ["nsenter", "--target", pid, "--net"]

    def last_words(self, name: str) -> str:
        done = subprocess.run(
            ["docker", "logs", "--tail", "3", self.containers[name]],
            capture_output=True,
            text=True,
            timeout=COMPOSE_SECONDS,
            check=False,
        )
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[-1] if lines else "it logged nothing"

    def write_logs(self, directory: Path) -> None:
        for name in self.containers:
            with (directory / f"{name}.log").open("wb") as file:
                subprocess.run(
                    ["docker", "logs", self.containers[name]],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=COMPOSE_SECONDS,
                    check=False,
                )


NO_PROCESS = "0"
"""The pid in docker of a container that does not run."""
_STATES: dict[str, NodeState] = {"running": "running", "paused": "paused"}


class ComposeWorld(LinkFaults):
    """Containers."""

    name = "compose"

    def __init__(self, project: Project, looker: Onlooker, logs: Path) -> None:
        self._project = project
        self._looker = looker
        self._logs = logs
        self._clocks = RunClocks()
        self._addresses = project.addresses() | {CLIENT: project.gateway()}
        self._packets = Packets(project.enter, self._addresses.__getitem__)
        super().__init__(PacketLinks(self._packets, project.addresses()))

    @property
    def cannot(self) -> Mapping[str, str]:
        off = dict(NEVER["compose"])
        if os.geteuid() != 0 or shutil.which("nsenter") is None:
            off |= dict.fromkeys(("partition", "cut-off", "lossy", "half-open"), _NO_ROOT)
        return off

    @property
    def brokers(self) -> Sequence[str]:
        return BROKERS

    @property
    def controllers(self) -> Sequence[str]:
        return CONTROLLERS

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._project.ports)

    def world(self, host: str) -> World:
        return real_world()

    def now_ns(self) -> int:
        return self._clocks.now_ns()

    def wall_ms(self) -> int:
        return self._clocks.wall_ms()

    # ---- nodes

    async def kill(self, *names: str) -> None:
        await in_thread(lambda: self._project.docker("kill", of=names))

    async def start(self, *names: str) -> None:
        def begin() -> None:
            self._project.docker("start", of=names)
            # Docker promises nobody the address that he had.
            self._addresses.update((name, at) for name, at in self._project.addresses().items() if at)
            for name in names:
                self._packets.renew(name)

        await in_thread(begin)

    async def stop(self, name: str) -> None:
        """In good order; a node that does not leave in time is killed, and that is an error."""
        await in_thread(lambda: self._project.stop(name))

    async def pause(self, name: str) -> None:
        await in_thread(lambda: self._project.docker("pause", of=[name]))

    async def resume(self, name: str) -> None:
        await in_thread(lambda: self._project.docker("unpause", of=[name]))

    async def unregister(self, name: str) -> None:
        await unregister(self._looker, name, int(name.rpartition("-")[2]))

    async def states(self) -> Mapping[str, NodeState]:
        return await in_thread(self._project.states)

    # ---- what is not to be had

    async def renew_certificate(self, name: str) -> None:
        raise ClusterError(NO_INSIDE)

    async def spoil_certificate(self, name: str) -> None:
        raise ClusterError(NO_INSIDE)

    async def change_authority(self, step: AuthorityStep) -> None:
        raise ClusterError(NO_INSIDE)

    async def set_clock(self, name: str, offset_ms: int) -> None:
        raise ClusterError(NO_INSIDE)

    async def power_cut(self, name: str) -> None:
        raise ClusterError(NO_INSIDE)

    async def fill_disk(self, name: str, *, full: bool) -> None:
        raise ClusterError(NO_INSIDE)

    async def damage(self, name: str, damage: Damage) -> Sequence[str]:
        raise ClusterError(NO_INSIDE)

    async def wipe(self, name: str) -> None:
        raise ClusterError(NO_INSIDE)

    async def kill_at(self, name: str, point: str, *, power_cut: bool = False) -> None:
        raise ClusterError(NO_INSIDE)

    async def pause_at(self, name: str, point: str) -> None:
        raise ClusterError(NO_INSIDE)

    async def disarm(self, name: str) -> bool:
        raise ClusterError(NO_INSIDE)

    # ---- looking

    async def leader_of(self, place: Place) -> str | None:
        return await self._looker.leader_of(place)

    async def ask(self, name: str, request: Message) -> Any:
        answer = await self._looker.ask(name, request)
        if answer is None:
            raise ClusterError(f"{name} does not answer")
        return answer

    async def active_controller(self) -> str | None:
        return await self._looker.active_controller()

    async def coordinator_of(self, kind: Literal["group", "transaction", "share"], id_: str) -> str | None:
        return await self._looker.coordinator_of(kind, id_)

    async def views(self) -> Sequence[ReplicaView]:
        return await self._looker.views()

    async def memberships(self) -> Sequence[Membership]:
        return await self._looker.memberships(BROKERS)

    async def wait_ready(self, timeout_seconds: float = 60.0) -> None:
        try:
            await self._looker.wait_ready(timeout_seconds)
        except ClusterError as error:
            dead = [name for name, state in (await self.states()).items() if state == "dead"]
            if not dead:
                raise
            last_line = await in_thread(lambda: self._project.last_words(dead[0]))
            raise ClusterError(f"{dead[0]} has ended: {last_line}") from error

    def log_files(self) -> Mapping[str, Path]:
        """Written when the run is over."""
        return {name: self._logs / f"{name}.log" for name in (*BROKERS, *CONTROLLERS)}


def run_in(options: WorldOptions, main: Callable[[ComposeWorld], Awaitable[T]]) -> T:
    """See `worlds.world_options.run_in`."""
    reason = reason_against()
    if reason is not None:
        raise ClusterError(reason)
    if options.plant is not None:
        raise ClusterError("--plant: containers run what the image has; use --cluster local")

    async def alone() -> T:
        async with compose_world(options) as cluster:
            return await main(cluster)

    return run_alone(alone)


@asynccontextmanager
async def compose_world(options: WorldOptions) -> AsyncIterator[ComposeWorld]:
    """One that is ready; with the block its containers, network and volumes are gone."""
    logs = options.directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    project = Project(options.directory, options.settings)
    guardian = await in_thread(Guardian)
    try:
        guardian.at_the_end(*project.command, "down", "--volumes", "--remove-orphans", "--timeout", "1")
        await in_thread(project.up)
        addresses = await in_thread(project.addresses)
        async with onlooker(
            real_world(),
            {name: (int(name[7:]), (addresses[name], BROKER_PORT)) for name in BROKERS},
            {name: (int(name[11:]), (addresses[name], CONTROLLER_PORT)) for name in CONTROLLERS},
        ) as looker:
            world = ComposeWorld(project, looker, logs)
            await world.wait_ready()
            yield world
    finally:
        with trio.CancelScope(shield=True):
            await in_thread(lambda: project.write_logs(logs))
            await in_thread(guardian.close)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that are free now."""
    with ExitStack() as probes:
        taken = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in taken:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in taken]
