"""Leaders, coordinators and partitions of the simulated cluster, as its nodes know them now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.broker.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.broker.replication.replica import Leading
from barnabas.cluster.simulated import SimulatedCluster, SimulatedNode
from loss_budget import Membership, NodeState
from operations import Place
from simulation.watch import Watch
from worlds.cluster import ReplicaView

COORDINATORS = {"group": GROUP_TOPIC, "transaction": TRANSACTION_TOPIC, "share": SHARE_TOPIC}


class Sights:
    """Reads the state of nodes, and changes nothing."""

    def __init__(self, cluster: SimulatedCluster, watch: Watch, state_of: Callable[[SimulatedNode], NodeState]) -> None:
        self._cluster = cluster
        self._watch = watch
        self._state_of = state_of

    def leader(self, topic: str, index: int) -> str | None:
        """Name of the broker that leads the partition."""
        image = self._watch.quorum.image.topics.partition(topic, index)
        return None if image is None or image.leader < 0 else self._cluster.node_of(image.leader).node.name

    def active_controller(self) -> str | None:
        """Name of the leader of the newest epoch, if it is up."""
        leaders = self._watch.quorum.leaders
        if not leaders:
            return None
        node = self._cluster.node_of(leaders[max(leaders)])
        return node.node.name if node.is_up else None

    def coordinator(self, kind: Literal["group", "transaction", "share"], id_: str) -> str | None:
        """Name of the broker that coordinates this id."""
        topic = COORDINATORS[kind]
        image = self._watch.quorum.image.topics.by_name.get(topic)
        return None if image is None else self.leader(topic, partition_for(id_, len(image.partitions)))

    def views(self) -> list[ReplicaView]:
        """The partitions of topics of clients, by each broker that runs."""
        views = []
        for node in self._cluster.brokers:
            name = node.node.name
            if node.broker is None or self._state_of(node) != "running":
                continue
            for partition in sorted(node.broker.partitions, key=lambda each: (each.topic, each.index)):
                if partition.topic.startswith("__"):
                    continue
                replica = partition.replica
                image = node.broker.metadata.partition(partition.topic, partition.index)
                known = () if image is None else image.isr
                isr = tuple(sorted(replica.isr)) if isinstance(replica.role, Leading) else tuple(known)
                place = Place(partition.topic, partition.index)
                ends = replica.high_watermark, replica.log_end_offset
                views.append(ReplicaView(name, place, *ends, replica.leader_epoch, replica.leader_id, isr))
        return views

    def memberships(self) -> list[Membership]:
        """The replicas, ISR and ELR of all partitions, by each broker that runs."""
        found = []
        for node in self._cluster.brokers:
            if node.broker is None or self._state_of(node) != "running":
                continue
            for partition in sorted(node.broker.partitions, key=lambda each: (each.topic, each.index)):
                image = node.broker.metadata.partition(partition.topic, partition.index)
                if image is not None:
                    place = Place(partition.topic, partition.index)
                    members = (self._names(image.replicas), self._names(image.isr), self._names(image.elr))
                    found.append(Membership(node.node.name, place, *members))
        return found

    def _names(self, node_ids: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._cluster.node_of(node_id).node.name for node_id in node_ids)
