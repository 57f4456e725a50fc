"""The distance of positions from the ends of their partitions, in records and in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from barnabas.client.admin.calls import Part, Question
from barnabas.client.admin.results import Results, refusal
from barnabas.client.admin.routes import Leaders
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.offset_lookup import CONSUMER, LATEST
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import list_offsets as looking
from barnabas.protocol.offset_times import CAUGHT_UP, TIMES_AT_ONCE, TIMES_TAG, UNKNOWN, decode_times, encode_offsets


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a position is behind the end of its partition."""

    end_offset: int
    """The high watermark."""
    records: int
    """Offsets from the position to the end."""
    oldest_ms: int | None
    """Timestamp of the first committed record from the position on; None if there is none, or if it is unknown: brokers
    of Apache Kafka do not report it."""

    def seconds(self, now_ms: int) -> float | None:
        """Age of the oldest record that is not read yet; 0 if all are read, None if unknown."""
        if self.records == 0:
            return 0.0
        return None if self.oldest_ms is None else max(now_ms - self.oldest_ms, 0) / 1000


class PartitionLags(Part):
    """Methods for lags."""

    async def list_partition_lags(
        self, positions: Mapping[TopicPartition, int]
    ) -> Results[TopicPartition, PartitionLag]:
        """The lag of an offset in each partition, such as those that a group has committed. Leaders are called.
        UnknownTopicOrPartitionException.
        """
        wanted = {TopicPartition(*partition): offset for partition, offset in positions.items()}
        calls = self._calls.together()

        def ask(some: list[TopicPartition], timeout_ms: int) -> looking.ListOffsetsRequest:
            topics = [
                looking.ListOffsetsTopic(
                    name=name, partitions=[_asked(index, wanted[TopicPartition(name, index)]) for index in indexes]
                )
                for name, indexes in by_topic(some).items()
            ]
            return looking.ListOffsetsRequest(replica_id=CONSUMER, topics=topics, timeout_ms=timeout_ms)

        def read(
            response: looking.ListOffsetsResponse, _: object
        ) -> Iterator[tuple[TopicPartition, PartitionLag | KafkaError]]:
            for topic in response.topics:
                for it in topic.partitions:
                    key = TopicPartition(topic.name, it.partition_index)
                    error = refusal(it.error_code, None, f"partition {key}")
                    yield key, error or _lag(it, wanted.get(key, it.offset))

        question = Question[TopicPartition, PartitionLag]("partition", ask, read)
        keys = list(wanted)
        outcomes: dict[TopicPartition, PartitionLag | KafkaError] = {}
        for start in range(0, len(keys), TIMES_AT_ONCE):
            found = await calls.ask(keys[start : start + TIMES_AT_ONCE], Leaders(calls), question)
            outcomes |= found.outcomes
        return Results(outcomes)


def _asked(index: int, offset: int) -> looking.ListOffsetsPartition:
    partition = looking.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
    partition.unknown_tagged_fields = {TIMES_TAG: encode_offsets([max(offset, 0)])}
    return partition


def _lag(it: looking.ListOffsetsPartitionResponse, offset: int) -> PartitionLag:
    data = (it.unknown_tagged_fields or {}).get(TIMES_TAG, b"")
    time_ms = decode_times(it.offset, data, [max(offset, 0)]).times.get(max(offset, 0), UNKNOWN)
    return PartitionLag(it.offset, max(it.offset - offset, 0), None if time_ms in (CAUGHT_UP, UNKNOWN) else time_ms)
