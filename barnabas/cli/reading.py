"""Prints the records of a span of offsets from a consumer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.cli.progress import progress
from barnabas.cli.start_offsets import Place, Span
from barnabas.cli.topic_check import partitions_count
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.cluster import TopicPartition
    from barnabas.client.consumer import ConsumerRecord
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.shares.record import ShareRecord

POLL_MS = 500
Shown = Callable[["ConsumerRecord | ShareRecord"], bytes]
"""Formats a record."""


class Reader:
    """Polls a consumer and prints records until a limit is reached."""

    def __init__(self, topics: Sequence[str], span: Span, shown: Shown, *, limit: int | None, to_end: bool) -> None:
        """`limit`: number of records to print; `to_end`: stop at the end offsets found at the start."""
        self.count = 0
        self.began = False
        self._topics = list(dict.fromkeys(topics))
        self._span = span
        self._shown = shown
        self._limit = limit
        self._to_end = to_end
        self._stops: dict[TopicPartition, int] = {}
        """Stop offsets of partitions, if they have one."""

    async def assign(self, consumer: Consumer, wanted: Sequence[int] | None) -> None:
        """Assigns all or the `wanted` partitions and seeks to the start of the span."""
        from barnabas.client.cluster import TopicPartition

        partitions = []
        for topic in self._topics:
            count = await partitions_count(consumer, topic)
            for index in range(count) if wanted is None else dict.fromkeys(wanted):
                if index >= count:
                    raise WrongArgument(f"--partition {index}: {topic} has {count}, 0 to {count - 1}")
                partitions.append(TopicPartition(topic, index))
        consumer.assign(partitions)
        await self._find_stops(consumer, partitions)
        for partition, offset in (await self._starts(consumer, partitions)).items():
            consumer.seek(partition, offset)

    async def subscribe(self, consumer: Consumer) -> None:
        """Subscribes to topics or to one pattern."""
        patterns = [topic for topic in self._topics if topic.startswith("^")]
        if patterns:
            if len(self._topics) > 1:
                raise WrongArgument(f"{patterns[0]}: a pattern must be the only topic")
            consumer.subscribe(pattern=patterns[0])
            return
        for topic in self._topics:
            await partitions_count(consumer, topic)
        consumer.subscribe(topics=self._topics)

    async def read(self, consumer: Consumer, *, quiet: bool) -> None:
        """Prints records until a limit is reached. In a group, offsets of printed records only are committed."""
        from barnabas.cli.stdout import write_out

        self.began = True
        # On a terminal the records themselves are the progress.
        with progress("read", self._limit, quiet=quiet or sys.stdout.isatty()) as advance:
            while (left := self._left()) is None or left > 0:
                if await self._at_end(consumer):
                    return
                records = await consumer.poll(timeout_ms=POLL_MS)
                if not records:
                    continue
                wanted = self._wanted(records)[:left]
                await write_out(b"".join([self._shown(record) for record in wanted]))
                if len(wanted) < len(records):
                    _give_back(consumer, records, wanted)
                self.count += len(wanted)
                advance(len(wanted))

    def _left(self) -> int | None:
        return None if self._limit is None else self._limit - self.count

    def _wanted(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        from barnabas.client.cluster import TopicPartition

        if not self._stops:
            return records
        stops = self._stops
        return [
            record
            for record in records
            if record.offset < stops.get(TopicPartition(record.topic, record.partition), record.offset + 1)
        ]

    async def _at_end(self, consumer: Consumer) -> bool:
        """Whether all partitions have reached their stop offsets."""
        if not self._to_end and self._span.until_ms is None:
            return False
        assigned = consumer.assignment()
        if not assigned:
            return False
        if new := [partition for partition in assigned if partition not in self._stops]:
            await self._find_stops(consumer, new)
        at = consumer.positions()
        done = [each for each in assigned if each in at and at[each].offset >= self._stops[each]]
        if len(done) == len(assigned):
            return True
        consumer.pause(done)
        return False

    async def _find_stops(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        if self._span.until_ms is not None:
            ends = await consumer.end_offsets(partitions)
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, self._span.until_ms))
            for partition in partitions:
                at = found.get(partition)
                self._stops[partition] = ends[partition] if at is None else at.offset
        elif self._to_end:
            self._stops |= await consumer.end_offsets(partitions)

    async def _starts(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        span = self._span
        match span.start:
            case Place.BEGINNING:
                return dict(await consumer.beginning_offsets(partitions))
            case Place.OFFSET:
                return dict.fromkeys(partitions, span.value)
            case Place.FROM_END:
                firsts = await consumer.beginning_offsets(partitions)
                ends = await consumer.end_offsets(partitions)
                return {each: max(firsts[each], ends[each] - span.value) for each in partitions}
            case Place.TIME:
                ends = await consumer.end_offsets(partitions)
                found = await consumer.offsets_for_times(dict.fromkeys(partitions, span.value))
                return {each: ends[each] if (at := found.get(each)) is None else at.offset for each in partitions}
            case _:
                return dict(await consumer.end_offsets(partitions))


def _give_back(consumer: Consumer, records: Sequence[ConsumerRecord], written: Sequence[ConsumerRecord]) -> None:
    """Seeks back to the first record that was not printed, so that the group continues there."""
    from barnabas.client.cluster import TopicPartition

    last = {TopicPartition(record.topic, record.partition): record.offset for record in written}
    assigned = set(consumer.assignment())
    for record in reversed(records):
        partition = TopicPartition(record.topic, record.partition)
        if partition in assigned and record.offset > last.get(partition, -1):
            consumer.seek(partition, record.offset)
