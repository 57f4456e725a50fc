"""Rows to record batches, and batches to the leader of a partition, which is written by one task only.

Sequences count from 0 in each producer epoch. A retry with the same sequences is safe within one task only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.transaction_requests import ProducerId
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import Bootstrap
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.response_errors import partition_error
from barnabas.pipeline.routing import HEADERS, KEY, TIMESTAMP, VALUE
from barnabas.pipeline.task_reports import AnotherWriter, PartitionReport, TaskAttempt
from barnabas.pipeline.transaction import FENCED
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.records.batch import add_to_sequence
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.layout import Fields

PRODUCE_VERSION = 9
"""From version 12 on the leader would add the partition to the transaction."""
RECORD_BYTES = 40
"""Upper bound of a record's size besides key, value and headers."""
MAX_SPLITS = 20

BATCH_BYTES = 256 * 1024
REQUEST_TIMEOUT_MS = 30_000
RETRY_TIMEOUT_MS = 120_000


@dataclass(frozen=True, slots=True)
class ProducingSettings:
    """Settings of all tasks of a query."""

    bootstrap: Bootstrap
    compression: Compression = Compression.NONE
    batch_bytes: int = BATCH_BYTES
    """Maximum size of a batch before compression; a larger record is a batch of its own."""
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    retry_timeout_ms: int = RETRY_TIMEOUT_MS
    """Maximum time of retries, e.g. while a partition has no leader; like delivery.timeout.ms."""


def rows_of(batch: Any, now_ms: int) -> list[Fields]:
    """The records of an Arrow batch; `now_ms` is the timestamp of those without one."""
    names = batch.schema.names
    count = batch.num_rows

    def column(name: str, otherwise: Any) -> Any:
        return batch.column(names.index(name)) if name in names else pa.array([otherwise] * count)

    keys: list[Any] = column(KEY, None).to_pylist()
    values: list[Any] = column(VALUE, None).to_pylist()
    times: list[Any] = [now_ms] * count
    if TIMESTAMP in names:
        times = pc.fill_null(column(TIMESTAMP, None), now_ms).to_pylist()
    headers: list[Any] = [()] * count
    if HEADERS in names:
        headers = [
            tuple((each["key"], each["value"]) for each in row) if row else ()
            for row in column(HEADERS, None).to_pylist()
        ]
    return list(zip([0] * count, times, keys, values, headers, strict=True))


def sizes_of(batch: Any, rows: Sequence[Fields]) -> Any:
    """Upper bounds of the uncompressed sizes of the rows."""
    sizes = np.full(batch.num_rows, RECORD_BYTES, np.int64)
    for name in (KEY, VALUE):
        if name in batch.schema.names:
            lengths = pc.fill_null(pc.binary_length(batch.column(batch.schema.names.index(name))), 0)
            sizes += lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    if HEADERS in batch.schema.names:
        sizes += np.array(
            [sum(len(key.encode()) + len(value or b"") + 10 for key, value in row[4]) for row in rows], np.int64
        )
    return sizes


class PartitionWriter:
    """Writes one partition, from sequence 0 on, with one batch in flight."""

    def __init__(
        self,
        cluster: BlockingCluster,
        settings: ProducingSettings,
        target: tuple[str, int],
        producer: ProducerId,
        transactional_id: str | None,
    ) -> None:
        self.topic, self.partition = target
        self.records = 0
        self.size_bytes = 0
        self.first_offset = -1
        self.last_offset = -1
        self._cluster = cluster
        self._settings = settings
        self._producer = producer
        self._transactional_id = transactional_id
        self._sequence = 0
        self._pending: list[Fields] = []
        self._pending_bytes = 0

    def append(self, rows: Sequence[Fields], sizes: Any) -> None:
        """Add rows in their order, and send full batches."""
        limit = self._settings.batch_bytes
        ends = np.cumsum(sizes)
        start, before = 0, 0
        while start < len(rows):
            room = limit - self._pending_bytes
            stop = int(np.searchsorted(ends, before + room, side="right"))
            if stop <= start:
                if self._pending:
                    self.flush()
                    continue
                stop = start + 1  # larger than a batch: sent alone
            self._pending += rows[start:stop]
            self._pending_bytes += int(ends[stop - 1]) - before
            start, before = stop, int(ends[stop - 1])
            if self._pending_bytes >= limit or start < len(rows):
                self.flush()

    def flush(self) -> None:
        """Send pending rows and wait until all in-sync replicas have them. PipelineError, KafkaError."""
        if self._pending:
            pending, self._pending, self._pending_bytes = self._pending, [], 0
            if self.records == 0 and self._transactional_id is not None:
                self._refuse_other_writer()
            self._send(pending, MAX_SPLITS)

    def _refuse_other_writer(self) -> None:
        """AnotherWriter if another task has written here in this epoch: the leader would take this task's batches for
        duplicates of the other's.

        This happens if Spark repeats a stage, whose tasks are then first attempts again. A task that writes at this
        moment is detected by the driver instead.
        """
        request = DescribeProducersRequest(topics=[TopicRequest(name=self.topic, partition_indexes=[self.partition])])
        response = self._cluster.leader_call(self.topic, self.partition, request)
        # With WRITE but without READ access to the topic the list is empty; that is no reason to fail.
        for producer in response.topics[0].partitions[0].active_producers:
            stamp = ProducerId(producer.producer_id, producer.producer_epoch)
            if stamp == self._producer and producer.last_sequence >= 0:
                raise AnotherWriter(f"{self.topic}-{self.partition}: another task wrote to it, but only one may")

    def _send(self, rows: list[Fields], splits: int) -> None:
        batch = build_batch(
            rows,
            compression=self._settings.compression,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=self._sequence,
            transactional=self._transactional_id is not None,
        )
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=self.topic, partition_data=[PartitionProduceData(index=self.partition, records=batch)]
                )
            ],
        )
        response = self._cluster.leader_call(self.topic, self.partition, request, version=PRODUCE_VERSION)
        code = partition_error(response, self.partition)
        if code is ErrorCode.MESSAGE_TOO_LARGE and len(rows) > 1 and splits:
            half = len(rows) // 2
            self._send(rows[:half], splits - 1)
            self._send(rows[half:], splits - 1)
            return
        if code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._check(code, rows)
            answer = response.responses[0].partition_responses[0]
            if self.first_offset < 0:
                self.first_offset = answer.base_offset
            self.last_offset = answer.base_offset + len(rows) - 1
        self._sequence = add_to_sequence(self._sequence, len(rows))
        self.records += len(rows)
        self.size_bytes += len(batch)

    def _check(self, code: ErrorCode, rows: Sequence[Fields]) -> None:
        if code is ErrorCode.NONE:
            return
        where = f"{self.topic}-{self.partition}"
        if code in FENCED:
            raise PipelineError(
                f"{where}: the driver aborted this batch, or another driver took over ({code.name})"
            )
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # This task's sequences have no gap, so a batch of another task came in between.
            raise AnotherWriter(f"{where}: another task wrote to it, but only one may ({code.name})")
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            largest = max(len(row[2] or b"") + len(row[3] or b"") for row in rows)
            raise PipelineError(
                f"{where}: records must be at most max.message.bytes of the topic; got one of {largest} bytes"
            )
        raise PipelineError(f"{where}: {KafkaError(code)}")

    def report(self, attempt: TaskAttempt) -> PartitionReport:
        return PartitionReport(
            self.topic,
            self.partition,
            self.records,
            self.first_offset,
            self.last_offset,
            self.size_bytes,
            attempt.stage_id,
            attempt.task_id,
        )
