"""What tasks of Spark do for the sink: each row to the record batches of its partition, batches to leaders.

Runs in executors: blocking, no trio, no session. Rows come as Arrow batches of the columns of `routing.py`. Who owns a
partition writes it alone (`partition_writer.py`): sequences count from 0 in each partition, so what two tasks wrote to
one could not be told apart. A task that is tried again must not write (`SecondAttempt`).
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
from barnabas.pipeline.routing import TARGET, Targets
from barnabas.pipeline.task_reports import (
    REPORT_SCHEMA,
    PartitionReport,
    SecondAttempt,
    TaskAttempt,
    current_task_attempt,
    failure_report,
)
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.init_producer_id import InitProducerIdRequest

OWN_GROUP = "spark-sink"


@dataclass(frozen=True, slots=True)
class ProduceTask:
    """A step of `mapInArrow`: writes its rows, gives reports. What it is made of travels to executors."""

    settings: ProducingSettings
    targets: Targets
    transactional_id: str | None
    """None: at least once; each task then has a producer id of its own."""
    producer: ProducerId | None = None
    turn: int | None = None
    """Rows have no target: all of a task go to one partition, the one that is so many after the task's own number."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        place = current_task_attempt()
        try:
            reports = self.write(batches, place)
        except (PipelineError, KafkaError) as error:
            reports = [failure_report(place, error)]
        arrays = [pa.array([each[index] for each in reports], kind.type) for index, kind in enumerate(REPORT_SCHEMA)]
        yield pa.RecordBatch.from_arrays(arrays, schema=REPORT_SCHEMA)

    def write(self, batches: Iterable[Any], place: TaskAttempt) -> list[PartitionReport]:
        """All of it is on the replicas when this returns. PipelineError; whatever a cluster raises."""
        if self.transactional_id is not None and place.attempt > 0:
            raise SecondAttempt(place)
        writers: dict[int, PartitionWriter] = {}
        with open_cluster(self.settings) as cluster:
            producer = self.producer
            for batch in batches:
                if not batch.num_rows:
                    continue
                if producer is None:
                    producer = own_producer(cluster)
                for number, part in self._by_target(batch, place):
                    writer = writers.get(number)
                    if writer is None:
                        writer = writers[number] = PartitionWriter(
                            cluster, self.settings, self.targets[number], producer, self.transactional_id
                        )
                    rows = rows_of(part, int(time.time() * 1000))
                    writer.append(rows, sizes_of(part, rows))
            for writer in writers.values():
                writer.flush()
        return [writer.report(place) for writer in writers.values()]

    def _by_target(self, batch: Any, place: TaskAttempt) -> Iterator[tuple[int, Any]]:
        """Each target's rows in their order."""
        if self.turn is not None:
            yield (place.partition_id + self.turn) % len(self.targets), batch
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
    """As a task needs it."""
    return BlockingCluster(
        settings.bootstrap,
        client_id="barnabas-sink",
        request_timeout_ms=settings.request_timeout_ms,
        retry_timeout_ms=settings.retry_timeout_ms,
    )


def own_producer(cluster: BlockingCluster) -> ProducerId:
    """An id that nobody else has, without transactions: what is sent again is written once."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    # Any broker gives one; the coordinator of some group is a broker that is looked for as long as it takes.
    response = cluster.coordinator_call(OWN_GROUP, CoordinatorType.GROUP, request, _code)
    if _code(response) is not ErrorCode.NONE:
        raise KafkaError(_code(response), "no producer id")
    return ProducerId(response.producer_id, response.producer_epoch)


def _code(response: Any) -> ErrorCode:
    return error_code(response.error_code)
