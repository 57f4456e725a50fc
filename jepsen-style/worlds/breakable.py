"""Real nodes whose clocks, disks and lives can be broken: what `local.py` and `netns.py` have in common besides links.

Nodes run a variant of `barnabas.cluster.breakable_node`. Each has a page with the faults inside of it, and, where this
machine lets us mount, a file system of its own whose power can be cut.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import trio

from barnabas import Admin
from barnabas.cli.local_users import set_passwords
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.fault_points import DISK_POINTS
from barnabas.cluster.guardian import Guardian
from barnabas.cluster.layout import Layout
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.plan import MODULES, Programs
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.power import Volume, cut_power, reason_against
from barnabas.runtime.world import World
from barnabas.security.addresses import port_for_nodes
from barnabas.security.client_files import Access, ours
from barnabas.security.users import ADMIN
from plants.node import broken
from worlds.certificates import HostAddresses, LocalCertificates
from worlds.cluster import AuthorityStep, Damage
from worlds.damaging import damage_files
from worlds.links import LinkFaults, Links
from worlds.living_voters import LivingVoters, format_first_voters, let_voters_change
from worlds.node_views import Onlooker, onlooker
from worlds.processes import ProcessCluster, in_thread
from worlds.world_options import ENCRYPTED, NEVER, NO_CERTIFICATES, WorldOptions

DOWN_SECONDS = 6.0
KEPT_BYTES = 256 << 20
"""Maximum size of the data on volumes that is copied beside them, to look for lost records."""
NEEDS_POWER = ("power", "kill-at")
NOT_ASKED = "the voters of the nodes are fixed: the run does not ask for `voters`"
NO_MOUNT = "not set up: the run does not ask for it"


def asks_for_power(faults: Iterable[str] | None) -> bool:
    """True if nodes need file systems of their own."""
    return faults is None or any(kind in NEEDS_POWER for kind in faults)


def asks_for_voters(faults: Iterable[str] | None) -> bool:
    """True if the voters of the metadata log must be able to change."""
    return faults is None or "voters" in faults


def make_directories(options: WorldOptions) -> Path:
    """The data directory of the nodes; their log files are in `logs` of the run."""
    data = options.directory / "nodes"
    (options.directory / "logs").mkdir(parents=True, exist_ok=True)
    data.mkdir(exist_ok=True)
    if not (data / "logs").exists():
        (data / "logs").symlink_to("../logs")
    return data


def _nothing() -> None:
    """The guardian ends everything else."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """The links of the nodes, and how nodes are reached: the difference between worlds of processes."""

    name: str
    """`local` or `netns`."""
    links: Links
    bootstrap_servers: str
    """For clients."""
    hosts: Mapping[str, str]
    """Where each node listens, for the onlooker."""
    onlooker_world: World
    close: Callable[[], None] = _nothing
    tag: str = ""
    """Part of the names of everything on this machine that the links are made of."""


class Disks:
    """The disks of all nodes."""

    def __init__(self, layout: Layout, guardian: Guardian, *, with_power: bool) -> None:
        self._layout = layout
        self.volumes: dict[str, Volume] = {}
        """By node; none where no power can be cut."""
        self.why_no_power: str | None = NO_MOUNT
        if with_power:
            guardian.at_the_end("umount", "-l", str(layout.data / "try"))
            self.why_no_power = reason_against(layout.data)
        if self.why_no_power is None:
            self._mount(guardian)

    def _mount(self, guardian: Guardian) -> None:
        """Mounts volumes for all nodes or none: loop devices are few, and other programs use them, too."""
        try:
            for node in self._layout.nodes:
                volume = Volume(self._layout.data / "volumes" / f"{node.name}.ext4", self._layout.data / node.name)
                guardian.at_the_end("rm", "-f", str(volume.image))
                guardian.at_the_end("umount", "-l", str(volume.directory))
                volume.make()
                self.volumes[node.name] = volume
        except ClusterError as error:
            for volume in self.volumes.values():
                volume.unmount()
            self.volumes.clear()
            self.why_no_power = f"not every node can have a file system: {error}"

    def directory(self, name: str) -> Path:
        """The log directory of a node that does not run."""
        self.come_back(name)
        return self._layout.log_directory(self._layout.node(name))

    def come_back(self, name: str) -> None:
        """If its power was cut: what was synced is there."""
        volume = self.volumes.get(name)
        if volume is not None and volume.is_off:
            volume.come_back()

    def keep(self) -> None:
        """Copies the data on volumes to `nodes/kept`, if it is not too much."""
        found = {name: volume.directory / "data" for name, volume in self.volumes.items() if not volume.is_off}
        size = sum(path.stat().st_size for each in found.values() for path in each.rglob("*") if path.is_file())
        if size <= KEPT_BYTES:
            for name, directory in found.items():
                if directory.exists():
                    shutil.copytree(directory, self._layout.data / "kept" / name, dirs_exist_ok=True)


class BreakableCluster(ProcessCluster, LinkFaults, LivingVoters):
    """Nodes, their insides and their links."""

    more_points = DISK_POINTS
    """Fault points of the disks, for `kill-at` and `pause-at`; by role."""

    def __init__(
        self,
        cluster: LocalCluster,
        looker: Onlooker,
        disks: Disks,
        wiring: Wiring,
        certificates: LocalCertificates | None,
        seed: int,
    ) -> None:
        """`certificates`: None if the nodes have none."""
        ProcessCluster.__init__(self, cluster, looker)
        self._certificates = certificates
        LinkFaults.__init__(self, wiring.links)
        self.name = wiring.name
        self.bootstrap_servers = wiring.bootstrap_servers
        self.tag = wiring.tag
        LivingVoters.__init__(self, cluster.layout, looker, wiring.hosts)
        self._disks = disks
        self._chance = random.Random(f"world/{seed}")

    @property
    def cannot(self) -> Mapping[str, str]:
        no_power = {} if self._disks.why_no_power is None else {"power": self._disks.why_no_power}
        by_security = {"rotate": NO_CERTIFICATES} if self._certificates is None else {"message": ENCRYPTED}
        living = self._cluster.layout.has_living_voters
        return {**NEVER[self.name], **no_power, **by_security, **({} if living else {"voters": NOT_ASKED})}

    @property
    def client_security(self) -> Mapping[str, str]:
        """Keyword arguments of our client as a super user of a secure cluster."""
        security = self._cluster.security
        if security is None:
            return {}
        access = Access(self.bootstrap_servers, ADMIN, security.users.read()[ADMIN], str(security.authority_file))
        return {name: value for name, value in ours(access).items() if name != "bootstrap_servers"}

    async def publish_users(self) -> None:
        """Makes the password of the super user known for SCRAM; PLAIN knows it from the files of the brokers."""
        settings: dict[str, Any] = {**self.client_security, "sasl_mechanism": "PLAIN"}
        async with Admin(bootstrap_servers=self.bootstrap_servers, **settings) as admin:
            await set_passwords(admin, {ADMIN: settings["sasl_plain_password"]})

    async def start(self, *names: str) -> None:
        def begin() -> None:
            for name in names:
                self._disks.come_back(name)
            self._cluster.start(*names)

        await in_thread(begin)

    async def set_clock(self, name: str, offset_ms: int) -> None:
        self._cluster.faults.set_clock(name, offset_ms)

    async def power_cut(self, name: str) -> None:
        volume = self._disks.volumes.get(name)
        if volume is None:
            raise ClusterError(f"the power of {name} cannot be cut: {self._disks.why_no_power}")
        node = self._cluster.layout.node(name)

        def cut() -> None:
            cut_power(str(self._cluster.layout.log_directory(node).parent))
            self._cluster.faults.power_is_cut(name)
            self._cluster.kill(name)

        try:
            await in_thread(cut)
        except OSError as error:
            raise ClusterError(f"the power of {name} cannot be cut: {error.strerror}") from error

    async def fill_disk(self, name: str, *, full: bool) -> None:
        self._cluster.faults.fill_disk(name, full=full)

    async def damage(self, name: str, damage: Damage) -> Sequence[str]:
        self._require_dead(name)
        return await in_thread(lambda: damage_files(self._disks.directory(name), damage, self._chance))

    async def wipe(self, name: str) -> None:
        self._require_dead(name)

        def empty() -> None:
            directory = self._disks.directory(name)
            self.disk_goes(name)
            shutil.rmtree(directory, ignore_errors=True)

        await in_thread(empty)

    async def kill_at(self, name: str, point: str, *, power_cut: bool = False) -> None:
        if power_cut and name not in self._disks.volumes:
            raise ClusterError(f"the power of {name} cannot be cut: {self._disks.why_no_power}")
        self._cluster.faults.kill_at(name, point, power_cut=power_cut)

    async def pause_at(self, name: str, point: str) -> None:
        self._cluster.faults.pause_at(name, point)

    async def disarm(self, name: str) -> bool:
        return self._cluster.faults.disarm(name)

    async def heal(self) -> None:
        await super().heal()
        if self._certificates is not None:
            await self._certify(self._certificates.heal)

    async def renew_certificate(self, name: str) -> None:
        certificates = self._known_certificates()
        await self._certify(lambda: certificates.renew(name))

    async def spoil_certificate(self, name: str) -> None:
        certificates = self._known_certificates()
        if not await self._looker.reaches(name):
            raise ClusterError(f"{name} is not up: it could not start with a broken certificate")
        await self._certify(lambda: certificates.spoil(name))

    async def change_authority(self, step: AuthorityStep) -> None:
        certificates = self._known_certificates()
        await self._certify(lambda: certificates.change_authority(step))

    def _known_certificates(self) -> LocalCertificates:
        if self._certificates is None:
            raise ClusterError(NO_CERTIFICATES)
        return self._certificates

    async def _certify(self, work: Callable[[], None]) -> None:
        def alone() -> None:
            with self._known_certificates().lock:
                work()

        await in_thread(alone)


W = TypeVar("W", bound=BreakableCluster)


@asynccontextmanager
async def opened(
    options: WorldOptions, module: str, connect: Callable[[Layout, Guardian], Wiring], make: type[W]
) -> AsyncIterator[W]:
    """A world that is ready, of nodes that run `module`; with the block nothing of it is left. `connect` makes the
    links before the nodes are started."""
    data = make_directories(options)
    has_living_voters = asks_for_voters(options.faults)
    if has_living_voters:
        let_voters_change(data)
    programs = broken(Programs(dict.fromkeys(MODULES, module)), options.plant)
    cluster = LocalCluster(data, free_base_port(), options.settings, programs=programs)
    if options.secure:
        cluster.make_secure()
    layout = cluster.layout
    guardian = await in_thread(Guardian)
    wiring: Wiring | None = None
    disks: Disks | None = None
    try:
        cluster.faults.repair()
        wiring = await in_thread(lambda: connect(layout, guardian))
        disks = await in_thread(lambda: Disks(layout, guardian, with_power=asks_for_power(options.faults)))
        guardian.end_nodes_of(layout.data / "run")
        hosts = wiring.hosts
        certificates = await in_thread(lambda: _certificates(cluster, hosts))
        if has_living_voters:
            await in_thread(lambda: format_first_voters(layout, hosts))
        await in_thread(cluster.up)
        brokers, controllers = (
            {node.name: (node.id, (hosts[node.name], port_for_nodes(layout, node))) for node in nodes}
            for nodes in (layout.brokers, layout.controllers)
        )
        holder = None if certificates is None else certificates.holder(wiring.onlooker_world)
        async with onlooker(wiring.onlooker_world, brokers, controllers, holder) as looker:
            world = make(cluster, looker, disks, wiring, certificates, options.seed)
            await world.wait_ready()
            if certificates is not None:
                await world.publish_users()
            yield world
    finally:
        with trio.CancelScope(shield=True):
            await in_thread(lambda: _end(cluster, wiring, disks, guardian))


def _certificates(cluster: LocalCluster, hosts: Mapping[str, str]) -> LocalCertificates | None:
    """The certificates of a secure cluster, before it is started: for the hosts on which nodes listen."""
    if cluster.security is None:
        return None
    replace(cluster.security, addresses=HostAddresses(hosts)).ensure(cluster.layout)
    return LocalCertificates(cluster.security, cluster.layout)


def _end(cluster: LocalCluster, wiring: Wiring | None, disks: Disks | None, guardian: Guardian) -> None:
    """Everything goes, also if part of it has gone already."""
    try:
        if wiring is not None:
            # Nodes speak to each other to leave in good order.
            wiring.links.heal()
        cluster.down(DOWN_SECONDS)
        if disks is not None:
            disks.keep()
    finally:
        if wiring is not None:
            wiring.close()
        guardian.close()
    volumes = cluster.layout.data / "volumes"
    if volumes.exists() and not any(volumes.iterdir()):
        volumes.rmdir()
