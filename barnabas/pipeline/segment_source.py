"""`spark.read.format("barnabas-segments")`: reads the `.log` files of brokers in parallel, without a broker.

    spark.read.format("barnabas-segments").option("path", "/data/broker-1").option("subscribe", "orders").load()

One task for each segment, several for a large one. If several directories have a partition, one replica is read.
Options besides `path` (directories separated by commas, or the arguments of `load`):

- `subscribe`, `subscribePattern`: topics to read; default: all but internal ones
- `kafka.bootstrap.servers` (`bootstrap`): a running cluster to ask for high watermarks; default: the checkpoint files
- `kafka.isolation.level`: `read_committed` (the default, unlike for topics) or `read_uncommitted`
- `includeHeaders`; `splitBytes` (128 MiB)
- `onCorrupt`: `fail` (the default) on torn and corrupt batches, or `skip` them; `failOnDataLoss`: `false` also skips
  segments that are deleted before they are read
- `rows`: `records` (the default), or `batches`: one row for each batch of every replica, for audits
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
    def __init__(self, task: SegmentTask) -> None:
        super().__init__(None)
        self.task = task


class SegmentReader(DataSourceReader):
    """Plans on the driver and reads in tasks."""

    def __init__(self, options: SegmentOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        with errors_in_one_line():
            return [SegmentPartition(task) for task in plan_of(self.options).tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, SegmentPartition):
            # Spark runs one task even without any partition.
            return
        rows = batch_columns if self.options.batches else record_columns
        with errors_in_one_line():
            yield from rows(partition.task, self.options, [])


class SegmentDataSource(DataSource):
    """Batch only; the source for topics has streams."""

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
