"""Reads the logs in brokers' directories: counts their records and faults, or exports them as Parquet.

Each part of a log is one task. Torn and corrupt batches are skipped and listed in the account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from barnabas.pipeline.cluster_access import access_of
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.log_files import Fault
from barnabas.pipeline.log_transactions import AbortedBatches
from barnabas.pipeline.replicas import SegmentTask
from barnabas.pipeline.segment_plan import SegmentOptions, SegmentPlan, chunks_of, plan_of


@dataclass(frozen=True, slots=True)
class Survey:
    """The counts of one part of a log."""

    task: SegmentTask
    batches: int
    records: int
    """Records that consumers get: without markers and aborted records."""
    aborted: int
    markers: int
    size_bytes: int
    faults: tuple[Fault, ...]


def survey(task: SegmentTask, options: SegmentOptions) -> Survey:
    """Count the batches of a part, without decompressing them."""
    aborted_now = AbortedBatches(task.aborted)
    faults: list[Fault] = []
    batches = records = aborted = markers = size_bytes = 0
    for chunk in chunks_of(task, replace(options, skip_corrupt=True, skip_gone=True), faults):
        for _, header in chunk.batches:
            if not task.has(header):
                continue
            batches += 1
            size_bytes += header.size_bytes
            if header.is_control:
                markers += 1
            elif aborted_now.has(header):
                aborted += max(header.records_count, 0)
            else:
                records += max(header.records_count, 0)
    return Survey(task, batches, records, aborted, markers, size_bytes, tuple(faults))


def surveyed(session: Any, options: SegmentOptions) -> tuple[SegmentPlan, list[Survey]]:
    """The plan, and the survey of each task. PipelineError."""
    plan = plan_of(options)
    if not plan.tasks:
        return plan, []
    tasks = session.sparkContext.parallelize(plan.tasks, len(plan.tasks))
    return plan, tasks.map(lambda task: survey(task, options)).collect()


def account(plan: SegmentPlan, surveys: Sequence[Survey]) -> dict[str, Any]:
    """Counts by partition and in total, as JSON values."""
    by_partition: dict[tuple[str, int], list[Survey]] = {}
    for each in surveys:
        by_partition.setdefault((each.task.topic, each.task.partition), []).append(each)
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "node": parts[0].task.node_id,
            "from": parts[0].task.from_offset,
            "until": parts[-1].task.until_offset,
            "high_watermark": plan.ranges[topic, partition].high_watermark,
            "tasks": len(parts),
            "batches": sum(part.batches for part in parts),
            "records": sum(part.records for part in parts),
            "aborted": sum(part.aborted for part in parts),
            "markers": sum(part.markers for part in parts),
            "bytes": sum(part.size_bytes for part in parts),
        }
        for (topic, partition), parts in sorted(by_partition.items())
    ]
    faults = [str(fault) for each in surveys for fault in each.faults]
    faults += [
        f"{replica.directory}: ends at offset {end}, below the high watermark {wanted}; no other replica has more"
        for replica, end, wanted in plan.short
    ]
    return {"partitions": partitions, "records": sum(each.records for each in surveys), "faults": faults}


def export(session: Any, options: SegmentOptions, to: str) -> int:
    """Write all records as Parquet, partitioned by topic and partition; returns their number. PipelineError if the
    directory exists. A failed job leaves nothing visible."""
    from pyspark.errors import AnalysisException

    try:
        frame_of(session, options).write.partitionBy("topic", "partition").parquet(to)
    except AnalysisException as error:
        if "PATH_ALREADY_EXISTS" in str(error):
            raise PipelineError(f"{to} already exists; give another directory") from None
        raise
    return int(session.read.parquet(to).count())


def frame_of(session: Any, options: SegmentOptions) -> Any:
    """The frame of the source."""
    from barnabas.pipeline.segment_source import NAME, SegmentDataSource

    session.dataSource.register(SegmentDataSource)
    return session.read.format(NAME).options(**named(options)).load()


def named(options: SegmentOptions) -> dict[str, str]:
    """The options of the source."""
    settings = {
        "path": ",".join(options.directories),
        "kafka.isolation.level": options.isolation.name.lower(),
        "includeHeaders": str(options.include_headers).lower(),
        "splitBytes": str(options.split_bytes),
        "onCorrupt": "skip" if options.skip_corrupt else "fail",
        "failOnDataLoss": str(not options.skip_gone).lower(),
        "rows": "batches" if options.batches else "records",
    }
    settings |= access_of(options.bootstrap).options if options.bootstrap else {}
    choices = {"subscribe": options.subscribe, "subscribePattern": options.pattern}
    return settings | {name: value for name, value in choices.items() if value}
