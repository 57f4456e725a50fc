"""From the name of a world to a cluster in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from nemeses.kinds import KINDS, Capability
from simulation.conditions import USUAL, Conditions
from worlds.cluster import ClusterUnderTest

T = TypeVar("T")

WORLDS = ("sim", "local", "netns", "compose", "bootstrap")
"""Each is a module beside this one that has `run_in(options, main)`."""

NO_DELAY = "packets are delayed by netem only, which is not used here: --cluster local has slow links"
NO_MESSAGES = "packets are not messages: --cluster local has a proxy that knows them"
NO_CERTIFICATES = "nodes have certificates only with --secure"
ENCRYPTED = "nobody on the way can read messages with --secure"
NO_INSIDE = "the inside of a container is nobody's but the image's: --cluster local can do it"
FIXED_VOTERS = "the voters of the nodes are fixed: local, netns, and sim with --condition voters=3, have others"
NO_SHARED_HOSTS = "each broker has a host of its own: --cluster sim --condition size=6/3 --condition cells=2 has others"
ONE_LOG_DIR = "nodes have one log directory: --cluster sim --condition log-dirs=2 has two"
SIMULATED_ONLY = "only a simulation can do it: --cluster sim"
_LACKS: Mapping[str, Mapping[Capability, str]] = {
    "local": {"simulation": SIMULATED_ONLY, "log dirs": ONE_LOG_DIR},
    "netns": {
        "simulation": SIMULATED_ONLY,
        "log dirs": ONE_LOG_DIR,
        "delays": NO_DELAY,
        "messages": NO_MESSAGES,
    },
    "compose": {
        "simulation": SIMULATED_ONLY,
        "voters": FIXED_VOTERS,
        "log dirs": ONE_LOG_DIR,
        "delays": NO_DELAY,
        "messages": NO_MESSAGES,
        "clocks": NO_INSIDE,
        "disks": NO_INSIDE,
        "power": NO_INSIDE,
        "fault points": NO_INSIDE,
        "certificates": NO_INSIDE,
    },
}
NEVER: Mapping[str, Mapping[str, str]] = {
    world: {kind.name: lacks[kind.needs] for kind in KINDS.values() if kind.needs in lacks}
    for world, lacks in _LACKS.items()
}
"""By world: kinds of faults that it cannot do on any machine, and why. If only this machine lacks something (root, for
example), the cluster reports it."""


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """Options of the world of one run."""

    world: str
    seed: int
    directory: Path
    """Directory of the run, for data and logs of the nodes."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of all nodes, by Kafka's names."""
    plant: str | None = None
    """A mistake that is planted into every node; see `plants`."""
    bootstrap: str | None = None
    """The world `bootstrap`: somebody else's cluster, which is not broken."""
    faults: Sequence[str] | None = None
    """The kinds that the run may use: what others need is not set up. None: all."""
    without_nodes: Sequence[str] = ()
    """The cluster does not have these; in the world `sim` only."""
    conditions: Conditions = USUAL
    """Conditions of the world `sim`."""
    secure: bool = False
    """Nodes are those of `cluster up --secure`, in the worlds `local` and `netns`."""


def run_in(options: WorldOptions, main: Callable[[ClusterUnderTest], Awaitable[T]]) -> T:
    """Runs `main` with a cluster that is ready, to its end; whatever happens, nothing of the cluster is left behind.

    In the world `sim` this is one simulation, and time is virtual; elsewhere it is one trio run. Raises ClusterError
    when there is no cluster to be had, in one line.
    """
    result: T = import_module(f"worlds.{options.world}").run_in(options, main)
    return result
