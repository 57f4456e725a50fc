"""Snapshot of a topic: the latest value of each key as Parquet, without keys whose latest record is a tombstone.

Within a partition the highest offset is the latest. For a key in several partitions (as after partitions were added),
the latest of these by timestamp counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import Bootstrap
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.files import Files, files_for
from barnabas.pipeline.jobs import lake_rows
from barnabas.pipeline.jobs.topics import bounds, find, require_same
from barnabas.pipeline.spark_errors import in_one_line

ASIDE = "{to}.barnabas-new"
BEFORE = "{to}.barnabas-old"


@dataclass(frozen=True)
class Snapshot:
    bootstrap: Bootstrap
    topic: str
    to: str
    value_schema: str | None = None
    overwrite: bool = False


def snapshot(session: Any, job: Snapshot) -> Mapping[str, Any]:
    """Write the snapshot; it becomes visible when it is complete. PipelineError."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    lake_rows.check_schema(session, job.value_schema)
    files, to = files_for(session, job.to)
    if files.names(to) and not job.overwrite:
        raise PipelineError(f"{job.to} already exists; --overwrite replaces it")
    with BlockingCluster(job.bootstrap) as cluster:
        identity = find(cluster, job.topic)
        known = bounds(cluster, identity)
        seen, kept = Observation(), Observation()
        frame = lake_rows.for_lake(lake_rows.read_ranges(session, job.bootstrap, identity, known), job.value_schema)
        frame = frame.observe(
            seen,
            F.count(F.lit(1)).alias("records"),
            F.coalesce(F.sum(F.col("key").isNull().cast("long")), F.lit(0)).alias("without"),
        )
        table = latest(frame.where(F.col("key").isNotNull())).observe(kept, F.count(F.lit(1)).alias("keys"))
        aside = ASIDE.format(to=to)
        files.remove(aside)
        try:
            with in_one_line():
                table.write.parquet(aside)
            require_same(cluster, identity)
        except BaseException:
            files.remove(aside)
            raise
    _swap(files, aside, to)
    return {
        "topic": job.topic,
        "to": job.to,
        "records": seen.get["records"],
        "keys": kept.get["keys"],
        "records without a key": seen.get["without"],
        "offsets": {str(partition): each.end for partition, each in sorted(known.items())},
    }


def latest(frame: Any) -> Any:
    """The latest row of each key of a `for_lake` frame, without tombstones."""
    from pyspark.sql import functions as F

    carried = F.struct("value", "partition", "offset", "timestamp", "headers")
    in_partition = frame.groupBy("key", "partition").agg(F.max_by(carried, "offset").alias("last"))
    order = F.struct(F.col("last.timestamp"), F.col("last.offset"), F.col("last.partition"))
    by_key = in_partition.groupBy("key").agg(F.max_by("last", order).alias("last"))
    return by_key.where(F.col("last.value").isNotNull()).select("key", "last.*")


def _swap(files: Files, aside: str, to: str) -> None:
    """Two renames: for a moment the directory does not exist, but it is never incomplete."""
    before = BEFORE.format(to=to)
    files.remove(before)
    if files.exists(to):
        files.move(to, before)
    files.move(aside, to)
    files.remove(before)
