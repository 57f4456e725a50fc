"""A cluster for one run: three brokers and three controllers, and for each instance a proxy of its own to the brokers.

Brokers have a listener for each instance and advertise the ports of its proxy there. The proxy dials them from an
address of its own, so the description of a group shows which instance a member is.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.guardian import Guardian
from barnabas.cluster.layout import LOCAL_SHAPE, Layout, read_shape
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.processes import State
from barnabas.cluster.proxy.driver import ProxyProcess
from barnabas.cluster.proxy.rules import CLIENT
from barnabas.settings.properties import render_properties

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "auto.create.topics.enable": "true",
    "num.partitions": "6",
    "log.retention.ms": "-1",
    # A transaction whose producer was killed holds readers back for its own timeout, and up to this long more.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
_BASE_OFFSETS = (0, 1, 2, 100, 101, 102, 200, 201, 202, 300, 301, 302)
_WAYS_FROM = 400
"""Listeners of the instances are on ports this far above the base port."""
_TRIES = 3
_READY_S = 90.0
_DOWN_S = 5.0


class OwnCluster:
    """Blocks; to be used by one thread at a time. Everything raises `ClusterError`."""

    def __init__(self, out: Path, ways: int, seed: int) -> None:
        """`ways`: number of instances that may run at once."""
        self.proxies: list[ProxyProcess] = []
        self._out = out
        self._ways = ways
        self._seed = seed
        self._guardian = Guardian()
        self._guardian.end_nodes_of(out / "run")
        self._cluster: LocalCluster | None = None

    @property
    def local(self) -> LocalCluster:
        assert self._cluster is not None, "up() comes first"
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """For the checker: nothing is between it and the brokers."""
        return self.local.bootstrap_servers

    def bootstrap_of(self, instance: int) -> str:
        """For an instance: its proxy."""
        ports = self.proxies[instance].ports
        return ",".join(f"127.0.0.1:{ports[CLIENT, node.name]}" for node in self.local.layout.brokers)

    def instance_at(self, host: str) -> int | None:
        """The instance whose connections come from this address."""
        last = host.strip("/").rpartition(".")
        return int(last[2]) - 1 if last[0] == _SOURCE_NETWORK and last[2].isdigit() else None

    def up(self) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                self._begin()
                self.local.up()
                self.local.wait_ready(_READY_S)
                return
            except ClusterError as error:
                self._end()
                # Another process took one of the ports meanwhile.
                if attempt == _TRIES or " is taken by " not in str(error):
                    raise

    def close(self) -> None:
        """Stops everything. What explains the run stays: configuration, logs with decisions."""
        try:
            self._end()
        finally:
            self._guardian.close()
        for node in self.local.layout.nodes if self._cluster else ():
            shutil.rmtree(self.local.layout.data / node.name, ignore_errors=True)

    def repair(self) -> list[str]:
        """Undoes all faults of nodes and links; returns the nodes that had to be started."""
        for proxy in self.proxies:
            proxy.heal()
        states = {node.name: node.state for node in self.local.processes()}
        for name, state in states.items():
            if state == State.PAUSED.value:
                self.local.resume(name)
        dead = [name for name, state in states.items() if state in (State.DEAD.value, State.STOPPED.value)]
        if dead:
            self.local.start(*dead)
        return dead

    def _begin(self) -> None:
        data, shape = self._out / "cluster", self._out / "shape"
        offsets = [*_BASE_OFFSETS, *range(_WAYS_FROM, _WAYS_FROM + 3 * self._ways)]
        base = free_base_port(offsets)
        plain = Layout.open(data, base, LOCAL_SHAPE)
        self._guardian.end_nodes_of(plain.data / "run")
        ports = {
            (way, node.name): base + _WAYS_FROM + 3 * way + place
            for way in range(self._ways)
            for place, node in enumerate(plain.brokers)
        }
        for way in range(self._ways):
            targets = {node.name: ports[way, node.name] for node in plain.brokers}
            self.proxies.append(ProxyProcess({}, targets, self._seed + way, f"{_SOURCE_NETWORK}.{way + 1}"))
        self._write_shape(shape, plain, ports)
        self._cluster = LocalCluster(data, base, SETTINGS, config_dir=shape)

    def _write_shape(self, shape: Path, plain: Layout, ports: dict[tuple[int, str], int]) -> None:
        """The local shape at this base port, with a listener for each way."""
        shape.mkdir(parents=True, exist_ok=True)
        names = [f"WAY{way}" for way in range(self._ways)]
        for node in plain.nodes:
            plain.render_config(node, {})
            values = read_shape(plain.config_file(node))
            protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **dict.fromkeys(names, "PLAINTEXT")}
            values["listener.security.protocol.map"] = ",".join(f"{name}:{it}" for name, it in protocols.items())
            if node.is_broker:
                own = values["listeners"]
                ways = [(name, way) for way, name in enumerate(names)]
                at = [f"{name}://127.0.0.1:{ports[way, node.name]}" for name, way in ways]
                known = [f"{name}://127.0.0.1:{self.proxies[way].ports[CLIENT, node.name]}" for name, way in ways]
                values["listeners"] = ",".join([own, *at])
                values["advertised.listeners"] = ",".join([own, *known])
                values["inter.broker.listener.name"] = "PLAINTEXT"
            (shape / f"{node.name}.properties").write_text(render_properties(values))

    def _end(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.proxies.clear()
        if self._cluster is not None:
            self._cluster.down(_DOWN_S)


_SOURCE_NETWORK = "127.66.0"
"""Proxies dial from addresses of this part of the loopback network, the last number one above that of the instance."""
