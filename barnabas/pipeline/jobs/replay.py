"""Replay of ranges of offsets or time, into another topic or as Parquet.

The selection is resolved once and kept as offsets in the checkpoint: a restart reads exactly the same records, and does
only the remaining rounds. A range of time is read from the first record at or after its start to the log end, and
filtered by timestamp, because records need not be in the order of their timestamps. Into a topic, each round is a
transaction with the number of the round.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pydantic import BaseModel, ConfigDict

from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import Bootstrap
from barnabas.pipeline.errors import PipelineError, WrongUse
from barnabas.pipeline.files import files_for
from barnabas.pipeline.jobs import lake_rows
from barnabas.pipeline.jobs.export import FILES_FOR_A_TASK, SINK_LOG, state_folder, write_round
from barnabas.pipeline.jobs.load import sink_for
from barnabas.pipeline.jobs.plan import Plan, Range, Round, cut, spans
from barnabas.pipeline.jobs.rounds import Rounds, Written, new_claim
from barnabas.pipeline.jobs.topics import TopicIdentity, bounds, find, find_or_create, offsets_at, require_same


class Wanted(BaseModel):
    """A requested range: by offsets or by time, of one partition or of all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: int | None = None
    start: int | None = None
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def is_of_time(self) -> bool:
        return self.since_ms is not None or self.until_ms is not None


class Manifest(BaseModel):
    """The selection of a replay as a JSON document."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: str
    ranges: list[Wanted]


@dataclass(frozen=True)
class Replay:
    bootstrap: Bootstrap
    topic: str
    ranges: tuple[Wanted, ...] = (Wanted(),)
    into: str | None = None
    """Topic to write; excludes `to`."""
    to: str | None = None
    """Directory for Parquet; excludes `into`."""
    checkpoint: str | None = None
    value_schema: str | None = None
    by_key: bool = False
    """Choose partitions by key; otherwise records keep their partitions."""
    records_per_file: int = 1_000_000
    compression: str = "none"


def replay(session: Any, job: Replay) -> Mapping[str, Any]:
    """Run the remaining rounds. PipelineError; WrongUse before anything is done."""
    _check(job)
    lake_rows.check_schema(session, job.value_schema)
    if job.to is not None:
        files, data = files_for(session, job.to)
        folder = state_folder(session, job.checkpoint, data)
    else:
        assert job.checkpoint is not None
        files, folder = files_for(session, job.checkpoint)
        data = folder
    with BlockingCluster(job.bootstrap) as cluster, files.only_one(folder):
        identity = find(cluster, job.topic)
        rounds = Rounds(files, folder, data)
        by_key = "yes" if job.by_key else None
        settings = {"--value-schema": job.value_schema, "--by-key": by_key, "ranges": _requested(job)}
        plan = rounds.open(new_claim("replay", identity, job.into or data, settings))
        before = plan
        if not plan.rounds:
            if job.to is not None and files.exists(f"{data}/{SINK_LOG}"):
                raise PipelineError(f"{job.to} is the output of a stream; give another directory")
            plan = _planned(cluster, session, job, identity, plan)
            rounds.save(plan)
        if job.into is not None:
            into, _ = find_or_create(cluster, job.into, None, otherwise=len(identity.partitions), keep=True)
            if not job.by_key and len(into.partitions) < len(identity.partitions):
                raise PipelineError(
                    f"{job.into} has {len(into.partitions)} partitions, {job.topic} has {len(identity.partitions)};"
                    " add partitions, or let --by-key choose them"
                )
            sink = sink_for(job.bootstrap, job.into, plan.claim.query_id, job.compression)

            def work(number: int, pieces: Round) -> Written:
                frame = chosen(session, job, identity, pieces)
                columns = ["key", "value", "headers", "timestamp", *([] if job.by_key else ["partition"])]
                return Written(records=sink.write(frame.select(*columns), number))
        else:

            def work(number: int, pieces: Round) -> Written:
                return write_round(job, chosen(session, job, identity, pieces), pieces, (files, rounds.aside))

        for after in rounds.run(plan, work):
            require_same(cluster, identity)
            plan = after
    return {
        "topic": job.topic,
        "into": job.into or job.to,
        "records": plan.records - before.records,
        "rounds": plan.done - before.done,
        "done before": before.done,
    }


def chosen(session: Any, job: Replay, identity: TopicIdentity, pieces: Round) -> Any:
    """The requested records of a round."""
    frame = lake_rows.read_ranges(session, job.bootstrap, identity, spans(pieces), job.records_per_file)
    if not any(each.is_of_time for each in job.ranges):
        return frame
    return frame.where(reduce(operator.or_, map(_condition, job.ranges)))


def _condition(wanted: Wanted) -> Any:
    """The condition that a record is in a range."""
    from pyspark.sql import functions as F

    holds = lake_rows.in_time(wanted.since_ms, wanted.until_ms)
    if wanted.partition is not None:
        holds &= F.col("partition") == wanted.partition
    if wanted.start is not None:
        holds &= F.col("offset") >= wanted.start
    if wanted.end is not None:
        holds &= F.col("offset") < wanted.end
    return holds


def parse_ranges(text: str) -> tuple[Wanted, ...]:
    """Parse `0:100-200,1:50-`; a missing start or end is that of the log. WrongUse."""
    return tuple(_parse(part.strip(), text) for part in text.split(",") if part.strip())


def _parse(part: str, text: str) -> Wanted:
    partition, colon, borders = part.partition(":")
    start, dash, end = borders.partition("-")
    numbers = [partition, *(each for each in (start, end) if each)]
    if not colon or not dash or not all(each.isascii() and each.isdigit() for each in numbers):
        raise WrongUse(f"--ranges must be PARTITION:START-END,…, e.g. 0:100-200; got {part} in {text}")
    return Wanted(partition=int(partition), start=int(start) if start else None, end=int(end) if end else None)


def resolve(wanted: Iterable[Wanted], cluster: BlockingCluster, identity: TopicIdentity) -> list[Range]:
    """The current offsets of the ranges. PipelineError for partitions or offsets that do not exist."""
    known = bounds(cluster, identity)
    times = {one.since_ms for one in wanted if one.since_ms is not None}
    found = {time: offsets_at(cluster, identity, time, known) for time in sorted(times)}
    result = []
    for one in wanted:
        if one.start is not None and one.end is not None and one.end < one.start:
            raise PipelineError(f"the end of a range must not be below its start; got {one.start} to {one.end}")
        if one.partition is not None and one.partition not in known:
            raise PipelineError(f"{identity.topic} has no partition {one.partition}; it has 0 to {max(known)}")
        for partition in known if one.partition is None else [one.partition]:
            log = known[partition]
            start = log.start if one.since_ms is None else found[one.since_ms][partition]
            asked = Range(partition, start if one.start is None else one.start, log.end if one.end is None else one.end)
            if asked.start < log.start or asked.end > log.end:
                raise PipelineError(
                    f"{identity.topic}-{partition} has offsets {log.start} to {log.end}, but"
                    f" {asked.start} to {asked.end} were requested"
                )
            result.append(asked)
    return result


def _check(job: Replay) -> None:
    if (job.into is None) == (job.to is None):
        raise WrongUse("exactly one of --into TOPIC and --to DIR must be given")
    if job.into is not None and job.checkpoint is None:
        raise WrongUse("--into needs --checkpoint, which keeps the completed rounds so that nothing is replayed twice")
    if job.into == job.topic:
        raise WrongUse(f"--into must be another topic; got {job.into}")
    if job.to is not None and job.by_key:
        raise WrongUse("--by-key needs --into")


def _planned(cluster: BlockingCluster, session: Any, job: Replay, identity: TopicIdentity, plan: Plan) -> Plan:
    ranges = resolve(job.ranges, cluster, identity)
    pieces = FILES_FOR_A_TASK * session.sparkContext.defaultParallelism
    rounds = cut(ranges, job.records_per_file, pieces)
    return plan.with_more(rounds, {})


def _requested(job: Replay) -> str:
    """The ranges as requested: another selection needs another checkpoint."""
    return " ".join(each.model_dump_json(exclude_none=True) for each in job.ranges)
