"""The Spark tasks of the sink: rows to the record batches of their partitions, batches to leaders.

Runs in executors: blocking, without trio and session. Rows are Arrow batches with the columns of `routing.py`. Each
partition is written by one task (`partition_writer.py`): sequences count from 0, so batches of two tasks in one
partition could not be distinguished. A retried task must not write (`SecondAttempt`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas.client.coordinator_lookup import CoordinatorType
from barnabas.client.transaction_requests import ProducerId
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.partition_writer import PartitionWriter, ProducingSettings, rows_of, sizes_of
from barnabas.pipeline.response_errors import response_error
from barnabas.pipeline.routing import TARGET, Targets
from barnabas.pipeline.task_reports import (
    REPORT_SCHEMA,
    PartitionReport,
    SecondAttempt,
    TaskAttempt,
    current_task_attempt,
    failure_report,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

OWN_GROUP = "spark-sink"


@dataclass(frozen=True, slots=True)
class ProduceTask:
    """A function for `mapInArrow`, pickled to executors: writes its rows and returns PartitionReports."""

    settings: ProducingSettings
    targets: Targets
    transactional_id: str | None
    """None: at least once, with a producer id of its own for each task."""
    producer: ProducerId | None = None
    shift: int | None = None
    """If set, rows have no target: all rows of a task go to the partition with the task's number plus this."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        attempt = current_task_attempt()
        try:
            reports = self.write(batches, attempt)
        except (PipelineError, KafkaError) as error:
            reports = [failure_report(attempt, error)]
        arrays = [pa.array([each[index] for each in reports], kind.type) for index, kind in enumerate(REPORT_SCHEMA)]
        yield pa.RecordBatch.from_arrays(arrays, schema=REPORT_SCHEMA)

    def write(self, batches: Iterable[Any], attempt: TaskAttempt) -> list[PartitionReport]:
        """Returns when all rows are replicated. PipelineError, KafkaError."""
        if self.transactional_id is not None and attempt.attempt > 0:
            raise SecondAttempt(attempt)
        writers: dict[int, PartitionWriter] = {}
        with open_cluster(self.settings) as cluster:
            producer = self.producer
            for batch in batches:
                if not batch.num_rows:
                    continue
                if producer is None:
                    producer = own_producer(cluster)
                for number, part in self._by_target(batch, attempt):
                    writer = writers.get(number)
                    if writer is None:
                        writer = writers[number] = PartitionWriter(
                            cluster, self.settings, self.targets[number], producer, self.transactional_id
                        )
                    rows = rows_of(part, int(time.time() * 1000))
                    writer.append(rows, sizes_of(part, rows))
            for writer in writers.values():
                writer.flush()
        return [writer.report(attempt) for writer in writers.values()]

    def _by_target(self, batch: Any, attempt: TaskAttempt) -> Iterator[tuple[int, Any]]:
        """(target number, its rows in their order)."""
        if self.shift is not None:
            yield (attempt.partition_id + self.shift) % len(self.targets), batch
            return
        position = batch.schema.names.index(TARGET)
        numbers = batch.column(position).to_numpy(zero_copy_only=False)
        present = np.unique(numbers)
        if len(present) == 1:
            yield int(present[0]), batch
            return
        for number in present:
            yield int(number), batch.filter(pa.array(numbers == number))


def open_cluster(settings: ProducingSettings) -> BlockingCluster:
    """A client with these settings."""
    return BlockingCluster(
        settings.bootstrap,
        client_id="barnabas-sink",
        request_timeout_ms=settings.request_timeout_ms,
        retry_timeout_ms=settings.retry_timeout_ms,
    )


def own_producer(cluster: BlockingCluster) -> ProducerId:
    """A producer id for idempotent writes without transactions."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    # Any broker allocates one; a coordinator call adds retries until one is available.
    response = cluster.coordinator_call(OWN_GROUP, CoordinatorType.GROUP, request, response_error)
    if response_error(response) is not ErrorCode.NONE:
        raise KafkaError(response_error(response), "InitProducerId")
    return ProducerId(response.producer_id, response.producer_epoch)
