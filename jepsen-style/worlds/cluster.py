"""The cluster that a run breaks: one protocol for simulated nodes, processes, network namespaces and containers.

Knows no workload. `cannot` names the kinds of faults that a world cannot do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from barnabas.fault_proxy.rules import MessageRule, Way
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.schema import Message
from barnabas.runtime.world import World
from loss_budget import Membership, NodeState
from operations import Place

current_fault: ContextVar[str] = ContextVar("current_fault", default="")
"""The fault of this task, as the coverage table names it; empty outside of a nemesis."""


AuthorityStep = Literal["trust both", "switch", "trust the new one"]
"""Steps in which an operator replaces the authority of the nodes, in this order."""


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A fault of the link from one node to another. All zero: none."""

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    bytes_per_second: int = 0
    """0: as fast as it goes."""
    loss: float = 0.0
    """Probability that a burst of bytes stands still for as long as TCP would need to send it again."""
    half_open: bool = False
    """Connections look alive and carry nothing; new ones are taken and never answered."""
    reset_after_bytes: int = 0
    """Number of bytes after which a connection is reset, in the middle of a frame; 0: never."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage to the files of a node that does not run."""

    kind: Literal["flip", "truncate"]
    pattern: str
    """A glob below the node's data directory: `*/*.log`, `__cluster_metadata-0/quorum-state`."""
    probability: float = 0.0
    """flip: of each byte."""
    bytes_: int = 0
    """truncate: from the end."""


class ReplicaView(NamedTuple):
    """State of one partition, as one node knows it."""

    node: str
    place: Place
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    leader: int
    """-1: nobody."""
    isr: tuple[int, ...]


class ClusterUnderTest(Protocol):
    """Calls that do something return when it is done. ClusterError, one line, where it could not be done."""

    @property
    def name(self) -> str:
        """`sim`, `local`, `netns`, `compose`, `bootstrap`."""

    @property
    def cannot(self) -> Mapping[str, str]:
        """Kinds of `nemeses.kinds` that are off here, and why."""

    @property
    def brokers(self) -> Sequence[str]: ...
    @property
    def controllers(self) -> Sequence[str]: ...
    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap servers for clients; the proxies where there are some."""

    def world(self, host: str) -> World:
        """For our own client on a host of that name. Its clocks are those of the run."""

    def now_ns(self) -> int:
        """Since the run began."""

    def wall_ms(self) -> int: ...

    # ---- nodes
    async def kill(self, *names: str) -> None: ...
    async def start(self, *names: str) -> None: ...
    async def stop(self, name: str) -> None: ...
    async def pause(self, name: str) -> None: ...
    async def resume(self, name: str) -> None: ...
    async def unregister(self, name: str) -> None:
        """The cluster forgets a broker that does not run; started again, it comes as a new member."""

    async def states(self) -> Mapping[str, NodeState]: ...

    # ---- links; `client` stands for all clients
    async def cut(self, source: str, target: str) -> None:
        """Nothing passes in this direction from now on, and neither end notices."""

    async def mend(self, source: str, target: str) -> None:
        """Takes back `cut`: what was held goes on."""

    async def set_link(self, source: str, target: str, fault: LinkFault) -> None: ...
    async def add_rule(self, rule: MessageRule) -> int:
        """Gives a number for `clear_rule`."""

    async def clear_rule(self, number: int) -> int | None:
        """Removes a rule; messages that it held go on. Returns the number of messages that it met, where they are
        counted."""

    async def asked(self) -> Mapping[Way, int]:
        """Number of requests from each source to each target since the cluster began."""

    async def heal(self) -> None:
        """All links and messages are as they were, and no certificate is spoiled."""

    # ---- clocks and disks
    async def set_clock(self, name: str, offset_ms: int) -> None: ...
    async def power_cut(self, name: str) -> None:
        """Ends the node; what it had not synced is gone when it is started again."""

    async def fill_disk(self, name: str, *, full: bool) -> None: ...
    async def damage(self, name: str, damage: Damage) -> Sequence[str]:
        """Damages a node that does not run; returns a line for each damaged file."""

    async def wipe(self, name: str) -> None:
        """Empties the disk of a node that does not run."""

    async def kill_at(self, name: str, point: str, *, power_cut: bool = False) -> None:
        """The node ends when it next comes to that fault point; returns at once."""

    async def pause_at(self, name: str, point: str) -> None:
        """The node freezes when it next comes to that fault point; returns at once."""

    async def disarm(self, name: str) -> bool:
        """Takes `kill_at` and `pause_at` back; True if it had struck."""

    # ---- certificates
    async def renew_certificate(self, name: str) -> None:
        """Puts another certificate of the same authority into the file of the node, which may run."""

    async def spoil_certificate(self, name: str) -> None:
        """Puts something else into that file, until it is renewed or all is healed. Raises ClusterError if the node is
        not up: it could not start."""

    async def change_authority(self, step: AuthorityStep) -> None:
        """A step for all nodes at once. Steps may be repeated."""

    # ---- changes
    async def ask(self, name: str, request: Message) -> Any:
        """The answer of a node to a request of its operator."""

    # ---- looking
    async def leader_of(self, place: Place) -> str | None: ...
    async def active_controller(self) -> str | None: ...
    async def coordinator_of(self, kind: Literal["group", "transaction", "share"], id_: str) -> str | None: ...
    async def views(self) -> Sequence[ReplicaView]:
        """The views of all nodes that answer, for the topics of the run."""

    async def memberships(self) -> Sequence[Membership]:
        """The members of all partitions, internal ones too, as each broker that answers and has them knows them."""

    async def wait_ready(self, timeout_seconds: float = 60.0) -> None: ...
    def log_files(self) -> Mapping[str, Path]:
        """Log files by node; empty where there are none."""


class LivingQuorum(ClusterUnderTest, Protocol):
    """Calls for `voters`, in worlds in which the voters of the metadata log can change."""

    def voter_address(self, name: str) -> tuple[str, int]:
        """Host and port of a controller as a voter."""

    async def lost_voters(self) -> Sequence[ReplicaKey]:
        """Replicas whose disks are gone, and that some node still counts among the voters."""

    async def may_lose_a_voter(self) -> bool:
        """True if every replica of the metadata log is known to count three voters, all with their disks."""

    async def next_active_controller(self, name: str, timeout_seconds: float) -> str | None:
        """Waits for a leader in a later epoch than that of `name`; None if none came in time. Returns at once then, so
        that it is met before its first commit."""


class SimulatedWorld(LivingQuorum, Protocol):
    """Calls for the kinds of faults that exist in simulated worlds only. `heal` takes all of them back."""

    @property
    def hosts(self) -> Mapping[str, Sequence[str]]:
        """Brokers by the host that they share; empty if each has a host of its own."""

    def client_hosts(self) -> Sequence[str]:
        """The hosts on which clients live."""

    def nodes_in_rare_states(self) -> Sequence[str]:
        """Nodes in states that are soon over, so that faults hardly ever meet them by chance."""

    def log_dirs(self, name: str) -> Sequence[str]:
        """Paths of the log directories of a node."""

    async def torn_power_cut(self, name: str) -> None:
        """A power cut that also damages some of what was being written."""

    async def kill_at_write(self, name: str, count: int, *, power_cut: bool = False) -> None:
        """The node ends at the `count`-th change or sync of its disk from now; returns at once."""

    async def break_disk(self, name: str, operation: str, probability: float) -> None:
        """`read`, `write` or `sync` fails with EIO."""

    async def repair_disk(self, name: str) -> int:
        """Takes `break_disk` back; gives how many operations failed."""

    async def slow_disk(self, name: str, milliseconds: tuple[float, float] | None) -> None:
        """Operations take the first, and on average the second on top; None: as before."""

    @property
    def store_faults(self) -> Sequence[str]:
        """The ways in which the object store can fail."""

    async def break_object_store(self, how: str, operation: str, probability: float) -> None:
        """Requests with this operation (`all`: any) meet the fault, or the store becomes slow or its lists old."""

    async def heal_object_store(self) -> None:
        """The store works again."""

    async def stall(self, source: str, target: str, *, on: bool) -> None:
        """Everything waits in this direction; nothing is lost."""

    async def dribble(self, name: str, *, on: bool) -> None:
        """The host receives one byte at a time."""

    async def hide_names(self, names: Sequence[str], *, on: bool) -> None:
        """Nobody can resolve these host names; open connections stay."""
