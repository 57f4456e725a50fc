"""The producer: batches records, sends them, and reports the outcome of each.

`producer.py` is the public class; `record_appender.py` puts records into the batches of `record_accumulator.py`,
`sender.py`
sends those to brokers, `transactions.py` makes them take effect together.
"""

from barnabas.client.producer.future import FutureRecordMetadata
from barnabas.client.producer.partitioner import Partitioner, RoundRobinPartitioner, murmur2, partition_for_key
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.record_metadata import Acked, Failed, Outcome, RecordMetadata, Unknown
from barnabas.client.producer.settings import ProducerOptions, ProducerSettings
from barnabas.client.producer.transaction_manager import TransactionState

__all__ = [
    "Acked",
    "Failed",
    "FutureRecordMetadata",
    "Outcome",
    "Partitioner",
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
