"""`spark.read.format("barnabas-segments")`: the `.log` files of brokers read in parallel, by no broker.

    spark.read.format("barnabas-segments").option("path", "/data/broker-1").option("subscribe", "orders").load()

One task for each segment, more for a large one. Of a partition that is in several of the directories one replica is
read. Options, besides `path` (directories, with commas; or the arguments of `load`):

- `subscribe`, `subscribePattern`: which topics; otherwise all but internal ones
- `kafka.bootstrap.servers` (`bootstrap`): asked how far the logs count, as long as the cluster is up; otherwise the
  checkpoints of the brokers tell
- `kafka.isolation.level`: `read_committed` (the default, unlike that of topics) or `read_uncommitted`
- `includeHeaders`; `splitBytes` (128 MiB)
- `onCorrupt`: `fail` (the default) or `skip` torn and corrupt batches; `failOnDataLoss`: `false` also passes over
  segments that are deleted before they are read
- `rows`: `records` (the default), or `batches`: one row for each batch, of every replica, for audits
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from barnabas.pipeline.batch_rows import SPARK_SCHEMA
from barnabas.pipeline.replicas import SegmentTask
from barnabas.pipeline.segment_plan import SegmentOptions, batch_columns, plan_of, record_columns
from barnabas.pipeline.worker_errors import errors_in_one_line

NAME = "barnabas-segments"
_COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
_HEADERS = ", headers array<struct<key: string, value: binary>>"


class SegmentPartition(InputPartition):
    """One task."""

    def __init__(self, task: SegmentTask) -> None:
        super().__init__(None)
        self.task = task


class SegmentReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: SegmentOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        with errors_in_one_line():
            return [SegmentPartition(task) for task in plan_of(self.options).tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, SegmentPartition):
            # Spark makes one task of no task.
            return
        rows = batch_columns if self.options.batches else record_columns
        with errors_in_one_line():
            yield from rows(partition.task, self.options, [])


class SegmentDataSource(DataSource):
    """Batch only: a stream of files that brokers write to is what topics are for."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        with errors_in_one_line():
            options = SegmentOptions.parse(self.options)
        if options.batches:
            return SPARK_SCHEMA
        return _COLUMNS + (_HEADERS if options.include_headers else "")

    def reader(self, schema: Any) -> DataSourceReader:
        with errors_in_one_line():
            return SegmentReader(SegmentOptions.parse(self.options))
