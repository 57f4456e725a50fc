"""A cluster of processes for one test, or for many of them one after the other.

What `LocalCluster` does, and what tests need besides: free ports, settings with which groups settle soon, wires that
can be cut, topics, who plays which role, and a way back to a cluster where everything runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Self

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.plan import MODULES, Programs
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.processes import State
from barnabas.cluster.status import PartitionStatus
from barnabas.testing.node import open_wires
from barnabas.testing.topics import WAIT_SECONDS, create_topic

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Groups that settle soon: with Kafka's own numbers a test would mostly wait."""
NO_RETENTION = {"log.retention.ms": "-1"}
"""Records of tests often tell of times long ago. With Kafka's seven days they would be deleted at the first look of the
brokers, which is half a minute after their start: in the midst of some test."""
_POLL_SECONDS = 0.02
_PORT_TRIES = 3


class ClusterForTests(LocalCluster):
    """Three brokers and three controllers on free ports of this machine. What cannot be done is a `ClusterError`."""

    def __init__(self, data_dir: str | Path, overrides: Mapping[str, str] | None = None) -> None:
        """`overrides` are settings of every node, on top of `NO_RETENTION`."""
        programs = Programs(dict.fromkeys(MODULES, "barnabas.testing.node"))
        super().__init__(data_dir, free_base_port(), {**NO_RETENTION, **(overrides or {})}, programs=programs)

    @classmethod
    def start_new(cls, data: Path, overrides: Mapping[str, str] | None = None) -> Self:
        """One that is ready for clients, in a folder of its own under `data`."""
        for attempt in range(1, _PORT_TRIES):
            try:
                return cls(data / str(attempt), overrides)._started()
            except ClusterError as error:
                # Somebody else took one of the ports meanwhile.
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
        """Nodes of different groups do not reach each other any more, and nobody tells them. Those that are in no
        group are one more group; clients still reach everybody. Takes the place of the partition before.
        """
        sides = [[self.layout.node(name).name for name in group] for group in groups]
        named = {name for side in sides for name in side}
        sides.append([node.name for node in self.nodes if node.name not in named])
        wires = open_wires(self.layout)
        wires.heal()
        wires.partition(sides)

    def heal(self) -> None:
        """All nodes reach each other again."""
        open_wires(self.layout).heal()

    def repair(self) -> list[str]:
        """Undoes every fault: heals, resumes what is paused, starts what does not run, and waits until the cluster
        takes writes. Gives the names of those that were started. Costs next to nothing if all is well.
        """
        self.heal()
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
        """A topic whose leaders every running broker knows; gives its name."""
        running = {node.name for node in self.processes() if node.state == State.RUNNING.value}
        ports = [broker.port for broker in self.layout.brokers if broker.name in running]
        if not ports:
            raise ClusterError("no broker runs")
        create_topic(ports, name, partitions, replicas, configs)
        return name

    def partitions(self, topic: str) -> list[PartitionStatus]:
        """What the brokers tell of the partitions of a topic."""
        return [each for each in self.status([topic]).partitions if each.topic == topic]

    def leader_of(self, topic: str, partition: int = 0, other_than: str = "") -> str:
        """The name of the broker that leads a partition; with `other_than`, once that is another one."""

        def leader() -> str:
            led = [each.leader for each in self.partitions(topic) if each.partition == partition]
            return f"broker-{led[0]}" if led and led[0] >= 0 else ""

        if other_than:
            self.wait_for(f"{topic}-{partition} is led by another", lambda: leader() not in ("", other_than))
        if found := leader():
            return found
        raise ClusterError(f"nobody leads {topic}-{partition}")

    def active_controller(self, other_than: str = "") -> str:
        """The name of the controller that decides, once there is one, and not `other_than`."""
        found = ""

        def decides() -> bool:
            nonlocal found
            quorum = self.status([]).quorum
            found = "" if quorum is None else f"controller-{quorum.leader}"
            return found not in ("", other_than)

        self.wait_for("there is an active controller", decides)
        return found

    def wait_for(self, what: str, is_so: Callable[[], bool], timeout_seconds: float = WAIT_SECONDS) -> float:
        """Looks until it is so, whatever nodes are down; gives the seconds it took."""
        began = time.monotonic()
        while not is_so():
            if time.monotonic() - began > timeout_seconds:
                raise ClusterError(f"not within {timeout_seconds:.0f} s: {what}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began
