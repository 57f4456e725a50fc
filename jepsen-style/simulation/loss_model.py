"""What a nemesis may do to records, and still nothing that was acknowledged is lost.

The model (RE-10, RE-11, KIP-966): min.insync.replicas = m keeps acknowledged records through m - 1 losses at a
time, for so many members of ISR and ELR have each of them. To the controller a broker that did not stop in good
order may have lost something, whether it did or not. So, in every partition: one broker at most may lose its
power or disk until it has registered anew, only where m is 2 or more, and while another member lives on; and as
long as it counts as a member, the last other one that lives may not be killed. Everything else may happen at any
time; it costs availability only.

A power cut may also damage what was being written, down to single bits, but not those of a batch's leader epoch. They
lie outside of its CRC, for leaders write them into what clients have made. Nor is there anything else to hold them to:
`leader-epoch-checkpoint` is written at the next flush, so what lies behind that has epochs that it does not know, and
metadata bound them from above only. What a disk damages by whole sectors it never damages there alone: in each sector
with a part of them lies the offset and length before them, or what the CRC covers, behind them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from barnabas.cluster.simulated import SimulatedCluster, SimulatedNode
from kraft.metadata.image import PartitionImage
from protocol.records.batch import CorruptBatch, iterate_batches
from simulation.swarm import Plan
from simulation.watch import Watch
from storage.names import LOG_SUFFIX

_EPOCH_BYTES = range(12, 16)
"""Of a batch."""


def leader_epochs(name: str, content: bytearray) -> frozenset[int]:
    """Where the leader epochs of all batches lie in a segment's file; nowhere in any other file."""
    if not name.endswith(LOG_SUFFIX):
        return frozenset()
    positions: list[int] = []
    try:
        for position, _ in iterate_batches(content):
            positions += [position + at for at in _EPOCH_BYTES]
    except CorruptBatch:
        pass  # what was damaged before: recovery will cut it
    return frozenset(positions)


@dataclass(frozen=True, slots=True)
class LossModel:
    """Of one cluster."""

    cluster: SimulatedCluster
    watch: Watch
    plan: Plan
    busy: Container[str]
    """Nodes that a fault is holding."""

    def may_die(self, node: SimulatedNode, *, losing: bool = False) -> bool:
        """Whether the model allows this node to die now, and to lose what it has not synced (or everything)."""
        if not node.node.is_broker:
            return True
        lossy = self.watch.partitions.lossy
        for min_isr, partition in self._partitions():
            if node.node.id not in partition.replicas:
                continue
            members = (*partition.isr, *partition.elr)
            others_lost = any(
                member in lossy and member != node.node.id for member in (*members, *partition.last_known_elr)
            )
            if losing and (min_isr < 2 or others_lost):
                return False
            if (losing or others_lost) and not any(
                member != node.node.id and member not in lossy and self._lives_on(member) for member in members
            ):
                return False
        return True

    def _lives_on(self, broker_id: int) -> bool:
        """It runs, no fault is about to end it, and the metadata knows it as it is: one that was killed and has not
        registered since is going to be taken for one that lost something."""
        node = self.cluster.node_of(broker_id)
        registered = self.watch.quorum.image.cluster.brokers.get(broker_id)
        return (
            node.broker is not None
            and node.node.name not in self.busy
            and registered is not None
            and registered.epoch == node.broker.lifecycle.broker_epoch
        )

    def _partitions(self) -> Iterator[tuple[int, PartitionImage]]:
        """(min.insync.replicas, state) of each partition."""
        configs = {plan.name: plan.configs for plan in self.plan.topics}
        for name, topic in self.watch.quorum.image.topics.by_name.items():
            # Internal topics have what the brokers say.
            of_topic = configs.get(name, self.plan.settings)
            for partition in topic.partitions.values():
                yield min(int(of_topic["min.insync.replicas"]), len(partition.replicas)), partition
