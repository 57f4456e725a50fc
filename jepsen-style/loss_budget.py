"""Core: the losses that a cluster may suffer, and the faults that must keep every acknowledged record.

Nodes do not sync the records of data partitions, just as Kafka's brokers do not: replication makes a record durable.
A kill keeps what was written; a power cut takes what was not synced; a wiped or damaged disk takes more. So the model
(KIP-966) is:

1.  A record that a partition acknowledged is on every member of its ISR and ELR (eligible leader replicas). It survives
    as long as one of these members has lost nothing.
2.  A broker that lost something is *lossy* until it has caught up: it may be short of anything acknowledged before.
    The controller treats every broker that did not stop cleanly as if it had lost something.
3.  With min.insync.replicas = m the ISR and ELR have at least m members, so m - 1 of them may be lossy at a time. Here
    one broker at a time may be, and only where m is 2 or more.
4.  While a broker is lossy, the last other member that runs must not be killed either: the partition would have nobody
    left who has everything and may lead.
5.  Controllers sync what they promise. They may be killed and lose power at any time, but not lose their disks.

Every other fault costs availability only. The nemesis asks `loss_is_covered` and `one_whole_member_lives_on` before a
fault, and checkers ask `records_may_be_gone` afterwards: a lost record is a bug unless every member that was in sync
had lost something before any of them had caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeVar

from operations import Place

Broker = TypeVar("Broker", int, str)
NodeState = Literal["running", "paused", "dead"]


class Membership(NamedTuple):
    """The members of a partition, as one broker knows them."""

    node: str
    """The broker that was asked."""
    place: Place
    replicas: tuple[str, ...]
    isr: tuple[str, ...]
    elr: tuple[str, ...]


def loss_is_covered(ending: Collection[Broker], lossy: Iterable[Broker], min_insync_replicas: int) -> bool:
    """Rule 3: whether these brokers may end together and lose something while the others in `lossy` have not caught
    up."""
    return min_insync_replicas >= 2 and len(ending) <= 1 and all(each in ending for each in lossy)


def one_whole_member_lives_on(
    members: Iterable[Broker], ending: Collection[Broker], lossy: Collection[Broker], lives_on: Callable[[Broker], bool]
) -> bool:
    """Rule 4: whether a member of the ISR or ELR remains that has lost nothing and keeps running."""
    return any(each not in ending and each not in lossy and lives_on(each) for each in members)


def records_may_be_gone(in_sync: Collection[Broker], lossy: Collection[Broker]) -> bool:
    """Rule 1, afterwards: every member that was in sync has lost something."""
    return bool(in_sync) and all(each in lossy for each in in_sync)


class LossBudget(Protocol):
    """Decides which nodes a fault may end. A world whose inside is known brings a budget of its own."""

    def observe(
        self, states: Mapping[str, NodeState], memberships: Sequence[Membership], held: Iterable[str] = ()
    ) -> None:
        """Takes in the present state of the cluster; `held` are the nodes that a fault still acts on."""

    def may_end(self, names: Iterable[str], *, losing: bool, held: Iterable[str] = ()) -> bool:
        """Whether all of these nodes may end together now and, if `losing`, lose what they have not synced. `held` are
        nodes that other faults may end at any moment."""

    def ended(self, names: Iterable[str], *, losing: bool) -> None:
        """These nodes are about to end, or may end at any moment from now on."""


@dataclass(slots=True)
class ObservedBudget:
    """A budget that knows only what brokers report. Views may be old, so it errs on the side of keeping records: it
    counts a broker as lossy until that broker reports itself in sync everywhere, and a lossy broker counts in every
    partition."""

    brokers: Sequence[str]
    min_insync_replicas: int = 2
    _lossy: dict[str, None] = field(default_factory=dict)
    _unsettled: dict[str, None] = field(default_factory=dict)
    """Brokers that ended. Until a broker reports itself in sync, the controller may still remove it from ISRs."""
    _seen: Sequence[Membership] = ()
    _states: Mapping[str, NodeState] = field(default_factory=dict)

    @property
    def lossy(self) -> list[str]:
        return list(self._lossy)

    def ended(self, names: Iterable[str], *, losing: bool) -> None:
        for name in names:
            if name in self.brokers:
                self._unsettled[name] = None
                if losing:
                    self._lossy[name] = None

    def observe(
        self, states: Mapping[str, NodeState], memberships: Sequence[Membership], held: Iterable[str] = ()
    ) -> None:
        # A broker answers only after it has registered, so what it reports is of its present life.
        self._states, self._seen = states, memberships
        for broker in [each for each in self._unsettled if each not in held]:
            own = [each for each in memberships if each.node == broker]
            if states.get(broker) == "running" and own and all(broker in each.isr for each in own):
                del self._unsettled[broker]
                self._lossy.pop(broker, None)

    def may_end(self, names: Iterable[str], *, losing: bool, held: Iterable[str] = ()) -> bool:
        ending = [name for name in names if name in self.brokers]
        if not ending:
            return True
        if losing and not loss_is_covered(ending, self._lossy, self.min_insync_replicas):
            return False
        if not losing and not self._lossy:
            return True
        going = [*ending, *held]
        # By every view of the partition, because a broker that is cut off reports an old one.
        return all(
            one_whole_member_lives_on((*each.isr, *each.elr), going, self._lossy, self._lives_on)
            for each in self._seen
            if any(name in each.replicas for name in ending)
        )

    def _lives_on(self, broker: str) -> bool:
        return self._states.get(broker) == "running" and broker not in self._unsettled
