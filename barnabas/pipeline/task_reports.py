"""Reports of the sink's tasks to the driver: what was written, or why the batch must not count."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from barnabas.pipeline.errors import BlockingError, PipelineError


class PartitionReport(NamedTuple):
    """The records that one task wrote to one partition."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    size_bytes: int
    stage_id: int
    task_id: int
    refusal: str | None = None
    """Reason why the batch must not be committed, in one line; all other fields are then meaningless. Not raised as an
    exception, because Spark would retry the task and finally report another reason."""
    retriable: bool = False
    """Whether the batch may be written again in another epoch."""


REPORT_COLUMNS = (
    "topic string, partition int, records long, first_offset long, last_offset long, size_bytes long, stage_id int,"
    " task_id long, refusal string, retriable boolean"
)
REPORT_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("size_bytes", pa.int64()),
        ("stage_id", pa.int32()),
        ("task_id", pa.int64()),
        ("refusal", pa.string()),
        ("retriable", pa.bool_()),
    ]
)


class TaskAttempt(NamedTuple):
    """The identity of a running task, from Spark's TaskContext."""

    partition_id: int
    attempt: int
    stage_id: int
    task_id: int


def current_task_attempt() -> TaskAttempt:
    """All zeros outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskAttempt(0, 0, 0, 0)
    return TaskAttempt(context.partitionId(), context.attemptNumber(), context.stageId(), context.taskAttemptId())


class SecondAttempt(PipelineError):
    """Spark retried a task whose first attempt may have written rows, and may still do so."""

    def __init__(self, attempt: TaskAttempt) -> None:
        super().__init__(
            f"task {attempt.partition_id} was retried, and its rows cannot be distinguished from those of its first"
            " attempt: the whole batch is aborted (Spark's log has the reason of the first failure)"
        )


class AnotherWriter(PipelineError):
    """Another task of the same epoch wrote to the partition."""


def failure_report(attempt: TaskAttempt, error: Exception) -> PartitionReport:
    """The report of a task whose batch must not be committed."""
    # After a BlockingError the cluster was unavailable for too long; another epoch may succeed.
    retriable = isinstance(error, SecondAttempt | AnotherWriter | BlockingError)
    reason = " ".join(str(error).split())
    return PartitionReport("", -1, 0, -1, -1, 0, attempt.stage_id, attempt.task_id, reason, retriable)
