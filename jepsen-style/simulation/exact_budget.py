"""The loss budget of a simulated cluster, which is known from inside: see `loss_budget`.

A lossy broker counts only in its own partitions, and only until it has registered again. By then the controller must
have removed it from the ISR and ELR of every partition whose records it lacks, and the invariants check that it did.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.cluster.simulated import SimulatedCluster
from barnabas.kraft.metadata.image import PartitionImage
from loss_budget import Membership, NodeState, loss_is_covered, one_whole_member_lives_on
from simulation.invariants.places import PartitionKey
from simulation.watch import Watch


@dataclass(slots=True)
class ExactBudget:
    """The `LossBudget` of one simulated cluster."""

    cluster: SimulatedCluster
    watch: Watch
    _armed: dict[str, None] = field(default_factory=dict)
    """Nodes whose power an armed fault may cut at any moment. They count as lossy until that fault is over."""

    def observe(
        self, states: Mapping[str, NodeState], memberships: Sequence[Membership], held: Iterable[str] = ()
    ) -> None:
        held = list(held)
        self._armed = {name: None for name in self._armed if name in held}

    def ended(self, names: Iterable[str], *, losing: bool) -> None:
        if losing:
            self._armed.update(dict.fromkeys(names))

    def may_end(self, names: Iterable[str], *, losing: bool, held: Iterable[str] = ()) -> bool:
        nodes = [self.cluster.nodes[name].node for name in names]
        ending = [node.id for node in nodes if node.is_broker]
        if not ending:
            return True
        held = {*held}
        lossy = {*self.watch.partitions.lossy, *(self.cluster.nodes[name].node.id for name in self._armed)}

        def lives_on(broker_id: int) -> bool:
            return self._lives_on(broker_id, held)

        for min_insync_replicas, partition in self._partitions():
            here = [each for each in ending if each in partition.replicas]
            members = (*partition.isr, *partition.elr)
            lossy_members = [each for each in (*members, *partition.last_known_elr) if each in lossy]
            if not here:
                continue
            if losing and not loss_is_covered(here, lossy_members, min_insync_replicas):
                return False
            # Brokers that are killed lose nothing, but the controller cannot know that: the last one that it does not
            # take for lossy may be one that is.
            if (losing or lossy_members) and not one_whole_member_lives_on(members, here, lossy, lives_on):
                return False
        return True

    def _lives_on(self, broker_id: int, held: Collection[str]) -> bool:
        """It runs, no fault is about to end it, and it has registered in its present life: the controller takes a
        broker that was killed and has not registered since for one that lost something."""
        node = self.cluster.node_of(broker_id)
        registered = self.watch.quorum.image.cluster.brokers.get(broker_id)
        return (
            node.broker is not None
            and node.node.name not in held
            and registered is not None
            and registered.epoch == node.broker.lifecycle.broker_epoch
        )

    def _partitions(self) -> Iterator[tuple[int, PartitionImage]]:
        """(min.insync.replicas, members) of each partition."""
        for name, topic in self.watch.quorum.image.topics.by_name.items():
            min_insync_replicas = self.watch.min_isr(PartitionKey(name, 0))
            for partition in topic.partitions.values():
                yield min(min_insync_replicas, len(partition.replicas)), partition
