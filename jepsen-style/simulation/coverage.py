"""Coverage: a table of the faults that have met each state, and so of what a run has never tried.

A state is either what can be seen in a node's parts at the moment of a fault ("leads, has records above the high
watermark"), or the fault point that the node passed within the last few milliseconds. Only reads; changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.broker.coordinator.shard import ShardState
from barnabas.broker.parts import BrokerParts
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica import Leading, Offline
from barnabas.broker.transactions.transaction import TransactionState
from barnabas.cluster.fault_points import all_points
from barnabas.cluster.simulated import SimulatedNode
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from barnabas.runtime.simulated import Universe
from nemeses.kinds import COVERED

RECENT_SECONDS = 0.02
"""A fault that comes so soon after a fault point has met it."""

RARE_POINTS = ("coordinator.loaded", "raft.snapshot.downloaded")
"""Fault points that nodes seldom reach."""

BROKER_STATES = (
    "is starting",
    "leads, has records above the high watermark",
    "leads, does not know yet what it inherited",
    "leads, waits for the answer to an ISR change",
    "leads with an ISR of min.insync.replicas",
    "leads below min.insync.replicas",
    "follows in the ISR",
    "follows outside of the ISR",
    "loads a coordinator",
    "has a transaction open",
    "coordinates a transaction in PREPARE_COMMIT",
    "coordinates a transaction in PREPARE_ABORT",
    "coordinates a group that rebalances",
)
CONTROLLER_STATES = (
    "is active, has records that are not committed",
    "is active",
    "follows",
    "follows, has records that are not committed",
    "stands for election",
    "knows no leader",
    "loads a snapshot",
)
POINTS = all_points()
"""The fault points of a node, and those of its disk."""
STATES = BROKER_STATES + CONTROLLER_STATES + tuple(f"after {point}" for point in POINTS)


@dataclass(slots=True)
class Coverage:
    """The coverage of one run."""

    universe: Universe
    faults: tuple[str, ...]
    """The kinds that count, in the order of the table."""
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    """Number of times that each kind of fault struck a node."""
    replicas: dict[int, MetadataReplica] = field(default_factory=dict)
    """The metadata replica of each node, as it stepped last."""
    _last: dict[tuple[str, str], float] = field(default_factory=dict)

    def strike(self, fault: str, node: SimulatedNode, at: str | None = None) -> None:
        """A fault begins to act on a node, before it does anything to it. `at`: the fault point where the node is. The
        same fault twice in one moment is one.
        """
        name, now = node.node.name, self.universe.time.now
        if self._last.get((fault, name)) == now:
            return
        self._last[fault, name] = now
        self.struck[fault] += 1
        for state in self.states_of(node):
            self.cells[state, fault] += 1
        for point in POINTS:
            reached = self.universe.last_reached.get((name, point))
            if point == at or (reached is not None and now - reached <= RECENT_SECONDS):
                self.cells[f"after {point}", fault] += 1

    def is_loading(self, node: SimulatedNode) -> bool:
        """It is in one of the states that are soon over, and that hardly any fault meets by chance."""
        if not node.running:
            return False
        services, name, now = node.broker, node.node.name, self.universe.time.now
        if (services is not None and _loads_a_coordinator(services)) or self._loads_a_snapshot(node):
            return True
        reached = self.universe.last_reached
        return any(now - reached.get((name, point), -1.0) <= RECENT_SECONDS for point in RARE_POINTS)

    def _loads_a_snapshot(self, node: SimulatedNode) -> bool:
        replica = self.replicas.get(node.node.id)
        role = None if replica is None else replica.core.role
        return isinstance(role, Follower) and role.download is not None

    def states_of(self, node: SimulatedNode) -> list[str]:
        """All that the node is in, without order or repetition."""
        if not node.running:
            return []
        if not node.is_up:
            return ["is starting", *(["loads a snapshot"] if self._loads_a_snapshot(node) else [])]
        services = node.broker
        if services is not None:
            return list(dict.fromkeys(_of_broker(services)))
        replica = self.replicas.get(node.node.id)
        return [] if replica is None else list(_of_controller(replica))

    def table(self) -> dict[str, Any]:
        """JSON: cells as {state: {fault: times}}, and which of those that could be never were."""
        known = [*STATES, *sorted({state for state, _ in self.cells} - set(STATES))]
        cells = {state: {fault: self.cells[state, fault] for fault in self.faults} for state in known}
        return {
            "faults": list(self.faults),
            "cells": cells,
            "struck": {fault: self.struck[fault] for fault in self.faults},
            "points": dict(sorted(self.universe.coverage.items())),
            "never": never(cells),
        }


def never(cells: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """The cells that are empty."""
    return [[state, fault] for state, faults in cells.items() for fault, times in faults.items() if times == 0]


ANY = "*"
"""In a pair that must be met: any fault."""


def parse_pairs(text: str, source: str) -> list[tuple[str, str]]:
    """Pairs that must be met, one a line as `state | fault`, or `state | *` for any fault; `#` begins a comment.

    Raises ValueError, which names `source` and the line, for a state or a fault that nothing can meet.
    """
    pairs = []
    for number, line in enumerate(text.splitlines(), start=1):
        pair = line.partition("#")[0].strip()
        if not pair:
            continue
        state, bar, fault = (part.strip() for part in pair.partition("|"))
        if not bar:
            raise ValueError(f"{source}:{number}: a line must be `state | fault`; got {pair!r}")
        if state not in STATES:
            raise ValueError(f"{source}:{number}: unknown state {state!r}")
        if fault not in (ANY, *COVERED):
            raise ValueError(f"{source}:{number}: a fault must be one of {', '.join(COVERED)} or *; got {fault!r}")
        pairs.append((state, fault))
    return pairs


def not_met(cells: Mapping[str, Mapping[str, int]], pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Those of the pairs that a run has not met, as they are written."""
    return [
        f"{state} | {fault}"
        for state, fault in pairs
        if not (sum(cells.get(state, {}).values()) if fault == ANY else cells.get(state, {}).get(fault, 0))
    ]


def merged(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The tables of many runs in one; the faults are those of any."""
    tables = list(tables)
    faults = list(dict.fromkeys(fault for table in tables for fault in table["faults"]))
    states = list(dict.fromkeys(state for table in tables for state in table["cells"]))
    cells = {
        state: {fault: sum(table["cells"].get(state, {}).get(fault, 0) for table in tables) for fault in faults}
        for state in states
    }
    points: Counter[str] = Counter()
    for table in tables:
        points.update(table["points"])
    struck = {fault: sum(table["struck"].get(fault, 0) for table in tables) for fault in faults}
    return {
        "faults": faults,
        "cells": cells,
        "struck": struck,
        "points": dict(sorted(points.items())),
        "never": never(cells),
    }


def _of_broker(services: BrokerParts) -> Iterator[str]:
    for partition in services.partitions:
        yield from _of_partition(partition, services)
    if _loads_a_coordinator(services):
        yield "loads a coordinator"
    for shard in services.transactions.shards:
        states = [transaction.state for transaction in shard.machine.transactions]
        if TransactionState.PREPARE_COMMIT in states:
            yield "coordinates a transaction in PREPARE_COMMIT"
        if TransactionState.PREPARE_ABORT in states:
            yield "coordinates a transaction in PREPARE_ABORT"
    for groups in services.groups.shards:
        if any(group.state_name() in _REBALANCING for group in groups.machine.offsets.all_groups()):
            yield "coordinates a group that rebalances"


def _loads_a_coordinator(services: BrokerParts) -> bool:
    shards = (shard for coordinator in services.coordination.all for shard in coordinator.shards)
    return any(shard.state is ShardState.LOADING for shard in shards)


_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def _of_partition(partition: Partition, services: BrokerParts) -> Iterator[str]:
    replica = partition.replica
    role = replica.role
    if isinstance(role, Offline):
        yield "has a log offline"
    elif isinstance(role, Leading):
        if replica.high_watermark < replica.log_end_offset:
            yield "leads, has records above the high watermark"
        if not replica.high_watermark_is_current:
            yield "leads, does not know yet what it inherited"
        if role.pending is not None:
            yield "leads, waits for the answer to an ISR change"
        if len(role.isr) < replica.min_isr:
            yield "leads below min.insync.replicas"
        elif len(role.isr) == replica.min_isr:
            yield "leads with an ISR of min.insync.replicas"
        if partition.log.last_stable_offset < replica.high_watermark:
            yield "has a transaction open"
    else:
        image = services.metadata.partition(partition.topic, partition.index)
        if image is not None:
            is_member = replica.node_id in image.isr
            yield "follows in the ISR" if is_member else "follows outside of the ISR"


def _of_controller(replica: MetadataReplica) -> Iterator[str]:
    core = replica.core
    role = core.role
    end = replica.log.partition_log.log_end_offset
    if isinstance(role, Leader):
        yield "is active"
        if core.high_watermark < end:
            yield "is active, has records that are not committed"
    elif isinstance(role, Candidate | Prospective):
        yield "stands for election"
    elif isinstance(role, Unattached | Resigned):
        yield "knows no leader"
    elif isinstance(role, Follower):
        if role.download is not None:
            yield "loads a snapshot"
        yield "follows"
        if core.high_watermark < end:
            yield "follows, has records that are not committed"
