"""What becomes of a record: where it is, or whether it can be anywhere at all. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.client.metadata import TopicPartition

NO_OFFSET = -1
NO_TIMESTAMP = -1


class RecordMetadata(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int
    """-1 if it is not known: with acks=0, or if the broker remembers the record and no longer its place."""
    timestamp_ms: int
    """The record's own, or the broker's where the topic says so (LogAppendTime)."""
    serialized_key_size: int = -1
    """Bytes; -1 if there is no key."""
    serialized_value_size: int = -1
    """Bytes; -1 if there is no value."""

    @property
    def has_offset(self) -> bool:
        return self.offset != NO_OFFSET

    @property
    def has_timestamp(self) -> bool:
        return self.timestamp_ms != NO_TIMESTAMP

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Acked:
    """The record is in the log, as durable as `acks` makes it."""

    partition: int
    offset: int
    """-1 if the broker remembers the batch, but no longer where it is; or with acks=0."""
    timestamp: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The record certainly is not in the log, and will never be."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Unknown:
    """The record may be in the log, now or later, or may not."""

    error: Exception


Outcome = Acked | Failed | Unknown
