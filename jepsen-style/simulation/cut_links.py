"""Links that are cut or stalled for a while; several faults may be on one link.

Knows links and hosts by name, no node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from runtime.simulated import Universe
from runtime.simulated.links import Link


@dataclass(slots=True, eq=False)
class WireFault:
    """Links that are cut or stalled."""

    links: list[Link]
    stalled: bool = False

    @property
    def refused(self) -> list[int]:
        """What each link has kept from passing so far."""
        return [link.refused for link in self.links]

    @property
    def ends(self) -> dict[str, None]:
        """The hosts at both ends of its links."""
        return {end: None for link in self.links for end in (link.source, link.target)}


@dataclass(slots=True)
class CutLinks:
    """Of one universe."""

    universe: Universe
    _faults: list[WireFault] = field(default_factory=list)

    def between(self, some: Iterable[str], others: Iterable[str], *, both_ways: bool = True) -> list[Link]:
        wires = self.universe.wires
        pairs = [(a, b) for a in some for b in others if a != b]
        if both_ways:
            pairs += [(b, a) for a, b in pairs]
        return [wires.link(a, b) for a, b in dict.fromkeys(pairs)]

    def cut(self, fault: WireFault) -> None:
        self._faults.append(fault)
        self._apply(fault.links)

    def mend(self, fault: WireFault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)
            self._apply(fault.links)

    def mend_all(self) -> None:
        for fault in list(self._faults):
            self.mend(fault)

    def _apply(self, links: Iterable[Link]) -> None:
        """A link is as all faults that are on it want it."""
        for link in links:
            on_it = [fault for fault in self._faults if link in fault.links]
            link.set(cut=any(not fault.stalled for fault in on_it), stalled=any(fault.stalled for fault in on_it))
