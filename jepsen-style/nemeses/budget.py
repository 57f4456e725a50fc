"""How much may be broken so that what is lost afterwards is a bug (RE-10, RE-11, KIP-966).

A kill keeps what was written, a power cut forgets what was not synced, and data logs are not synced: replication is
what makes records durable. min.insync.replicas = m keeps acknowledged records through m - 1 losses at a time, for so
many members of ISR and ELR have each of them. To the controller every broker that did not stop in good order may have
lost something. So, in every partition: one broker at most has lost something and is not yet in sync again, only where
m is 2 or more, and another member lives on, and may not end before the first is back in sync. Controllers sync what
they promise: they may be killed and lose power as one likes, but not their disks. All else costs availability only.

Knows what was observed, and no cluster: `observe` is told, `may_end` answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from worlds.cluster import Membership, NodeState


@dataclass(slots=True)
class Budget:
    """Of one cluster."""

    brokers: Sequence[str]
    min_insync_replicas: int = 2
    _lossy: dict[str, None] = field(default_factory=dict)
    """Brokers that lost something and are not in sync again."""
    _unsettled: dict[str, None] = field(default_factory=dict)
    """Brokers that ended; until each is seen in sync again it may yet be taken out of the ISRs."""
    _seen: Sequence[Membership] = ()
    _states: Mapping[str, NodeState] = field(default_factory=dict)

    @property
    def lossy(self) -> list[str]:
        return list(self._lossy)

    def ended(self, names: Iterable[str], *, losing: bool) -> None:
        """These nodes are about to end, or may at any moment from now on."""
        for name in names:
            if name in self.brokers:
                self._unsettled[name] = None
                if losing:
                    self._lossy[name] = None

    def observe(
        self, states: Mapping[str, NodeState], memberships: Sequence[Membership], held: Iterable[str] = ()
    ) -> None:
        """What nodes say now. A broker says something only after it has registered; if it then sees itself in sync
        everywhere, it has all that was acknowledged. Those that a fault holds are not over it yet."""
        self._states, self._seen = states, memberships
        for broker in [each for each in self._unsettled if each not in held]:
            own = [each for each in memberships if each.node == broker]
            if states.get(broker) == "running" and own and all(broker in each.isr for each in own):
                del self._unsettled[broker]
                self._lossy.pop(broker, None)

    def may_end(self, names: Iterable[str], *, losing: bool, held: Iterable[str] = ()) -> bool:
        """Whether all of these may end together now, and, if `losing`, lose what they have not synced; `held` are nodes
        that other faults may end at any moment."""
        ending = [name for name in names if name in self.brokers]
        if not ending:
            return True
        unsure = {*ending, *held}
        others_lost = [name for name in self._lossy if name not in ending]
        if losing and (self.min_insync_replicas < 2 or len(ending) > 1 or others_lost):
            return False
        if not losing and not others_lost:
            return True
        # In the eyes of everybody who knows the partition: one who was cut off knows old news.
        return all(
            any(self._lives_on(member) and member not in unsure for member in (*each.isr, *each.elr))
            for each in self._seen
            if any(name in each.replicas for name in ending)
        )

    def _lives_on(self, broker: str) -> bool:
        return self._states.get(broker) == "running" and broker not in self._unsettled and broker not in self._lossy
