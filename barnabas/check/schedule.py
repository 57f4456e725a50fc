"""Core: which faults come when, by a seed.

Faults follow each other with pauses between them. The first round has each possible kind once, so that a short run
meets many; a kill comes first and, because most mistakes show at a kill, often again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from barnabas.runtime.world import Chance


class Fault(StrEnum):
    """A kind of fault, by its name on the command line."""

    KILL = "kill"
    """SIGKILL of an instance; it is started again."""
    RESTART = "restart"
    """SIGTERM of an instance; it is started again when it has ended."""
    PAUSE = "pause"
    """SIGSTOP of an instance until the group has given its partitions away, and a little longer."""
    SCALE = "scale"
    """One more instance joins for some seconds."""
    EXPIRE = "expire"
    """The sessions of all members end."""
    CUT = "cut"
    """Nothing passes between an instance and the cluster, and neither notices."""
    CUT_LEADER = "cut-leader"
    """Nothing passes between the instances and the broker that leads a partition of the input or output."""
    DROP_ANSWERS = "drop-answers"
    """Requests take effect, and connections are reset instead of the answers."""
    REFUSE = "refuse"
    """Some Produce requests are refused with NOT_ENOUGH_REPLICAS."""
    KILL_LEADER = "kill-leader"
    """SIGKILL of the broker that leads a partition of the input or output."""
    PAUSE_LEADER = "pause-leader"
    KILL_COORDINATOR = "kill-coordinator"
    """SIGKILL of the broker that coordinates the group."""


BROKERS = frozenset({Fault.KILL_LEADER, Fault.PAUSE_LEADER, Fault.KILL_COORDINATOR})
"""Need a cluster of ours."""


class Moment(StrEnum):
    """The moment at which an instance is killed."""

    NOW = "now"
    COMMITTED = "just when offsets are committed"
    PRODUCED = "just when outputs are acknowledged"


_MOMENTS = (Moment.COMMITTED, Moment.PRODUCED, Moment.COMMITTED, Moment.NOW)
"""Kills have these moments in turn."""
_WEIGHTS = {Fault.KILL: 5, Fault.RESTART: 2, Fault.PAUSE: 2, Fault.SCALE: 2, Fault.EXPIRE: 2}
_LENGTHS = {
    Fault.KILL: (0.0, 1.0),
    Fault.RESTART: (0.0, 0.5),
    Fault.PAUSE: (1.0, 3.0),
    Fault.SCALE: (4.0, 8.0),
    Fault.EXPIRE: (0.0, 0.0),
    Fault.CUT: (3.0, 9.0),
    Fault.CUT_LEADER: (2.0, 8.0),
    Fault.DROP_ANSWERS: (1.5, 3.0),
    Fault.REFUSE: (1.5, 3.0),
    Fault.KILL_LEADER: (1.0, 3.0),
    Fault.PAUSE_LEADER: (3.0, 10.0),
    Fault.KILL_COORDINATOR: (1.0, 3.0),
}
_PAUSE_S = (1.0, 4.0)
FIRST_PAUSE_S = 3.0


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault."""

    number: int
    fault: Fault
    after_s: float
    """Seconds since the repair of the fault before."""
    length_s: float
    """Seconds until it is repaired, at least."""
    choice: float
    """Chooses among what can be struck: 0 to 1."""
    moment: Moment = Moment.NOW
    """For a kill."""

    def choose(self, count: int) -> int:
        """One of `count` things, by its place."""
        return min(int(self.choice * count), count - 1)


def schedule(chance: Chance, possible: Collection[Fault]) -> Iterator[Planned]:
    """Faults without end; none if `possible` is empty."""
    kinds = [fault for fault in Fault if fault in possible]
    kills = 0
    for number, fault in enumerate(_order(chance, kinds)):
        after = FIRST_PAUSE_S if number == 0 else _between(chance, _PAUSE_S)
        moment = _MOMENTS[kills % len(_MOMENTS)] if fault is Fault.KILL else Moment.NOW
        kills += fault is Fault.KILL
        yield Planned(number, fault, after, _between(chance, _LENGTHS[fault]), chance.random(), moment)


def _order(chance: Chance, kinds: list[Fault]) -> Iterator[Fault]:
    if not kinds:
        return
    rest = [fault for fault in kinds if fault is not Fault.KILL]
    rest.sort(key=lambda _fault: chance.random())
    if Fault.KILL in kinds:
        yield Fault.KILL
    for each in rest:
        yield each
        if Fault.KILL in kinds and chance.random() < 0.3:
            yield Fault.KILL
    weights = [_WEIGHTS.get(fault, 1) for fault in kinds]
    while True:
        at = chance.random() * sum(weights)
        for fault, weight in zip(kinds, weights, strict=True):
            at -= weight
            if at < 0:
                yield fault
                break


def _between(chance: Chance, ends: tuple[float, float]) -> float:
    return ends[0] + chance.random() * (ends[1] - ends[0])
