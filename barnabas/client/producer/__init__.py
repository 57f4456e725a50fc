"""The producer: batches records, sends them, and reports the outcome of each.

`producer.py` is the public class; `record_appender.py` puts records into the batches of `record_accumulator.py`,
`sender.py` sends those to brokers, `transactions.py` makes them take effect together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.lazy_imports import lazy_names

if TYPE_CHECKING:
    from barnabas.client.producer.future import FutureRecordMetadata
    from barnabas.client.producer.partitioner import Partitioner, RoundRobinPartitioner, partition_for_key
    from barnabas.client.producer.prepared_state import PreparedTxnState
    from barnabas.client.producer.producer import Producer
    from barnabas.client.producer.record_metadata import Acked, Failed, Outcome, RecordMetadata, Unknown
    from barnabas.client.producer.settings import ProducerOptions, ProducerSettings
    from barnabas.client.producer.transaction_manager import TransactionState
    from barnabas.protocol.murmur import murmur2

__all__ = [
    "Acked",
    "Failed",
    "FutureRecordMetadata",
    "Outcome",
    "Partitioner",
    "PreparedTxnState",
    "Producer",
    "ProducerOptions",
    "ProducerSettings",
    "RecordMetadata",
    "RoundRobinPartitioner",
    "TransactionState",
    "Unknown",
    "murmur2",
    "partition_for_key",
]

__getattr__ = lazy_names(
    __name__,
    {
        "barnabas.client.producer.future": ("FutureRecordMetadata",),
        "barnabas.client.producer.partitioner": ("Partitioner", "RoundRobinPartitioner", "partition_for_key"),
        "barnabas.client.producer.producer": ("Producer",),
        "barnabas.client.producer.prepared_state": ("PreparedTxnState",),
        "barnabas.client.producer.record_metadata": ("Acked", "Failed", "Outcome", "RecordMetadata", "Unknown"),
        "barnabas.client.producer.settings": ("ProducerOptions", "ProducerSettings"),
        "barnabas.client.producer.transaction_manager": ("TransactionState",),
        "barnabas.protocol.murmur": ("murmur2",),
    },
)
