"""Core: values that describe the outcome of a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.client.metadata import TopicPartition


class RecordMetadata(NamedTuple):
    """Topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int
    """-1 if it is unknown: with acks=0, or if the broker has recognised a duplicate but no longer knows its offset."""
    timestamp_ms: int
    """The record's own, or the broker's if the topic is configured with LogAppendTime."""
    serialized_key_size: int = -1
    """Bytes; -1 if there is no key."""
    serialized_value_size: int = -1
    """Bytes; -1 if there is no value."""

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
    """-1 with acks=0, or if the broker recognised a duplicate but no longer knows its offset."""
    timestamp: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The record certainly is not in the log, and never will be."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Unknown:
    """The record may be in the log, now or later, or not."""

    error: Exception


Outcome = Acked | Failed | Unknown
