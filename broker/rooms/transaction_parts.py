"""The parts of a broker that only transactions need: their coordinator, markers, and questions to coordinators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.markers import MarkerPorts, write_markers
from barnabas.broker.apis.transactions import AddPartitionsPorts, TransactionShards, add_partitions_here
from barnabas.broker.coordination_ports import CoordinationPorts
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.transactions.coordinator import TransactionCoordinatorPorts, marker_writer, transaction_kind
from barnabas.broker.transactions.verification import TransactionVerifier

if TYPE_CHECKING:
    from barnabas.broker.coordinator.shard import Shard
    from barnabas.broker.groups.machine import GroupMachine


class Transactions:
    """Made with the first transaction."""

    def __init__(
        self,
        ports: CoordinationPorts,
        producer_ids: ProducerIds,
        group_shard: Callable[[int], Shard[GroupMachine]],
        shards: TransactionShards,
    ) -> None:
        world, settings = ports.world, ports.settings
        own = TransactionCoordinatorPorts(
            world,
            ports.background,
            ports.wheel,
            ports.metadata,
            settings,
            producer_ids,
            ports.broker_epoch,
            ports.channels,
        )
        self.marker_ports = MarkerPorts(
            ports.partitions, group_shard, ports.wheel, world.monotonic, world.wall_clock, settings
        )
        self.markers = marker_writer(own, ports.nursery, partial(write_markers, self.marker_ports))
        self.kind = transaction_kind(own, self.markers)
        self.add_partitions = AddPartitionsPorts(shards, ports.metadata)
        self.verifier = TransactionVerifier(
            world, ports.nursery, ports.channels, settings, partial(add_partitions_here, self.add_partitions)
        )
