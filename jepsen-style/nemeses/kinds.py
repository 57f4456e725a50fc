"""Core: every kind of fault, what a world must be able to do for it, and what it may do to records.

`nemeses.faults` and `nemeses.simulated_faults` carry them out: a new kind needs an entry here and a function there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Capability = Literal[
    "processes",
    "links",
    "delays",
    "messages",
    "clocks",
    "disks",
    "power",
    "fault points",
    "certificates",
    "changes",
    "voters",
    "log dirs",
    "simulation",
]
"""Things that a world can break or change. `simulation` stands for faults that exist in simulated worlds only."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault."""

    name: str
    """The word that `--nemesis` takes."""
    effect: str
    needs: Capability
    variants: tuple[str, ...] = ("",)
    """Forms that the coverage table counts apart; empty: the kind itself."""
    loses: bool = False
    """Takes records from a disk each time. `kill-at` and `kill-at-write` do so only if their value has `power_cut`."""
    ends_nodes: bool = False
    cuts: bool = False
    """Nothing passes some links."""
    disturbs: bool = False
    """Delays, drops or reorders what nodes or clients send, so that they may not learn something in time."""

    @property
    def covered_as(self) -> tuple[str, ...]:
        """The names of its variants in the coverage table."""
        return tuple(f"{self.name}: {variant}" if variant else self.name for variant in self.variants)


PARTITION_SHAPES = ("one", "halves", "one-way", "bridge", "ring")
"""The shapes that `nemeses.shapes` draws."""
ROTATIONS = ("certificate", "broken file", "authority")
"""The forms of `rotate`."""
VOTER_CHANGES = ("one", "at once", "at an election", "lost disk")
"""The forms of `voters`."""

HOST_FORMS = ("kill", "pause", "power")
"""The forms of `host`."""

_ALL = (
    FaultKind("kill", "SIGKILL", "processes", ends_nodes=True),
    FaultKind("stop", "SIGTERM: a clean shutdown", "processes", ends_nodes=True),
    FaultKind("pause", "SIGSTOP, later SIGCONT", "processes", disturbs=True),
    FaultKind("partition", "groups of nodes without links", "links", PARTITION_SHAPES, cuts=True, disturbs=True),
    FaultKind("slow", "latency, jitter and little bandwidth on links", "delays", disturbs=True),
    FaultKind("lossy", "lost and resent bursts, and connections that are reset", "links", disturbs=True),
    FaultKind("half-open", "connections that look alive and carry nothing", "links", disturbs=True),
    FaultKind("message", "requests or responses of one API held, dropped, delayed or reset", "messages", disturbs=True),
    FaultKind("clock", "a wall clock that jumps", "clocks", disturbs=True),
    FaultKind("power", "a power cut: what was not synced is lost", "power", loses=True, ends_nodes=True),
    FaultKind("disk-full", "a disk without free space", "disks", ends_nodes=True),
    FaultKind("flip", "flipped bits in the logs of a broker that is down", "disks", loses=True, ends_nodes=True),
    FaultKind("truncate", "truncated logs of a broker that is down", "disks", loses=True, ends_nodes=True),
    FaultKind("wipe", "an empty disk for a broker that is down", "disks", loses=True, ends_nodes=True),
    FaultKind("membership", "a broker that is unregistered and registers again", "processes", ends_nodes=True),
    FaultKind("kill-at", "a kill, or a power cut, at a fault point", "fault points", ("", "power"), ends_nodes=True),
    FaultKind("pause-at", "a pause at a fault point", "fault points", disturbs=True),
    FaultKind("cut-off", "a broker that reaches clients but no node, for some sessions", "links", cuts=True),
    FaultKind("hostile", "a client that sends whatever it can", "processes"),
    FaultKind("restart-all", "SIGKILL for every node at once", "processes", ends_nodes=True),
    FaultKind("rotate", "certificates that are replaced while nodes run", "certificates", ROTATIONS, disturbs=True),
    FaultKind("reassign", "replicas that move to other brokers, and moves that are cancelled", "changes"),
    FaultKind("feature", "a feature that goes to another level and back", "changes"),
    FaultKind(
        "voters",
        "voters of the metadata log that come, go, and lose their disks",
        "voters",
        VOTER_CHANGES,
        ends_nodes=True,
    ),
    FaultKind("move-log", "replicas that move to another log directory of their broker", "log dirs"),
    FaultKind(
        "host",
        "all brokers of a host are killed, paused, or without power",
        "simulation",
        HOST_FORMS,
        ends_nodes=True,
        disturbs=True,
    ),
    FaultKind(
        "torn-power", "a power cut that damages what was being written", "simulation", loses=True, ends_nodes=True
    ),
    FaultKind(
        "kill-at-write", "a kill, or a power cut, at a write to the disk", "simulation", ("", "power"), ends_nodes=True
    ),
    FaultKind("disk-error", "EIO from reads, writes or syncs", "simulation", ends_nodes=True),
    FaultKind("store", "an object store that fails, is slow, or lists what was", "simulation", disturbs=True),
    FaultKind("slow-disk", "reads, writes and syncs that take long", "simulation", disturbs=True),
    FaultKind("stall", "a few links that stand still in one direction", "simulation", disturbs=True),
    FaultKind("cut-client", "one client that reaches no node", "simulation", cuts=True, disturbs=True),
    FaultKind("reconnect-storm", "connections that all are reset, some times in a row", "simulation", disturbs=True),
    FaultKind("dribble", "a host that receives one byte at a time", "simulation", disturbs=True),
    FaultKind("names-gone", "host names that cannot be resolved", "simulation", disturbs=True),
)

KINDS = {kind.name: kind for kind in _ALL}
OFF = " is off: "
"""Between a kind and the reason why a run has to do without it."""
FAULTS = tuple(KINDS)
"""The names of all kinds."""
COVERED = tuple(name for kind in _ALL for name in kind.covered_as)
"""The columns of the coverage table."""


def names(**wanted: bool) -> frozenset[str]:
    """The kinds whose fields have these values: `names(loses=True)`."""
    return frozenset(kind.name for kind in _ALL if all(getattr(kind, key) is value for key, value in wanted.items()))
