"""Transactions: requests to their coordinator, and to leaders of partitions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.group_offsets import GroupOffsetPorts, TransactionalOffsetPorts, txn_offset_commit
from barnabas.broker.apis.markers import write_txn_markers
from barnabas.broker.apis.transactional_producer_ids import TransactionalProducerPorts, init_transactional_producer
from barnabas.broker.apis.transactions import (
    AddOffsetsPorts,
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)
from barnabas.broker.rooms.transaction_parts import Transactions  # noqa: F401 - loaded with this room
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.rooms import Handlers

if TYPE_CHECKING:
    from barnabas.broker.coordination import Coordination
    from barnabas.broker.coordinator.coordinator import CoordinatedKind
    from barnabas.broker.parts import BrokerParts
    from barnabas.broker.transactions.machine import TransactionMachine


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
