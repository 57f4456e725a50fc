"""Start and end offsets of a read, resolved at the cluster; and the offsets of a stream as JSON.

The JSON is that of Spark's own Kafka source, `{"flights": {"0": 23}}`, with two more entries whose names no topic can
have: `@topicIds`, because a recreated topic is another topic; and `@first`, the start offsets of partitions that the
offset before did not have, so that a repeated batch is the same batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.metadata import TopicPartition, TopicView
from barnabas.client.offset_lookup import EARLIEST, LATEST, Isolation
from barnabas.pipeline.blocking_cluster import BlockingCluster, ClusterView
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.planner import OffsetRange
from barnabas.pipeline.reading_options import Position, Positions, ReadingOptions, Subscription
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.primitives import ZERO_UUID, uuid_from_string, uuid_to_string

TOPIC_IDS = "@topicIds"
FIRST = "@first"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to read."""

    topic_id: bytes
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The progress of a stream: the next offset of each partition."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    first: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Start offsets of the partitions that the previous offset did not have."""

    def to_json(self) -> dict[str, Any]:
        """In a fixed order, because Spark compares the text."""
        document: dict[str, Any] = {}
        for partition in sorted(self.offsets):
            document.setdefault(partition.topic, {})[str(partition.partition)] = self.offsets[partition]
        document[TOPIC_IDS] = [[topic, uuid_to_string(self.topic_ids[topic])] for topic in sorted(self.topic_ids)]
        if self.first:
            document[FIRST] = [[*partition, self.first[partition]] for partition in sorted(self.first)]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffset:
        """PipelineError if another source wrote it."""
        try:
            ids = {str(topic): uuid_from_string(topic_id) for topic, topic_id in document.get(TOPIC_IDS, ())}
            first = {TopicPartition(topic, number): int(offset) for topic, number, offset in document.get(FIRST, ())}
            offsets = {
                TopicPartition(topic, int(number)): int(offset)
                for topic, of_topic in document.items()
                if not topic.startswith("@")
                for number, offset in of_topic.items()
            }
        except (ValueError, TypeError, AttributeError):
            raise PipelineError(
                "the checkpoint was not written by this source; give the query another checkpointLocation"
            ) from None
        return cls(offsets, ids, first)

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.offsets} | set(self.topic_ids))


def find_topics(cluster: BlockingCluster, subscription: Subscription, *, missing_ok: bool = False) -> dict[str, Topic]:
    """The topics to read. PipelineError if one that is named does not exist, unless `missing_ok`."""
    names = subscription.names
    if names is None:
        view = cluster.metadata(None)
        names = tuple(
            sorted(name for name, each in view.topics.items() if not each.internal and subscription.wants(name))
        )
    else:
        view = _once_known(cluster, names)
    found: dict[str, Topic] = {}
    for name in names:
        each = view.topics.get(name)
        if each is None or not each.leaders:
            if missing_ok:
                continue
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each is None else each.error
            raise PipelineError(f"topic {name} cannot be read: {_why(code)}")
        partitions = [TopicPartition(name, number) for number in sorted(each.leaders)]
        if subscription.assigned:
            wanted = [partition for partition in subscription.assigned if partition.topic == name]
            if missing := [partition for partition in wanted if partition not in partitions]:
                raise PipelineError(
                    f"option assign names {missing[0]}, but {name} has partitions 0 to {partitions[-1].partition}"
                )
            partitions = wanted
        found[name] = Topic(each.topic_id, tuple(partitions))
    return found


def _once_known(cluster: BlockingCluster, names: Collection[str]) -> ClusterView:
    """The metadata, after waiting for topics that a broker does not know yet, as after their creation."""
    view = cluster.metadata(list(names))
    for name in names:
        each = view.topics.get(name)
        if each is not None and each.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            try:
                cluster.list_offsets({(name, 0): EARLIEST})
            except KafkaError:
                continue
            view = cluster.metadata(list(names))
    return view


def _why(code: ErrorCode) -> str:
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "it does not exist; check the name, or create it"
    return f"the cluster returned {code.name}"


def partitions_of(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [partition for name in sorted(topics) for partition in topics[name].partitions]


def starting_offsets(
    cluster: BlockingCluster, options: ReadingOptions, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The start offsets. PipelineError if a partition has no record at or after a timestamp, or is not named."""
    partitions = list(partitions)
    position = options.starting
    found = _offsets(cluster, position, partitions, options.isolation)
    if without := [partition for partition in partitions if found[partition] < 0]:
        if not options.latest_if_no_timestamp:
            raise PipelineError(
                f"option {position.option}: {without[0]} has no record at or after that time; give an earlier time, or"
                " set startingOffsetsByTimestampStrategy to latest"
            )
        found |= latest_offsets(cluster, without, options.isolation)
    return found


def ending_offsets(
    cluster: BlockingCluster, options: ReadingOptions, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The end offsets of a batch; the log end if no record is at or after a timestamp."""
    partitions = list(partitions)
    found = _offsets(cluster, options.ending, partitions, options.isolation)
    without = [partition for partition in partitions if found[partition] < 0]
    return found | latest_offsets(cluster, without, options.isolation) if without else found


def latest_offsets(
    cluster: BlockingCluster, partitions: Iterable[TopicPartition], isolation: Isolation
) -> dict[TopicPartition, int]:
    """The log ends; with READ_COMMITTED, the last stable offsets."""
    found = cluster.list_offsets(dict.fromkeys(partitions, LATEST), isolation)
    return {TopicPartition(*partition): each.offset for partition, each in found.items()}


def earliest_offsets(cluster: BlockingCluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The log start offsets."""
    found = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    return {TopicPartition(*partition): each.offset for partition, each in found.items()}


def _offsets(
    cluster: BlockingCluster, position: Position, partitions: list[TopicPartition], isolation: Isolation
) -> dict[TopicPartition, int]:
    """-1 if no record is at or after a timestamp."""
    if not partitions:
        return {}
    specs: dict[TopicPartition, int] = {}
    known: dict[TopicPartition, int] = {}
    if position.kind in (Positions.OFFSETS, Positions.TIMESTAMPS):
        _require_same(position, partitions)
    for partition in partitions:
        match position.kind:
            case Positions.EARLIEST:
                specs[partition] = EARLIEST
            case Positions.LATEST:
                specs[partition] = LATEST
            case Positions.TIMESTAMP:
                specs[partition] = position.timestamp_ms
            case Positions.TIMESTAMPS:
                specs[partition] = position.by_partition[partition]
            case Positions.OFFSETS:
                offset = position.by_partition[partition]
                (specs if offset in (EARLIEST, LATEST) else known)[partition] = offset
    if specs:
        found = cluster.list_offsets(specs, isolation)
        known |= {partition: found[partition].offset for partition in specs}
    return known


def _require_same(position: Position, partitions: list[TopicPartition]) -> None:
    if missing := [partition for partition in partitions if partition not in position.by_partition]:
        hint = "; -2 means earliest, -1 latest" if position.kind is Positions.OFFSETS else ""
        raise PipelineError(f"option {position.option} must name every partition; {missing[0]} is missing{hint}")
    if strange := [partition for partition in position.by_partition if partition not in partitions]:
        raise PipelineError(f"option {position.option} names {strange[0]}, which does not exist")


def without_lost(
    cluster: BlockingCluster, ranges: list[OffsetRange], fail_on_data_loss: bool, *, check_ends: bool
) -> list[OffsetRange]:
    """The ranges clipped to the logs. If `fail_on_data_loss`, PipelineError if a log begins later or, with
    `check_ends`, ends earlier. Ends that came from the cluster need no check: the reader waits for them.

    Only the start and the end of a log show a loss: offsets in between may be missing because of markers and
    compaction.
    """
    if not ranges:
        return []
    partitions = [each.partition for each in ranges]
    starts = earliest_offsets(cluster, partitions)
    ends = latest_offsets(cluster, partitions, Isolation.READ_UNCOMMITTED) if check_ends else {}
    kept = []
    for each in ranges:
        start, end = starts[each.partition], ends.get(each.partition, max(each[1:]))
        if fail_on_data_loss and each.from_offset > end:
            raise lost_at_end(each.partition, each.from_offset, end)
        if not each.size:
            continue
        if fail_on_data_loss and each.from_offset < start:
            raise lost_at_start(each.partition, each.from_offset, start)
        if fail_on_data_loss and each.until_offset > end:
            raise lost_at_end(each.partition, each.until_offset, end)
        kept.append(OffsetRange(each.partition, max(each.from_offset, start), min(each.until_offset, end)))
    return [each for each in kept if each.size]


def lost_at_start(partition: TopicPartition, offset: int, log_start_offset: int) -> PipelineError:
    return PipelineError(
        f"{partition}: offsets {offset} to {log_start_offset - 1} were deleted, the log begins at {log_start_offset}"
        " (retention or DeleteRecords); to continue after them, set option failOnDataLoss to false"
    )


def lost_at_end(partition: TopicPartition, offset: int, log_end_offset: int) -> PipelineError:
    return PipelineError(
        f"{partition}: offsets up to {offset} were requested, but the log ends at {log_end_offset}; check the offsets,"
        " or set option failOnDataLoss to false to read the offsets that exist"
    )


def vanished(topic: str) -> PipelineError:
    return PipelineError(
        f"topic {topic} was deleted before the query had read all of it; restore it, or set option failOnDataLoss to"
        " false to continue without it"
    )


def recreated(topic: str) -> PipelineError:
    return PipelineError(
        f"topic {topic} was deleted and recreated since the query began; give the query another checkpointLocation, or"
        " set option failOnDataLoss to false to read the new topic from its beginning"
    )


def is_other_topic(view: Topic | TopicView, topic_id: bytes) -> bool:
    """Whether the ids differ; without an id the topic counts as the same."""
    return ZERO_UUID not in (view.topic_id, topic_id) and view.topic_id != topic_id
