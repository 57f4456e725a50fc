"""Links between the nodes of a local cluster, cut in both directions.

Blocking; for one thread at a time.
"""

from __future__ import annotations

from barnabas.cluster.errors import WrongArgument
from barnabas.cluster.layout import Layout
from barnabas.cluster.node_faults import NodeFaults


class Links:
    """All links of one cluster of breakable nodes."""

    def __init__(self, layout: Layout) -> None:
        """None is cut, also if an earlier page left some cut."""
        self._names = [node.name for node in layout.nodes]
        self._faults = NodeFaults(layout)
        self._cut: dict[tuple[str, str], None] = {}
        self.heal()

    @property
    def cut(self) -> list[tuple[str, str]]:
        """Cut links; each is cut in both directions."""
        return list(self._cut)

    def set_cut(self, one: str, other: str, *, cut: bool) -> None:
        """Silently holds back, or again forwards, everything between the two nodes. Raises `ClusterError`."""
        pair = self.pair(one, other)
        change = self._faults.cut if cut else self._faults.mend
        for source, target in (pair, pair[::-1]):
            change(source, target)
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
        self._faults.heal()
        self._cut.clear()
