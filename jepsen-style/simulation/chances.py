"""Judges whether a partition took records although it had all that it needs at the same time.

Some fault is on at almost any time, and in a small cluster the faults may leave no moment in which any system could
have taken records. A cluster is only to blame if it could.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.cluster.simulated import SimulatedCluster
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.runtime.simulated import Universe
from barnabas.runtime.simulated.store import DEFAULT_CAPACITY_BYTES
from simulation.findings import Findings
from simulation.invariants.places import PartitionKey

NEVER = float("inf")
SETTLED_SECONDS = 20.0
"""Maximum time until a partition works again once it has all that it needs."""
ANSWER_SECONDS = 10.0
"""Maximum time for a record then."""


@dataclass(slots=True)
class Standing:
    """Since when each host and link has been well, known from periodic looks."""

    _known: dict[Hashable, tuple[Hashable, float]] = field(default_factory=dict)

    def look(self, thing: Hashable, mark: Hashable | None, now: float) -> None:
        """`mark` is another one if the thing was not well for a moment since the last look; None: it is not now."""
        if mark is None:
            self._known.pop(thing, None)
        elif thing not in self._known or self._known[thing][0] != mark:
            self._known[thing] = (mark, now)

    def since(self, things: Iterable[Hashable]) -> float:
        """Since when all of them have been well; `NEVER` if one is not."""
        return max((self._known[thing][1] if thing in self._known else NEVER for thing in things), default=0.0)


def chance_since(
    standing: Standing,
    replicas: Sequence[str],
    producers: Sequence[str],
    controllers: Sequence[str],
    active: tuple[str, Hashable] | None,
) -> float:
    """Since when a partition has had all that it needs: all its replicas, all who write, and either all controllers, or
    the active one, for as long as it has been active, with a majority that reaches it. All of them have to reach each
    other.
    """
    quorums = [(list(controllers), 0.0)]
    if active is not None:
        leader, term = active
        others = sorted(standing.since(_together([leader, each])) for each in controllers if each != leader)
        majority = len(controllers) // 2
        reached = max([0.0, *others[:majority]])
        quorums.append(([leader], max(reached, standing.since([term]))))
    return min(
        max(at_least, standing.since(_together([*replicas, *producers, *members]))) for members, at_least in quorums
    )


def _together(hosts: Sequence[str]) -> Iterator[Hashable]:
    """Hosts, and every link between them."""
    yield from hosts
    yield from ((one, other) for one in hosts for other in hosts if one != other)


@dataclass(slots=True)
class _Asked:
    """Records sent to one partition since something changed."""

    since: float
    """Time from which on it had all that it needs."""
    acked: int
    sent: int
    at: float = NEVER
    """Time of the first record that should have been acked."""


@dataclass(slots=True)
class Chances:
    """Checks in one run that each partition takes records when it can."""

    universe: Universe
    cluster: SimulatedCluster
    findings: Findings
    blocking_ms: tuple[float, float]
    """(least, mean on top) of a disk that is not slow."""
    producers: Sequence[str]
    image: Callable[[], MetadataImage]
    leaders: Callable[[], Mapping[int, int]]
    """Epoch of the quorum to its leader."""
    _standing: Standing = field(default_factory=Standing)
    _asked: dict[PartitionKey, _Asked] = field(default_factory=dict)

    def look(self, counts: Mapping[PartitionKey, tuple[int, int]]) -> None:
        """To be called every now and then, with how many records were acked and sent in each partition so far."""
        now = self.universe.time.now
        self._look_at_all(now)
        active = self._active()
        controllers = [node.node.name for node in self.cluster.controllers]
        for key, (acked, sent) in counts.items():
            partition = self.image().topics.partition(*key)
            if partition is None:
                continue
            replicas = [self.cluster.node_of(replica).node.name for replica in partition.replicas]
            since = chance_since(self._standing, replicas, self.producers, controllers, active)
            self.judge(key, since, acked, sent, now)

    def judge(self, key: PartitionKey, since: float, acked: int, sent: int, now: float) -> None:
        """The partition has had all that it needs `since` then."""
        asked = self._asked.get(key)
        if asked is None or asked.since != since or asked.acked != acked or now - since < SETTLED_SECONDS:
            self._asked[key] = _Asked(since, acked, sent)
            return
        # Those of clients that crashed are no longer counted.
        asked.sent = min(asked.sent, sent)
        asked.at = min(asked.at, now) if sent > asked.sent else NEVER
        self.findings.check(
            now - asked.at <= ANSWER_SECONDS,
            lambda: (
                f"{key} has had all that it needs for {now - since:.1f} s, and no record was acked that was sent to it"
                f" in the last {now - asked.at:.1f} s"
            ),
        )

    def _look_at_all(self, now: float) -> None:
        hosts = [*self.cluster.nodes, *self.producers]
        for name in hosts:
            self._standing.look(name, self._mark_of_host(name), now)
        for one in hosts:
            for other in hosts:
                if one != other:
                    self._standing.look((one, other), self._mark_of_link(one, other), now)
        active = self._active()
        if active is not None:
            self._standing.look(active[1], active[1], now)

    def _mark_of_host(self, name: str) -> int | None:
        host, node = self.universe.host(name), self.cluster.nodes.get(name)
        if name in self.universe.fabric.unresolved:
            return None
        if node is not None and (
            not node.running
            or node.stop.is_set()
            or host.blocking_ms != self.blocking_ms
            or host.store.faults
            or host.store.capacity_bytes != DEFAULT_CAPACITY_BYTES
        ):
            return None
        return host.lives

    def _mark_of_link(self, source: str, target: str) -> int | None:
        wires = self.universe.wires
        link = wires.link(source, target)
        is_slow = (link.latency_min_ms, link.latency_mean_ms) != wires.latency_ms
        return None if is_slow or link.bad is not None or not link.open else link.changes

    def _active(self) -> tuple[str, Hashable] | None:
        leaders = self.leaders()
        if not leaders:
            return None
        epoch = max(leaders)
        return self.cluster.node_of(leaders[epoch]).node.name, ("active controller", epoch)
