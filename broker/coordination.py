"""The coordinators of one broker: groups, transactions, share partitions, and the parts that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.auto_topics import AutoTopics
from barnabas.broker.coordination_ports import CoordinationPorts
from barnabas.broker.coordinator.coordinator import CoordinatedKind, CoordinatedTopic, Coordinator
from barnabas.broker.groups.group_memory import GroupMemory
from barnabas.broker.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.replication.partition import Partition
from barnabas.broker.traffic import GroupEvents, ShareStateWrites
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.runtime.late import Late
from barnabas.runtime.rooms import Rooms

if TYPE_CHECKING:
    from barnabas.broker.groups.machine import GroupMachine
    from barnabas.broker.rooms.transaction_parts import Transactions
    from barnabas.broker.shares.state import ShareStateStore
    from barnabas.broker.shares.state_client import ShareStateClient
    from barnabas.broker.shares.state_machine import ShareStateMachine
    from barnabas.broker.transactions.machine import TransactionMachine
    from barnabas.broker.transactions.verification import TransactionVerifier


class Coordination:
    """Its late parts are loaded with the first request of their kind (`runtime/rooms.py`)."""

    def __init__(self, ports: CoordinationPorts, rooms: Rooms) -> None:
        self.ports = ports
        world, settings = ports.world, ports.settings
        self.producer_ids = ProducerIds(ports.controller, settings().node_id)
        self.auto_topics = AutoTopics(ports.controller, ports.background, world.monotonic, settings)
        self.group_events = GroupEvents()
        self.group_memory = GroupMemory(ports.most_group_bytes)
        self.share_writes = ShareStateWrites(world.stopwatch)
        self.late_share_states: Late[ShareStateClient] = rooms.part(
            "barnabas.broker.rooms.shares:share_state_client", self
        )
        self.groups: Coordinator[GroupMachine] = self._coordinator(
            CoordinatedTopic(
                GROUP_TOPIC,
                commit_timeout_ms=lambda: settings().offsets_commit_timeout_ms,
                compression=lambda: settings().offsets_topic_compression_codec,
            ),
            rooms.part("barnabas.broker.rooms.groups:group_kind_of", self),
        )
        self.transactions: Coordinator[TransactionMachine] = self._coordinator(
            CoordinatedTopic(TRANSACTION_TOPIC, commit_timeout_ms=lambda: settings().request_timeout_ms),
            rooms.part("barnabas.broker.rooms.transactions:transaction_kind_of", self),
        )
        self.late_transactions: Late[Transactions] = rooms.part(
            "barnabas.broker.rooms.transaction_parts:Transactions",
            ports,
            self.producer_ids,
            self.groups.shard_at,
            self.transactions,
        )
        self.shares: Coordinator[ShareStateMachine] = self._coordinator(
            CoordinatedTopic(
                SHARE_TOPIC,
                commit_timeout_ms=lambda: settings().share_coordinator_write_timeout_ms,
                compression=lambda: settings().share_coordinator_state_topic_compression_codec,
            ),
            rooms.part("barnabas.broker.shares.state_coordinator:share_state_kind", ports.metadata, settings),
        )
        self._by_topic: dict[str, Coordinator[Any]] = {
            GROUP_TOPIC: self.groups,
            TRANSACTION_TOPIC: self.transactions,
            SHARE_TOPIC: self.shares,
        }
        self.all: list[Coordinator[Any]] = list(self._by_topic.values())
        """All that follow which partitions this broker leads."""

    def _coordinator(self, topic: CoordinatedTopic, kind: Late[CoordinatedKind[Any]]) -> Coordinator[Any]:
        ports = self.ports
        return Coordinator(
            topic, ports.world, ports.background, ports.wheel, self.image, kind, decisions=ports.decisions
        )

    def image(self) -> MetadataImage:
        return self.ports.metadata.image

    @property
    def share_states(self) -> ShareStateStore:
        return self.late_share_states.get()

    @property
    def verifier(self) -> TransactionVerifier:
        return self.late_transactions.get().verifier

    def may_have_lost(self, topic: str, index: int) -> bool:
        """Another broker may lead this partition of a coordinator's topic by now."""
        return self._by_topic[topic].may_have_lost(index)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        for coordinator in self.all:
            coordinator.metadata_changed(delta)
        if delta.changed_brokers:
            if (transactions := self.late_transactions.here) is not None:
                transactions.markers.metadata_changed(delta)
                transactions.verifier.metadata_changed(delta)
            if (share_states := self.late_share_states.here) is not None:
                share_states.metadata_changed(delta)

    def leadership_changed(self, partition: Partition) -> None:
        for coordinator in self.all:
            coordinator.leadership_changed(partition)

    def stop(self) -> None:
        for coordinator in self.all:
            coordinator.stop()
