"""`barnabas pipeline replay`: records of the past into another topic, or as Parquet."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.option_group import grouped
from barnabas.cli.pipeline_options import (
    Checkpoint,
    ClusterOptions,
    Compression,
    RecordsPerFile,
    SparkOptions,
    ValueSchema,
    optional_time,
)
from barnabas.cli.pipeline_session import show_result, spark_session
from barnabas.cluster.errors import WrongArgument


@dataclass(frozen=True)
class SelectionOptions:
    """The records to replay."""

    ranges: Annotated[
        str | None,
        typer.Option("--ranges", metavar="LIST", help="Offsets as PARTITION:START-END,…; END is not included."),
    ] = None
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only records with this timestamp or a later one.")
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only records with an earlier timestamp.")
    ] = None
    manifest: Annotated[
        Path | None, typer.Option("--manifest", metavar="FILE", help="Read topic and ranges from a JSON file.")
    ] = None


@dataclass(frozen=True)
class TargetOptions:
    """Where the records go."""

    into: Annotated[
        str | None, typer.Option("--into", metavar="TOPIC", help="Write to another topic; needs --checkpoint.")
    ] = None
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="Write Parquet to this directory, as export does.")
    ] = None
    by_key: Annotated[
        bool, typer.Option("--by-key", help="With --into: choose partitions by key instead of keeping them.")
    ] = False
    value_schema: ValueSchema = None
    records_per_file: RecordsPerFile = 1_000_000
    compression: Compression = "none"


@grouped
def command(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", autocompletion=completion.topics, show_default=False)
    ] = None,
    *,
    selection: SelectionOptions,
    target: TargetOptions,
    checkpoint: Checkpoint = None,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """Replay records into another topic, or export them as Parquet.

    The selection is resolved to offsets once and kept in the checkpoint: the same command resumes where it stopped.
    """
    with spark_session(spark, "replay") as session:
        from barnabas.pipeline.jobs.replay import Replay, replay

        began = time.monotonic()
        source, wanted = _wanted(topic, selection)
        job = Replay(
            cluster.servers,
            source,
            wanted,
            into=target.into,
            to=target.to,
            checkpoint=checkpoint,
            value_schema=target.value_schema,
            by_key=target.by_key,
            records_per_file=target.records_per_file,
            compression=target.compression,
        )
        show_result(spark, began, replay(session, job))


def _wanted(topic: str | None, selection: SelectionOptions) -> tuple[str, tuple[Any, ...]]:
    """The topic and its ranges. Raises WrongUse, WrongArgument."""
    from barnabas.pipeline.jobs.plan import read_document
    from barnabas.pipeline.jobs.replay import Manifest, Wanted, parse_ranges

    path, times = selection.manifest, (selection.since, selection.until)
    if path is not None:
        if topic is not None or selection.ranges is not None or any(times):
            raise WrongArgument("--manifest names topic and ranges; leave out TOPIC, --ranges, --since and --until")
        manifest: Manifest = read_document(Manifest, path.read_text(), str(path))
        return manifest.topic, tuple(manifest.ranges)
    if topic is None:
        raise WrongArgument("TOPIC is missing; give TOPIC or --manifest FILE")
    if selection.ranges is not None:
        if any(times):
            raise WrongArgument("--ranges excludes --since and --until; a --manifest may have offsets and times")
        return topic, parse_ranges(selection.ranges)
    since, until = times
    return topic, (Wanted(since_ms=optional_time("--since", since), until_ms=optional_time("--until", until)),)
