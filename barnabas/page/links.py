"""Links between the nodes of a local cluster that can be cut: one proxy per direction.

Blocking; for one thread at a time.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.cluster.errors import WrongArgument
from barnabas.cluster.layout import Layout
from barnabas.cluster.proxied_node import save_ways
from barnabas.cluster.proxy.driver import ProxyProcess


class Links:
    """All links of one cluster. Close it after the nodes have ended: without proxies they are isolated."""

    def __init__(self, layout: Layout) -> None:
        """Create it before the nodes are started. Raises `ClusterError`."""
        self._names = [node.name for node in layout.nodes]
        self._proxy = ProxyProcess(
            {node.name: node.port for node in layout.nodes}, {node.name: node.port for node in layout.brokers}
        )
        self._cut: dict[tuple[str, str], None] = {}
        save_ways(layout, self._proxy.ports)

    @property
    def cut(self) -> list[tuple[str, str]]:
        """Cut links; each is cut in both directions."""
        return list(self._cut)

    def set_cut(self, one: str, other: str, *, cut: bool) -> None:
        """Silently drops, or again forwards, everything between the two nodes. Raises `ClusterError`."""
        pair = self.pair(one, other)
        self._proxy.set_links(
            (source, target, replace(self._proxy.link(source, target), cut=cut))
            for source, target in (pair, pair[::-1])
        )
        self._cut.pop(pair, None)
        if cut:
            self._cut[pair] = None

    def pair(self, one: str, other: str) -> tuple[str, str]:
        """The pair in sorted order. Raises `WrongArgument`."""
        for name in (one, other):
            if name not in self._names:
                raise WrongArgument(f"there is no node {name[:60]}; nodes are {', '.join(self._names)}")
        if one == other:
            raise WrongArgument(f"{one} has no link to itself")
        first, second = sorted((one, other))
        return first, second

    def heal(self) -> None:
        """Heals all links."""
        self._proxy.heal()
        self._cut.clear()

    def close(self) -> None:
        self._proxy.close()
