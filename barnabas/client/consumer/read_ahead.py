"""Core: records that `async for` has polled and not returned yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata


class ReadAhead(deque[ConsumerRecord]):
    """The records in the order in which they were polled."""

    def take(self, limit: int) -> list[ConsumerRecord]:
        return [self.popleft() for _ in range(min(len(self), limit))]

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The first offset of each of these partitions that has records here."""
        if not self:
            return {}
        wanted = dict.fromkeys(partitions)
        first = {TopicPartition(each.topic, each.partition): each.offset for each in reversed(self)}
        return {partition: OffsetAndMetadata(offset) for partition, offset in first.items() if partition in wanted}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the records of these partitions."""
        if self:
            gone = dict.fromkeys(partitions)
            kept = [each for each in self if TopicPartition(each.topic, each.partition) not in gone]
            self.clear()
            self.extend(kept)
