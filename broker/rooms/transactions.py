"""Transactions: their coordinator, their markers, and what leaders of partitions ask coordinators."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.group_offsets import GroupOffsetPorts, TransactionalOffsetPorts, txn_offset_commit
from barnabas.broker.apis.markers import MarkerPorts, write_markers, write_txn_markers
from barnabas.broker.apis.transactional_producer_ids import TransactionalProducerPorts, init_transactional_producer
from barnabas.broker.apis.transactions import (
    AddOffsetsPorts,
    AddPartitionsPorts,
    add_offsets_to_txn,
    add_partitions_here,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)
from barnabas.broker.transactions.coordinator import TransactionCoordinatorPorts, marker_writer, transaction_kind
from barnabas.broker.transactions.verification import TransactionVerifier
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.rooms import Handlers

if TYPE_CHECKING:
    from barnabas.broker.coordination import Coordination
    from barnabas.broker.coordinator.coordinator import CoordinatedKind
    from barnabas.broker.parts import BrokerParts
    from barnabas.broker.transactions.machine import TransactionMachine


class Transactions:
    """The parts of a broker that only transactions need."""

    def __init__(self, coordination: Coordination) -> None:
        ports = coordination.ports
        world = ports.world
        own = TransactionCoordinatorPorts(
            world,
            ports.background,
            ports.wheel,
            ports.metadata,
            ports.settings,
            coordination.producer_ids,
            ports.broker_epoch,
            ports.channels,
        )
        self.marker_ports = MarkerPorts(
            ports.partitions,
            coordination.groups.shard_at,
            ports.wheel,
            world.monotonic,
            world.wall_clock,
            ports.settings,
        )
        self.markers = marker_writer(own, ports.nursery, partial(write_markers, self.marker_ports))
        self.kind = transaction_kind(own, self.markers)
        self.add_partitions = AddPartitionsPorts(coordination.transactions, ports.metadata)
        self.verifier = TransactionVerifier(
            world, ports.nursery, ports.channels, ports.settings, partial(add_partitions_here, self.add_partitions)
        )


def transaction_kind_of(coordination: Coordination) -> CoordinatedKind[TransactionMachine]:
    return coordination.late_transactions.get().kind


def transaction_handlers(parts: BrokerParts) -> Handlers:
    coordination = parts.coordination
    own, transactions = coordination.late_transactions.get(), coordination.transactions
    transactions.open()
    add_offsets = AddOffsetsPorts(
        transactions, coordination.groups.partition_of, coordination.auto_topics.create_internal
    )
    producers = TransactionalProducerPorts(
        transactions, coordination.producer_ids, coordination.ports.broker_epoch
    )
    offsets = GroupOffsetPorts(coordination.groups, coordination.ports.metadata)
    in_transactions = TransactionalOffsetPorts(offsets, own.verifier, coordination.ports.settings)
    return {
        ApiKey.INIT_PRODUCER_ID: partial(init_transactional_producer, producers),
        ApiKey.ADD_PARTITIONS_TO_TXN: partial(add_partitions_to_txn, own.add_partitions),
        ApiKey.ADD_OFFSETS_TO_TXN: partial(add_offsets_to_txn, add_offsets),
        ApiKey.END_TXN: partial(end_txn, transactions),
        ApiKey.TXN_OFFSET_COMMIT: partial(txn_offset_commit, in_transactions),
        ApiKey.WRITE_TXN_MARKERS: partial(write_txn_markers, own.marker_ports),
        ApiKey.DESCRIBE_TRANSACTIONS: partial(describe_transactions, transactions),
        ApiKey.LIST_TRANSACTIONS: partial(list_transactions, transactions),
    }
