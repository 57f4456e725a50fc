"""From the name of a world to a cluster in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from worlds.cluster import ClusterUnderTest

T = TypeVar("T")

WORLDS = ("sim", "local", "netns", "compose", "bootstrap")
"""Each is a module beside this one that has `run_in(options, main)`."""

NO_DELAY = "packets are delayed by netem only, which is not used here: --cluster local has slow links"
NO_MESSAGES = "packets are not messages: --cluster local has a proxy that knows them"
NO_INSIDE = "the inside of a container is nobody's but the image's: --cluster local can do it"
NEVER: Mapping[str, Mapping[str, str]] = {
    "netns": {"slow": NO_DELAY, "message": NO_MESSAGES},
    "compose": {
        "slow": NO_DELAY,
        "message": NO_MESSAGES,
        **dict.fromkeys(("clock", "power", "disk-full", "flip", "truncate", "wipe", "kill-at", "pause-at"), NO_INSIDE),
    },
}
"""By world: kinds of faults that it has on no machine, and why. What only this machine lacks, root say, the cluster
tells itself."""


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """Of one run."""

    world: str
    seed: int
    directory: Path
    """Of the run; the nodes' data and logs go below it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of all nodes, by Kafka's names."""
    plant: str | None = None
    """A mistake that is planted into every node; see `plants`."""
    bootstrap: str | None = None
    """The world `bootstrap`: somebody else's cluster, which is not broken."""
    faults: Sequence[str] | None = None
    """The kinds that the run may use: what others need is not set up. None: all."""
    without_nodes: Sequence[str] = ()
    """The cluster does not have these; in the world `sim` only."""


def run_in(options: WorldOptions, main: Callable[[ClusterUnderTest], Awaitable[T]]) -> T:
    """Runs `main` with a cluster that is ready, to its end; whatever happens, nothing of the cluster is left behind.

    In the world `sim` this is one simulation, and time is virtual; elsewhere it is one trio run. Raises ClusterError
    when there is no cluster to be had, in one line.
    """
    result: T = import_module(f"worlds.{options.world}").run_in(options, main)
    return result
