"""`spark.read.format("barnabas")` and `spark.readStream.format("barnabas")`: a Python data source of Spark.

The shell around the planner and the readers. Spark pickles these objects and calls them in its own Python workers, also
on the driver's side. So connections are opened where they are used, and there is no event loop.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from barnabas.client.metadata import TopicPartition
from barnabas.pipeline import offsets
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.columns import Window
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.failing_reader import FailingReader
from barnabas.pipeline.filters import Pushed
from barnabas.pipeline.group_offsets import commit_group_offsets
from barnabas.pipeline.offsets import StreamOffset, Topic
from barnabas.pipeline.planner import OffsetRange, limited, ranges_between, split
from barnabas.pipeline.range_reader import Reading, read_range
from barnabas.pipeline.reading_options import ReadingOptions, includes_headers, read_options
from barnabas.pipeline.worker_errors import errors_in_one_line
from barnabas.protocol.primitives import ZERO_UUID

COLUMNS = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
}
HEADERS = {"headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>"}

_PUSHING = "data_source_pushdown_filters.py"
"""The worker of Spark that creates a reader in order to push filters down."""


class BarnabasDataSource(DataSource):
    """The format `barnabas`, with the options of Spark's own Kafka source and `groupId`."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self._columns().items())

    def reader(self, schema: Any) -> DataSourceReader:
        """A reader that accepts filters only if Spark pushes them down: if that is off, as by default, Spark refuses
        readers with `pushFilters`."""
        with errors_in_one_line():
            self._require_columns(schema)
            options = read_options(self.options, streaming=False)
        is_pushing = sys._getframe(1).f_code.co_filename.endswith(_PUSHING)
        return PushingReader(options) if is_pushing else BatchReader(options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        try:
            self._require_columns(schema)
            return StreamReader(read_options(self.options, streaming=True))
        except PipelineError as error:
            return FailingReader(error)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """A writer of one frame in one transaction."""
        from barnabas.pipeline.writer import batch_writer

        with errors_in_one_line():
            return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """A writer of each micro-batch in one transaction."""
        from barnabas.pipeline.writer import stream_writer

        with errors_in_one_line():
            return stream_writer(schema, self.options, overwrite)

    def _columns(self) -> dict[str, str]:
        return COLUMNS | HEADERS if includes_headers(self.options) else COLUMNS

    def _require_columns(self, schema: Any) -> None:
        """PipelineError if the user set a schema: the columns are fixed."""
        names = list(self._columns())
        if list(schema.fieldNames()) != names:
            raise PipelineError(f"the source has the columns {', '.join(names)}; leave out schema(…) and use select")


@dataclass
class RangePartition(InputPartition):
    """The offsets that one task reads."""

    topic: str
    partition: int
    topic_id: bytes
    from_offset: int
    until_offset: int


class _Reader:
    """The common part of batch and stream readers. It is pickled without its connections."""

    def __init__(self, options: ReadingOptions) -> None:
        self.options = options
        self.pushed = Pushed()
        self._cluster: BlockingCluster | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None}

    @property
    def cluster(self) -> BlockingCluster:
        if self._cluster is None:
            options = self.options
            self._cluster = BlockingCluster(
                options.bootstrap,
                client_id=options.client_id,
                request_timeout_ms=options.request_timeout_ms,
                retry_timeout_ms=options.retry_timeout_ms,
            )
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def tasks(self, ranges: Sequence[OffsetRange], topic_ids: Mapping[str, bytes]) -> list[RangePartition]:
        options = self.options
        return [
            RangePartition(
                *each.partition, topic_ids.get(each.partition.topic, ZERO_UUID), each.from_offset, each.until_offset
            )
            for each in split(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def read(self, partition: RangePartition) -> Iterator[Any]:
        """pyarrow RecordBatches."""
        if not isinstance(partition, RangePartition):
            # Spark runs one task even without any partition.
            return
        options = self.options
        from_time, until_time = self.pushed.between("timestamp")
        reading = Reading(
            TopicPartition(partition.topic, partition.partition),
            Window(partition.from_offset, partition.until_offset, from_time, until_time),
            partition.topic_id,
            options.isolation,
            options.include_headers,
            options.fail_on_data_loss,
            options.fetch_bytes,
        )
        with errors_in_one_line():
            try:
                for columns in read_range(self.cluster, reading):
                    yield columns.record_batch(partition.topic, partition.partition)
            finally:
                self.close()


class BatchReader(_Reader, DataSourceReader):
    """Reads a range of offsets of each partition, determined when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        with errors_in_one_line():
            try:
                return self._plan()
            finally:
                self.close()

    def _plan(self) -> list[RangePartition]:
        options, cluster = self.options, self.cluster
        topics = offsets.find_topics(cluster, options.subscription)
        partitions = offsets.partitions_of(topics)
        starts = offsets.starting_offsets(cluster, options, partitions)
        ends = offsets.ending_offsets(cluster, options, partitions)
        wanted = [OffsetRange(partition, starts[partition], ends[partition]) for partition in partitions]
        ranges = offsets.without_lost(cluster, wanted, options.fail_on_data_loss, check_ends=True)
        ids = {name: topic.topic_id for name, topic in topics.items()}
        return self.tasks(self._narrowed(ranges), ids)

    def _narrowed(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """The ranges without offsets that the pushed filters exclude."""
        low, high = self.pushed.between("offset")
        wanted = [
            OffsetRange(each.partition, max(low, each.from_offset), min(high, each.until_offset))
            for each in ranges
            if self.pushed.wants(*each.partition)
        ]
        wanted = [each for each in wanted if each.size]
        from_time, _ = self.pushed.between("timestamp")
        if from_time > 0 and wanted:
            # All records before the first one of that time are older.
            specs = {each.partition: from_time for each in wanted}
            found = self.cluster.list_offsets(specs, self.options.isolation)
            wanted = [
                each._replace(from_offset=max(each.from_offset, found[each.partition].offset))
                for each in wanted
                if found[each.partition].offset >= 0
            ]
        return [each for each in wanted if each.size]


class PushingReader(BatchReader):
    """A reader to which Spark pushes filters down."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        return self.pushed.take(filters)


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. Spark keeps their offsets in its checkpoint."""

    def __init__(self, options: ReadingOptions) -> None:
        super().__init__(options)
        self._target: dict[TopicPartition, int] | None = None
        """Ends of a query with Trigger.AvailableNow."""
        self._committed: Mapping[TopicPartition, int] = {}
        """The offsets last committed to the group."""

    def initialOffset(self) -> dict[str, Any]:
        with errors_in_one_line():
            topics = offsets.find_topics(self.cluster, self.options.subscription)
            starts = offsets.starting_offsets(self.cluster, self.options, offsets.partitions_of(topics))
            return StreamOffset(starts, _ids(topics)).to_json()

    def getDefaultReadLimit(self) -> Any:
        limit = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        with errors_in_one_line():
            self._target = self._ends(offsets.find_topics(self.cluster, self.options.subscription, missing_ok=True))

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        with errors_in_one_line():
            before = StreamOffset.from_json(start)
            self._require_ours(before)
            # Spark asks for the next batch when the previous one is completed.
            self._commit_to_group(before)
            after = self._after(before, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
            return start if after is None else after.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        with errors_in_one_line():
            topics = offsets.find_topics(self.cluster, self.options.subscription, missing_ok=True)
            return StreamOffset(self._ends(topics), _ids(topics)).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with errors_in_one_line():
            before, after = StreamOffset.from_json(start), StreamOffset.from_json(end)
            self._require_ours(before)
            ranges = ranges_between({**before.offsets, **after.first}, after.offsets)
            topics = offsets.find_topics(self.cluster, self.options.subscription, missing_ok=True)
            gone = self._gone(after, topics)
            kept = [each for each in ranges if each.partition.topic not in gone]
            fail = self.options.fail_on_data_loss
            return self.tasks(offsets.without_lost(self.cluster, kept, fail, check_ends=False), after.topic_ids)

    def commit(self, end: dict[str, Any]) -> None:
        with errors_in_one_line():
            self._commit_to_group(StreamOffset.from_json(end))

    def stop(self) -> None:
        self.close()

    # Inside

    def _after(self, before: StreamOffset, max_rows: int | None) -> StreamOffset | None:
        """The end of the next micro-batch; None if there is nothing new."""
        topics = offsets.find_topics(self.cluster, self.options.subscription, missing_ok=True)
        gone = self._gone(before, topics)
        starts = {partition: offset for partition, offset in before.offsets.items() if partition.topic not in gone}
        ends = self._ends(topics)
        first: dict[TopicPartition, int] = {}
        if new := [partition for partition in ends if partition not in starts]:
            first = offsets.earliest_offsets(self.cluster, new)
            starts |= first
        # If a log became shorter, reading continues when it is longer again, and never goes back.
        ends = {partition: max(offset, starts[partition]) for partition, offset in ends.items()}
        ends |= {partition: offset for partition, offset in starts.items() if partition not in ends}
        taken = limited(starts, ends, max_rows)
        if taken == starts and not first:
            return None
        kept = {topic: topic_id for topic, topic_id in before.topic_ids.items() if topic not in gone}
        return StreamOffset(taken, {**kept, **_ids(topics)}, first)

    def _gone(self, offset: StreamOffset, topics: Mapping[str, Topic]) -> set[str]:
        """The topics of an offset that were deleted, even if recreated. PipelineError if failOnDataLoss."""
        gone = set()
        for name in offset.topics:
            now = topics.get(name)
            if now is None:
                self._lost(offsets.vanished(name))
                gone.add(name)
            elif offsets.is_other_topic(now, offset.topic_ids.get(name, ZERO_UUID)):
                self._lost(offsets.recreated(name))
                gone.add(name)
        return gone

    def _ends(self, topics: Mapping[str, Topic]) -> dict[TopicPartition, int]:
        partitions = offsets.partitions_of(topics)
        ends = offsets.latest_offsets(self.cluster, partitions, self.options.isolation) if partitions else {}
        if self._target is None:
            return ends
        return {
            partition: min(offset, self._target[partition])
            for partition, offset in ends.items()
            if partition in self._target
        }

    def _require_ours(self, offset: StreamOffset) -> None:
        """PipelineError if the checkpoint belongs to another query."""
        subscription = self.options.subscription
        topics = offset.topics
        strangers = [topic for topic in topics if not subscription.wants(topic)]
        if strangers and (len(strangers) == len(topics) or self.options.fail_on_data_loss):
            raise PipelineError(
                f"the checkpoint belongs to a query that reads {', '.join(topics)}, but this one reads {subscription};"
                " give it another checkpointLocation"
            )

    def _lost(self, error: PipelineError) -> None:
        if self.options.fail_on_data_loss:
            raise error

    def _commit_to_group(self, offset: StreamOffset) -> None:
        group_id = self.options.group_id
        if group_id is not None and offset.offsets != self._committed:
            commit_group_offsets(self.cluster, group_id, offset.offsets)
            self._committed = offset.offsets


def _ids(topics: Mapping[str, Topic]) -> dict[str, bytes]:
    return {name: topic.topic_id for name, topic in topics.items() if topic.topic_id != ZERO_UUID}
