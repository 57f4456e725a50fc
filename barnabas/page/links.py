"""Links between the nodes of a local cluster, which can be cut: a proxy on each way.

Blocks; for one thread at a time.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.cluster.errors import WrongArgument
from barnabas.cluster.layout import Layout
from barnabas.cluster.proxied_node import save_ways
from barnabas.cluster.proxy.driver import ProxyProcess


class Links:
    """All of one cluster. What it opens has to be closed after the nodes have ended: without ways they are alone."""

    def __init__(self, layout: Layout) -> None:
        """Before the nodes are started. Raises `ClusterError`."""
        self._names = [node.name for node in layout.nodes]
        self._proxy = ProxyProcess(
            {node.name: node.port for node in layout.nodes}, [node.name for node in layout.brokers]
        )
        self._cut: dict[tuple[str, str], None] = {}
        save_ways(layout, self._proxy.ports)

    @property
    def cut(self) -> list[tuple[str, str]]:
        """Both directions of each."""
        return list(self._cut)

    def set_cut(self, one: str, other: str, *, cut: bool) -> None:
        """Nothing passes between the two any more, and nobody is told; or it does again. Raises `ClusterError`."""
        pair = self.pair(one, other)
        self._proxy.set_links(
            (source, target, replace(self._proxy.link(source, target), cut=cut))
            for source, target in (pair, pair[::-1])
        )
        self._cut.pop(pair, None)
        if cut:
            self._cut[pair] = None

    def pair(self, one: str, other: str) -> tuple[str, str]:
        """In one order, whoever is named first. Raises `WrongArgument`."""
        for name in (one, other):
            if name not in self._names:
                raise WrongArgument(f"there is no node {name[:60]}; there are {', '.join(self._names)}")
        if one == other:
            raise WrongArgument(f"{one} has no link to itself")
        first, second = sorted((one, other))
        return first, second

    def heal(self) -> None:
        """All of them."""
        self._proxy.heal()
        self._cut.clear()

    def close(self) -> None:
        self._proxy.close()
