"""Export of a topic to Parquet.

A batch writes the records that are committed now. Each file has the records of one day in one range of offsets, with
the range in its name, so that retries never duplicate offsets; the next batch into the same directory continues after
them. A stream (`follow`) is Spark's own file sink: exactly once by its checkpoint and its list of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import Bootstrap
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.files import Files, files_for
from barnabas.pipeline.jobs import lake_rows
from barnabas.pipeline.jobs.plan import Plan, Range, Round, cut, spans
from barnabas.pipeline.jobs.rounds import Rounds, Written, claimed, new_claim
from barnabas.pipeline.jobs.streaming_query import Streamed, finish
from barnabas.pipeline.jobs.topics import Bounds, TopicIdentity, bounds, find, offsets_at, require_same
from barnabas.pipeline.spark_errors import in_one_line

STATE = "_barnabas"
"""Directory in the lake for the progress, unless --checkpoint is given. Readers skip names with an underscore."""

SINK_LOG = "_spark_metadata"
MAX_NAME_PREFIX = 150
"""Maximum length of the topic's name in a file name; the directory has the full name."""

FILES_FOR_A_TASK = 4
"""Files per round and parallel task."""


@dataclass(frozen=True)
class Export:
    """A batch export."""

    bootstrap: Bootstrap
    topic: str
    to: str
    checkpoint: str | None = None
    value_schema: str | None = None
    since_ms: int | None = None
    """The first run starts at this timestamp; later ones continue."""
    until_ms: int | None = None
    records_per_file: int = 1_000_000


@dataclass(frozen=True)
class Follow:
    """A streaming export."""

    bootstrap: Bootstrap
    topic: str
    to: str
    checkpoint: str | None = None
    value_schema: str | None = None
    group: str | None = None
    """Consumer group to which offsets are committed after each batch."""
    trigger: str | None = None
    """Interval of batches, e.g. `10 seconds`; None: each starts when the previous one is completed."""
    max_offsets: int | None = None
    """Maximum per batch."""
    to_the_end: bool = False
    """Stop at the current end of the topic."""
    skip_lost: bool = False
    """Continue if requested offsets were deleted."""


def export(session: Any, job: Export) -> Mapping[str, Any]:
    """Run a batch export; returns its account. PipelineError."""
    lake_rows.check_schema(session, job.value_schema)
    files, to = files_for(session, job.to)
    if files.exists(f"{to}/{SINK_LOG}"):
        raise PipelineError(f"{job.to} is the output of a stream (--follow); give another directory")
    folder = state_folder(session, job.checkpoint, to)
    with BlockingCluster(job.bootstrap) as cluster, files.only_one(folder):
        identity = find(cluster, job.topic)
        rounds = Rounds(files, folder, to)
        plan = rounds.open(new_claim("export", identity, to, {"--value-schema": job.value_schema}))
        before = plan
        if plan.is_done:
            plan = _with_new_offsets(cluster, session, job, identity, plan)
            rounds.save(plan)

        def work(_number: int, pieces: Round) -> Written:
            frame = lake_rows.read_ranges(session, job.bootstrap, identity, spans(pieces), job.records_per_file)
            return write_round(job, frame, pieces, (files, rounds.aside))

        for after in rounds.run(plan, work):
            require_same(cluster, identity)
            plan = after
    return {
        "topic": job.topic,
        "to": job.to,
        "records": plan.records - before.records,
        "files": plan.files - before.files,
        "rounds": plan.done - before.done,
        "went on": not before.is_done,
        "offsets": {str(partition): end for partition, end in sorted(plan.next_offsets.items())},
    }


def follow(session: Any, job: Follow) -> Mapping[str, Any]:
    """Stream until interrupted, or `to_the_end`. PipelineError."""
    lake_rows.check_schema(session, job.value_schema)
    files, to = files_for(session, job.to)
    state = f"{to}/{STATE}"
    if files.exists(f"{state}/plan.json"):
        raise PipelineError(f"{job.to} is the output of batches; give a stream (--follow) another directory")
    folder = state_folder(session, job.checkpoint, to, "/stream")
    with BlockingCluster(job.bootstrap) as cluster:
        identity = find(cluster, job.topic)
    options = {"groupId": job.group} if job.group else {}
    if job.skip_lost:
        options["failOnDataLoss"] = "false"
    if job.max_offsets is not None:
        options["maxOffsetsPerTrigger"] = str(job.max_offsets)
    wanted = new_claim("export --follow", identity, to, {"--value-schema": job.value_schema})
    with claimed(files_for(session, folder)[0], folder, wanted):
        frame = lake_rows.read_stream(session, job.bootstrap, job.topic, options)
        writer = (
            lake_rows.for_lake(frame, job.value_schema)
            .writeStream.format("parquet")
            .queryName(f"export {job.topic}")
            .partitionBy(*lake_rows.FOLDERS)
            .option("path", to)
            .option("checkpointLocation", folder)
        )
        if job.to_the_end:
            writer = writer.trigger(availableNow=True)
        elif job.trigger:
            writer = writer.trigger(processingTime=job.trigger)
        streamed: Streamed = finish(writer.start)
    return {"topic": job.topic, "to": job.to, "records": streamed.records, "batches": streamed.batches}


def state_folder(session: Any, checkpoint: str | None, to: str, under: str = "") -> str:
    """The directory of the progress of a job that writes to `to`."""
    return f"{to}/{STATE}{under}" if checkpoint is None else files_for(session, checkpoint)[1]


def _with_new_offsets(cluster: BlockingCluster, session: Any, job: Export, identity: TopicIdentity, plan: Plan) -> Plan:
    """The plan with rounds for the offsets after the last run, or for all offsets."""
    known = bounds(cluster, identity)
    starts = offsets_at(cluster, identity, job.since_ms, known) if job.since_ms is not None else {}
    ends = offsets_at(cluster, identity, job.until_ms, known) if job.until_ms is not None else {}
    ranges = []
    for partition, each in known.items():
        start = _begin(identity, partition, plan, each, starts.get(partition, each.start))
        ranges.append(Range(partition, start, max(start, min(each.end, ends.get(partition, each.end)))))
    pieces = FILES_FOR_A_TASK * session.sparkContext.defaultParallelism
    rounds = cut(ranges, job.records_per_file, pieces)
    return plan.with_more(rounds, {each.partition: each.end for each in ranges})


def _begin(identity: TopicIdentity, partition: int, plan: Plan, now: Bounds, first: int) -> int:
    start = plan.next_offsets.get(partition)
    if start is None:
        return first
    if start < now.start:
        raise PipelineError(
            f"offsets {start} to {now.start} of {identity.topic}-{partition} were deleted before they were exported;"
            " another --to (or another --checkpoint) starts with the records that are left"
        )
    if start > now.end:
        raise PipelineError(
            f"{identity.topic}-{partition} ends at offset {now.end}, but offsets up to {start} were exported: records"
            " were lost or the cluster was restored; another --to starts from the beginning"
        )
    return start


def write_round(job: Any, frame: Any, pieces: Round, aside: tuple[Files, str]) -> Written:
    """Write the records of `frame`, which has the ranges of a round, to temporary files."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    files, folder = aside
    whole = spans(pieces)
    size = job.records_per_file
    seen = Observation()
    starts = F.create_map(*(F.lit(each) for partition, (start, _) in whole.items() for each in (partition, start)))
    first = starts[F.col("partition")].cast("long")
    frame = lake_rows.for_lake(frame, job.value_schema)
    frame = frame.withColumn("_start", first + F.floor((F.col("offset") - first) / size) * size)
    frame = frame.observe(seen, F.count(F.lit(1)).alias("records"))
    order = (*lake_rows.FOLDERS, "_start", "offset")
    with in_one_line():
        frame.sortWithinPartitions(*order).write.partitionBy(*order[:-1]).parquet(folder)
    ends = {(piece.partition, piece.start): piece.end for piece in pieces}
    return Written(records=seen.get["records"], moves=list(_named(files.below(folder), ends)))


def _named(written: list[str], ends: Mapping[tuple[int, int], int]) -> Iterator[tuple[str, str]]:
    """`topic=t/partition=0/date=d/_start=0/part-….parquet` becomes `topic=t/partition=0/date=d/t-0-….parquet`."""
    taken: dict[str, int] = {}
    for name in written:
        *folders, last, file = ("", *name.split("/"))[-5:]
        if not file.endswith(".parquet") or file.startswith((".", "_")) or len(folders) != len(lake_rows.FOLDERS):
            # Without rows Spark writes an empty file outside of these directories.
            continue
        of = dict(folder.split("=", 1) for folder in (*folders, last))
        partition, start = int(of["partition"]), int(of["_start"])
        base = f"{'/'.join(folders)}/{_seen(of['topic'])}-{partition}-{start:020d}-{ends[partition, start]:020d}"
        again = taken[base] = taken.get(base, -1) + 1
        yield name, f"{base}{f'-{again}' if again else ''}.parquet"


def _seen(topic: str) -> str:
    """The prefix of a file name: readers skip names that begin with `_` or `.`, and file systems limit the length."""
    return topic.lstrip("._")[:MAX_NAME_PREFIX] or "topic"
