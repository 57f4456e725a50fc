"""The links between hosts: one for each direction of each pair, and the arrival of parcels in time.

A link may be cut (nothing passes, without notice) or stalled. Both only hold parcels back, because TCP retransmits what
was not acknowledged; the exception is a reset, which is never retransmitted. A link may also be bad: slow, narrow,
lossy, or half open (`Badness`). Knows hosts by name, no connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.simulated.virtual_time import VirtualTime

FIRST_RETRANSMISSION_MS = 200.0
"""The first retransmission timeout of TCP; doubled each time."""


@dataclass(frozen=True, slots=True)
class Badness:
    """The faults of a bad link. All zero: none."""

    latency_ms: float = 0.0
    """Added to the latency of the link."""
    jitter_ms: float = 0.0
    """Mean of a random addition to the latency."""
    bytes_per_second: int = 0
    """0: no limit."""
    loss: float = 0.0
    """Probability that a burst is retransmitted; later bursts of its connection wait for it."""
    half_open: bool = False
    """Dials pass, and nothing else."""
    reset_after_bytes: int = 0
    """Each connection is reset after this many bytes."""


class Parcel(Protocol):
    """Something under way on a link. If it is sent several times, it arrives as often, in order."""

    @property
    def dials(self) -> bool:
        """A dial: it passes a half-open link."""

    def arrive(self) -> None:
        """It reached the other end."""

    def vanishes(self) -> bool:
        """True if a closed link loses the parcel instead of delaying it; it must forget it."""


class Link:
    """One direction between two hosts."""

    __slots__ = (
        "_free_at",
        "_not_before",
        "_wires",
        "bad",
        "changes",
        "cut",
        "held",
        "latency_mean_ms",
        "latency_min_ms",
        "refused",
        "source",
        "stalled",
        "target",
        "target_down",
    )

    def __init__(self, source: str, target: str, wires: Wires, latency_ms: tuple[float, float]) -> None:
        self.source = source
        self.target = target
        self._wires = wires
        self.latency_min_ms, self.latency_mean_ms = latency_ms
        """A parcel takes the minimum, plus an exponential time with this mean."""
        self.bad: Badness | None = None
        self._free_at = 0.0
        self._not_before: dict[Parcel, float] = {}
        self.cut = False
        self.stalled = False
        self.target_down = False
        self.held: list[Parcel] = []
        self.changes = 0
        """Number of changes: closed, opened, made worse, or repaired."""
        self.refused = 0
        """Number of parcels that found the link closed."""

    @property
    def open(self) -> bool:
        return not (self.cut or self.stalled or self.target_down)

    def send(self, parcel: Parcel, size_bytes: int = 0) -> None:
        """Let `parcel` arrive after this link's latency."""
        wires = self._wires
        delay_ms = self.latency_min_ms
        if self.latency_mean_ms > 0:
            delay_ms += wires.chance.expovariate(1.0 / self.latency_mean_ms)
        arrives = wires.time.now + delay_ms / 1000.0
        if self.bad is not None:
            arrives = self._badly(self.bad, parcel, size_bytes, arrives)
        wires.time.call_at(arrives, self._arrived, parcel)

    def _badly(self, bad: Badness, parcel: Parcel, size_bytes: int, arrives: float) -> float:
        """The arrival over this bad link of a parcel that would arrive at `arrives` over a good one."""
        chance = self._wires.chance
        arrives += bad.latency_ms / 1000.0
        if bad.jitter_ms > 0:
            arrives += chance.expovariate(1.0 / bad.jitter_ms) / 1000.0
        if bad.bytes_per_second > 0:
            began = max(self._wires.time.now, self._free_at)
            self._free_at = began + size_bytes / bad.bytes_per_second
            arrives += self._free_at - self._wires.time.now
        if bad.loss > 0:
            wait_ms = FIRST_RETRANSMISSION_MS
            while chance.random() < bad.loss and wait_ms < 60_000:
                arrives += wait_ms / 1000.0
                wait_ms *= 2
            arrives = self._not_before[parcel] = max(arrives, self._not_before.get(parcel, 0.0))
        return arrives

    def _arrived(self, parcel: Parcel) -> None:
        """The latency is over: deliver the parcel, or hold it back."""
        self._wires.arrivals += 1
        if not (self.cut or self.stalled or self.target_down):
            if self.bad is None or not self.bad.half_open or parcel.dials:
                parcel.arrive()
                return
            self.refused += 1
            self.held.append(parcel)
            return
        self.refused += 1
        if self.stalled or not parcel.vanishes():
            self.held.append(parcel)

    def set(self, *, cut: bool | None = None, stalled: bool | None = None, target_down: bool | None = None) -> None:
        """Change the state of the link; if it is open now, held parcels are sent on."""
        before = (self.cut, self.stalled, self.target_down)
        if cut is not None:
            self.cut = cut
        if stalled is not None:
            self.stalled = stalled
        if target_down is not None:
            self.target_down = target_down
        self.changes += before != (self.cut, self.stalled, self.target_down)
        self._let_through()

    def worsen(self, bad: Badness | None) -> None:
        """Give the link these faults only, or none."""
        self.changes += 1
        self.bad = None if bad == Badness() else bad
        self._free_at = 0.0
        self._not_before.clear()
        self._let_through()

    def _let_through(self) -> None:
        if self.held and self.open and not (self.bad is not None and self.bad.half_open):
            held, self.held = self.held, []
            for parcel in held:
                self.send(parcel)


class Wires:
    """All links of a universe, and the ways to break them."""

    def __init__(self, time: VirtualTime, chance: Stream, latency_ms: tuple[float, float]) -> None:
        self.time = time
        self.chance = chance
        self.arrivals = 0
        """Number of parcels that reached the end of a link."""
        self.latency_ms = latency_ms
        """The latency of new links: (minimum, mean of the addition)."""
        self._links: dict[tuple[str, str], Link] = {}
        self._names: dict[str, bool] = {}
        """Every host, and whether it is down."""

    def add_host(self, name: str, *, down: bool) -> None:
        """Register a host; `down` makes it unreachable (it does not refuse)."""
        self._names[name] = down
        for link in list(self._links.values()):
            if link.target == name:
                link.set(target_down=down)

    def is_down(self, name: str) -> bool:
        return self._names.get(name, False)

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            latency_ms = (0.02, 0.02) if source == target else self.latency_ms
            link = self._links[source, target] = Link(source, target, self, latency_ms)
            link.target_down = self._names.get(target, False)
        return link

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from `source` to `target`."""
        self.link(source, target).set(cut=True)

    def cut_between(self, some: Iterable[str], others: Iterable[str], *, both_ways: bool = True) -> None:
        """Cut every link from one of `some` to one of `others`, and back."""
        targets = list(others)
        for source in some:
            for target in targets:
                if source != target:
                    self.cut(source, target)
                    if both_ways:
                        self.cut(target, source)

    def isolate(self, name: str, *, outgoing: bool = True, incoming: bool = True) -> None:
        """Cut a host off from all others: wholly, or one way only."""
        others = [other for other in self._names if other != name]
        if outgoing:
            self.cut_between([name], others, both_ways=False)
        if incoming:
            self.cut_between(others, [name], both_ways=False)

    def partition(self, *groups: Iterable[str]) -> None:
        """Only hosts of the same group reach each other."""
        sides = [list(group) for group in groups]
        for index, side in enumerate(sides):
            for other in sides[index + 1 :]:
                self.cut_between(side, other)

    def bridge(self, name: str, left: Iterable[str], right: Iterable[str]) -> None:
        """Separate two halves, while `name` reaches both."""
        self.cut_between([n for n in left if n != name], [n for n in right if n != name])

    def stall(self, source: str, target: str) -> None:
        """Hold everything on this link until `heal`; unlike in a cut, nothing is lost."""
        self.link(source, target).set(stalled=True)

    def slow(self, source: str, target: str, latency_ms: tuple[float, float]) -> None:
        """Set the latency of a link: (minimum, mean of the addition)."""
        link = self.link(source, target)
        link.latency_min_ms, link.latency_mean_ms = latency_ms

    def heal(self) -> None:
        """Undo all cuts and stalls, and nothing else."""
        for link in list(self._links.values()):
            link.set(cut=False, stalled=False)
