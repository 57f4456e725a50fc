"""A cluster for one run: three brokers and three controllers, which end with the check, however it ends."""

from __future__ import annotations

import shutil
from pathlib import Path

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.guardian import Guardian
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.processes import State

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    # A broker that was struck is replaced, and is back, within seconds.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "num.partitions": "6",
    "log.retention.ms": "-1",
    # A transaction whose producer was killed holds readers back for its own timeout, and up to this long more.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
_TRIES = 3
_READY_S = 90.0
_DOWN_S = 5.0


class OwnCluster:
    """Blocks; to be used by one thread at a time. Everything raises `ClusterError`."""

    def __init__(self, out: Path) -> None:
        """`out`: the directory of the run. Processes whose pid files are in `out/run` end with the check, too."""
        self._out = out
        self._guardian = Guardian()
        self._guardian.end_groups_of(out / "run")
        self._guardian.end_nodes_of(out / "cluster" / "run")
        self._cluster: LocalCluster | None = None

    @property
    def local(self) -> LocalCluster:
        assert self._cluster is not None, "up() comes first"
        return self._cluster

    def up(self) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                self._cluster = LocalCluster(self._out / "cluster", free_base_port(), SETTINGS)
                self._cluster.up()
                self._cluster.wait_ready(_READY_S)
                return
            except ClusterError as error:
                self._down()
                # Another process took one of the ports meanwhile.
                if attempt == _TRIES or " is taken by " not in str(error):
                    raise

    def close(self) -> None:
        """Stops everything. Configuration and logs stay: they have the decisions of the nodes."""
        try:
            self._down()
        finally:
            self._guardian.close()
        if self._cluster is not None:
            for node in self._cluster.layout.nodes:
                shutil.rmtree(self._cluster.layout.data / node.name, ignore_errors=True)

    def repair(self) -> list[str]:
        """Undoes all faults of nodes; returns the nodes that had to be started."""
        states = {node.name: node.state for node in self.local.processes()}
        for name, state in states.items():
            if state == State.PAUSED.value:
                self.local.resume(name)
        dead = [name for name, state in states.items() if state in (State.DEAD.value, State.STOPPED.value)]
        if dead:
            self.local.start(*dead)
        return dead

    def _down(self) -> None:
        if self._cluster is not None:
            self._cluster.down(_DOWN_S)
