"""Core: acknowledgements of records, as they are sent and as their results are reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import KafkaError


class TopicIdPartition(NamedTuple):
    """A partition of one topic, and of no later topic of the same name."""

    topic_id: bytes
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Acknowledged(NamedTuple):
    """The result of acknowledgements that were sent together."""

    partition: TopicPartition
    offsets: tuple[int, ...]
    error: KafkaError | None
    """None: the broker has stored them. InvalidRecordStateException: this consumer had lost the lock of one of them."""


class AcknowledgedRange(NamedTuple):
    """Offsets in a row; one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: list[int]


def ranges_of(types: Mapping[int, AcknowledgeType]) -> list[AcknowledgedRange]:
    """The ranges of these offsets, in order."""
    ranges: list[AcknowledgedRange] = []
    for offset in sorted(types):
        if ranges and ranges[-1].last_offset == offset - 1:
            ranges[-1] = ranges[-1]._replace(last_offset=offset)
            ranges[-1].types.append(types[offset])
        else:
            ranges.append(AcknowledgedRange(offset, offset, [types[offset]]))
    for each in ranges:
        if len(set(each.types)) == 1:
            del each.types[1:]
    return ranges
