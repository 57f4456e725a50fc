"""The public consumer, and the reader of given partitions that it is built on."""

from barnabas.client.consumer.list_offsets import FoundOffset, find_offsets, list_offsets
from barnabas.client.consumer.partition_reader import PartitionReader, open_reader
from barnabas.client.consumer.reading_settings import ReadingSettings
from barnabas.client.consumer.record import ConsumerRecord, TimestampType
from barnabas.client.consumer.reset_policy import FROM_EARLIEST, FROM_LATEST, NO_RESET, ResetPolicy
from barnabas.client.offset_lookup import EARLIEST, LATEST, Isolation

__all__ = [
    "EARLIEST",
    "FROM_EARLIEST",
    "FROM_LATEST",
    "LATEST",
    "NO_RESET",
    "ConsumerRecord",
    "FoundOffset",
    "Isolation",
    "PartitionReader",
    "ReadingSettings",
    "ResetPolicy",
    "TimestampType",
    "find_offsets",
    "list_offsets",
    "open_reader",
]
