"""What tasks of the sink tell the driver: what they wrote, or why nothing of the batch may count. Knows no broker."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from barnabas.pipeline.errors import BlockingError, PipelineError


class Claim(NamedTuple):
    """What one task wrote to one partition."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    size_bytes: int
    stage_id: int
    task_id: int
    refusal: str | None = None
    """Why the batch must not be committed, in one line; then nothing else here means anything. Told this way, and not
    raised, because Spark would try the task again, and in the end name another reason."""
    again: bool = False
    """The batch may be written anew."""


CLAIM_COLUMNS = (
    "topic string, partition int, records long, first_offset long, last_offset long, size_bytes long, stage_id int,"
    " task_id long, refusal string, again boolean"
)
CLAIM_SCHEMA = pa.schema(
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
        ("again", pa.bool_()),
    ]
)


class TaskPlace(NamedTuple):
    """Where a task stands, as Spark tells it."""

    partition_id: int
    attempt: int
    stage_id: int
    task_id: int


def task_place() -> TaskPlace:
    """Of the task that asks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskPlace(0, 0, 0, 0)
    return TaskPlace(context.partitionId(), context.attemptNumber(), context.stageId(), context.taskAttemptId())


class SecondAttempt(PipelineError):
    """A task is tried again: its first attempt may have written some of its rows, and may still do so."""

    def __init__(self, place: TaskPlace) -> None:
        super().__init__(
            f"task {place.partition_id} was tried before, and what it wrote then cannot be told from what it would"
            " write now: the whole batch is aborted (why the task failed first stands in Spark's log)"
        )


class AnotherWriter(PipelineError):
    """A partition was written to by another task of the same epoch."""


def refusal_of(place: TaskPlace, error: Exception) -> Claim:
    """What a task gives whose batch must not be committed."""
    # BlockingError: the cluster was away for too long; another epoch may fare better.
    again = isinstance(error, SecondAttempt | AnotherWriter | BlockingError)
    return Claim("", -1, 0, -1, -1, 0, place.stage_id, place.task_id, " ".join(str(error).split()), again)
