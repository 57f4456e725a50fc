"""`barnabas pipeline export`: a topic to Parquet, in batches or as a stream."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.option_group import grouped
from barnabas.cli.pipeline_options import (
    Checkpoint,
    ClusterOptions,
    RecordsPerFile,
    SparkOptions,
    Topic,
    Trigger,
    ValueSchema,
    optional_time,
)
from barnabas.cli.pipeline_session import show_result, spark_session
from barnabas.cluster.errors import WrongArgument


@dataclass(frozen=True)
class OutputOptions:
    """Where the files go, and where the job keeps its progress."""

    to: Annotated[
        str, typer.Option("--to", metavar="DIR", help="Output directory, partitioned by topic, partition and date.")
    ]
    value_schema: ValueSchema = None
    checkpoint: Checkpoint = None


@dataclass(frozen=True)
class BatchOptions:
    """Options of an export without --follow."""

    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Start at the first record with this timestamp or a later one."),
    ] = None
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Stop at the first record with this timestamp or a later one."),
    ] = None
    records_per_file: RecordsPerFile = 1_000_000


@dataclass(frozen=True)
class FollowOptions:
    """Options of an export with --follow."""

    follow: Annotated[bool, typer.Option("--follow", help="Run as a stream until Ctrl-C.")] = False
    available_now: Annotated[
        bool, typer.Option("--available-now", help="With --follow: stop at the current end of the topic.")
    ] = False
    trigger: Trigger = None
    max_offsets: Annotated[
        int | None,
        typer.Option("--max-offsets", min=1, metavar="N", help="With --follow: maximum number of offsets per batch."),
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="With --follow: commit progress to this consumer group.",
            autocompletion=completion.groups,
        ),
    ] = None
    fail_on_data_loss: Annotated[
        bool,
        typer.Option(
            "--fail-on-data-loss/--no-fail-on-data-loss",
            help="With --follow: fail if requested offsets were deleted.",
        ),
    ] = True


@grouped
def command(
    topic: Topic,
    *,
    output: OutputOptions,
    batch: BatchOptions,
    stream: FollowOptions,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """Export a topic to Parquet: the records there now, or a stream.

    The next export into the same directory continues after the last. Progress is kept in DIR/_barnabas unless
    --checkpoint names another directory.
    """
    _check(batch, stream)
    with spark_session(spark, "export") as session:
        from barnabas.pipeline.jobs import export as jobs

        began = time.monotonic()
        if stream.follow:
            follow = jobs.Follow(
                cluster.servers,
                topic,
                output.to,
                output.checkpoint,
                output.value_schema,
                group=stream.group,
                trigger=stream.trigger,
                max_offsets=stream.max_offsets,
                to_the_end=stream.available_now,
                skip_lost=not stream.fail_on_data_loss,
            )
            show_result(spark, began, jobs.follow(session, follow))
        else:
            once = jobs.Export(
                cluster.servers,
                topic,
                output.to,
                output.checkpoint,
                output.value_schema,
                since_ms=optional_time("--since", batch.since),
                until_ms=optional_time("--until", batch.until),
                records_per_file=batch.records_per_file,
            )
            show_result(spark, began, jobs.export(session, once))


def _check(batch: BatchOptions, stream: FollowOptions) -> None:
    """Raises `WrongArgument`."""
    only_stream = {
        "--available-now": stream.available_now,
        "--trigger": stream.trigger,
        "--group": stream.group,
        "--max-offsets": stream.max_offsets,
    }
    if not stream.follow and (given := _given(only_stream)):
        raise WrongArgument(f"{given} needs --follow")
    if stream.available_now and stream.trigger is not None:
        raise WrongArgument("--trigger and --available-now exclude each other; give only one")
    if stream.follow and (given := _given({"--since": batch.since, "--until": batch.until})):
        raise WrongArgument(f"{given} is not allowed with --follow")


def _given(options: Mapping[str, object]) -> str:
    return ", ".join(name for name, value in options.items() if value not in (None, False))
