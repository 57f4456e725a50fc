"""The public consumer, and the reader of given partitions that it is built on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.lazy_imports import lazy_names

if TYPE_CHECKING:
    from barnabas.client.consumer.offset_listing import find_offsets, list_offsets
    from barnabas.client.consumer.partition_reader import PartitionReader, open_reader
    from barnabas.client.consumer.reading_settings import ReadingSettings
    from barnabas.client.consumer.record import ConsumerRecord, TimestampType
    from barnabas.client.consumer.reset_policy import FROM_EARLIEST, FROM_LATEST, NO_RESET, ResetPolicy
    from barnabas.client.offset_lookup import EARLIEST, LATEST, FoundOffset, Isolation

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

__getattr__ = lazy_names(
    __name__,
    {
        "barnabas.client.consumer.offset_listing": ("find_offsets", "list_offsets"),
        "barnabas.client.consumer.partition_reader": ("PartitionReader", "open_reader"),
        "barnabas.client.consumer.reading_settings": ("ReadingSettings",),
        "barnabas.client.consumer.record": ("ConsumerRecord", "TimestampType"),
        "barnabas.client.consumer.reset_policy": ("FROM_EARLIEST", "FROM_LATEST", "NO_RESET", "ResetPolicy"),
        "barnabas.client.offset_lookup": ("EARLIEST", "LATEST", "FoundOffset", "Isolation"),
    },
)
