"""The loss budget of a simulated cluster, which is known from inside: see `loss_budget`.

A lossy broker counts only in its own partitions, and only until it has registered again. By then the controller must
have removed it from the ISR and ELR of every partition whose records it lacks, and the invariants check that it did.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from barnabas.cluster.simulated import SimulatedCluster, SimulatedNode
from kraft.metadata.image import PartitionImage
from loss_budget import loss_is_covered, one_whole_member_lives_on
from simulation.swarm import Plan
from simulation.watch import Watch


@dataclass(frozen=True, slots=True)
class ExactBudget:
    """The budget of one simulated cluster."""

    cluster: SimulatedCluster
    watch: Watch
    plan: Plan
    busy: Container[str]
    """Nodes that a fault still acts on."""

    def may_die(self, node: SimulatedNode, *, losing: bool = False) -> bool:
        """Whether this node may end now and, if `losing`, lose what it has not synced."""
        if not node.node.is_broker:
            return True
        lossy, ending = self.watch.partitions.lossy, (node.node.id,)
        for min_insync_replicas, partition in self._partitions():
            if node.node.id not in partition.replicas:
                continue
            members = (*partition.isr, *partition.elr)
            lossy_members = [each for each in (*members, *partition.last_known_elr) if each in lossy]
            if losing and not loss_is_covered(ending, lossy_members, min_insync_replicas):
                return False
            others_are_lossy = any(each not in ending for each in lossy_members)
            if (losing or others_are_lossy) and not one_whole_member_lives_on(members, ending, lossy, self._lives_on):
                return False
        return True

    def _lives_on(self, broker_id: int) -> bool:
        """It runs, no fault is about to end it, and it has registered in its present life: the controller takes a
        broker that was killed and has not registered since for one that lost something."""
        node = self.cluster.node_of(broker_id)
        registered = self.watch.quorum.image.cluster.brokers.get(broker_id)
        return (
            node.broker is not None
            and node.node.name not in self.busy
            and registered is not None
            and registered.epoch == node.broker.lifecycle.broker_epoch
        )

    def _partitions(self) -> Iterator[tuple[int, PartitionImage]]:
        """(min.insync.replicas, members) of each partition."""
        configs = {plan.name: plan.configs for plan in self.plan.topics}
        for name, topic in self.watch.quorum.image.topics.by_name.items():
            # Internal topics have the setting of the brokers.
            of_topic = configs.get(name, self.plan.settings)
            for partition in topic.partitions.values():
                yield min(int(of_topic["min.insync.replicas"]), len(partition.replicas)), partition
