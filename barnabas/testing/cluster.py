"""A cluster of processes for tests.

`LocalCluster` with additions for tests: free ports, settings with which groups rebalance quickly, cut links, topics,
roles of nodes, and repair of all faults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Self

from barnabas.cluster.breakable_programs import BREAKABLE
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.processes import State
from barnabas.cluster.status import PartitionStatus
from barnabas.testing.topics import WAIT_SECONDS, create_topic

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Quick group rebalances: with Kafka's defaults a test would mostly wait."""
NO_RETENTION = {"log.retention.ms": "-1"}
"""Records of tests often have old timestamps. With Kafka's retention of seven days brokers would delete them at their
first check, half a minute after their start: in the middle of some test."""
_POLL_SECONDS = 0.02
_PORT_TRIES = 3


class ClusterForTests(LocalCluster):
    """Three brokers and three controllers on free ports of this machine. Errors are `ClusterError`s."""

    def __init__(self, data_dir: str | Path, overrides: Mapping[str, str] | None = None) -> None:
        """`overrides` are settings of all nodes, in addition to `NO_RETENTION`."""
        super().__init__(data_dir, free_base_port(), {**NO_RETENTION, **(overrides or {})}, programs=BREAKABLE)

    @classmethod
    def start_new(cls, data: Path, overrides: Mapping[str, str] | None = None) -> Self:
        """Start a new cluster in its own folder under `data`, and wait until it is ready."""
        for attempt in range(1, _PORT_TRIES):
            try:
                return cls(data / str(attempt), overrides)._started()
            except ClusterError as error:
                # Another process took one of the ports meanwhile.
                if " is taken by " not in str(error):
                    raise
        return cls(data / str(_PORT_TRIES), overrides)._started()

    def _started(self) -> Self:
        try:
            self.up()
            self.wait_ready()
        except BaseException:
            self.down()
            raise
        return self

    # ---- faults

    def partition(self, *groups: Iterable[str]) -> None:
        """Drop traffic between nodes of different groups without closing connections. Nodes in no group are one more
        group; clients still reach all nodes. Replaces an earlier partition.
        """
        self.faults.partition(groups)

    def heal(self) -> None:
        """Undo `partition`."""
        self.faults.heal()

    def set_clock(self, name: str, offset_ms: int) -> None:
        """Set the wall clock of a node wrong by this much; 0 sets it right."""
        self.faults.set_clock(name, offset_ms)

    def fill_disk(self, name: str, full: bool = True) -> None:
        """Let the disk of a node be full (ENOSPC), or have room again."""
        self.faults.fill_disk(name, full=full)

    def repair(self) -> list[str]:
        """Undo all faults: those of links, clocks and disks; resume paused nodes, start dead ones, and wait until the
        cluster accepts writes. Returns the names of the started nodes. Cheap if there is nothing to repair.
        """
        self.faults.repair()
        states = {node.name: node.state for node in self.processes()}
        for name, state in states.items():
            if state == State.PAUSED.value:
                self.resume(name)
        started = [name for name, state in states.items() if state in (State.DEAD.value, State.STOPPED.value)]
        if started:
            self.start(*started)
        self.wait_ready()
        return started

    # ---- topics and roles

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, wait until every running broker knows its leaders, and return its name."""
        running = {node.name for node in self.processes() if node.state == State.RUNNING.value}
        ports = [broker.port for broker in self.layout.brokers if broker.name in running]
        if not ports:
            raise ClusterError("no broker is running")
        create_topic(ports, name, partitions, replicas, configs)
        return name

    def partitions(self, topic: str) -> list[PartitionStatus]:
        """Partitions of a topic, as the brokers report them."""
        return [each for each in self.status([topic]).partitions if each.topic == topic]

    def leader_of(self, topic: str, partition: int = 0, other_than: str = "") -> str:
        """Name of the broker that leads a partition; with `other_than`, waits until it is another one."""

        def leader() -> str:
            led = [each.leader for each in self.partitions(topic) if each.partition == partition]
            return f"broker-{led[0]}" if led and led[0] >= 0 else ""

        if other_than:
            self.wait_for(f"{topic}-{partition} has another leader", lambda: leader() not in ("", other_than))
        if found := leader():
            return found
        raise ClusterError(f"{topic}-{partition} has no leader")

    def active_controller(self, other_than: str = "") -> str:
        """Name of the active controller; waits until there is one, and until it is not `other_than`."""
        found = ""

        def decides() -> bool:
            nonlocal found
            quorum = self.status([]).quorum
            found = "" if quorum is None else f"controller-{quorum.leader}"
            return found not in ("", other_than)

        self.wait_for("there is an active controller", decides)
        return found

    def wait_for(self, what: str, holds: Callable[[], bool], timeout_seconds: float = WAIT_SECONDS) -> float:
        """Poll until `holds` is true, whatever nodes are down; returns the seconds it took."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > timeout_seconds:
                raise ClusterError(f"timeout after {timeout_seconds:.0f} s: {what}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began
