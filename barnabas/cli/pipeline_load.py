"""`barnabas pipeline load`: Parquet into a topic."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.option_group import grouped
from barnabas.cli.pipeline_options import Checkpoint, ClusterOptions, Compression, SparkOptions, Trigger
from barnabas.cli.pipeline_session import show_result, spark_session


@dataclass(frozen=True)
class ColumnOptions:
    """Columns of the Parquet files that become parts of a record."""

    key: Annotated[str | None, typer.Option("--key", metavar="COLUMN", help="Column of the record key.")] = None
    value: Annotated[
        str, typer.Option("--value", metavar="COLUMN|json", help="Column of the record value; json: the whole row.")
    ] = "json"
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="COLUMN", help="Column of the partition; default: chosen by key."),
    ] = None
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="COLUMN", help="Column of the record timestamp; default: now."),
    ] = None


@dataclass(frozen=True)
class TargetOptions:
    """The topic that is written."""

    topic: Annotated[
        str, typer.Option("--topic", metavar="TOPIC", help="Topic to write.", autocompletion=completion.topics)
    ]
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="Partitions of the topic if it must be created."),
    ] = None
    compression: Compression = "none"


@dataclass(frozen=True)
class StreamOptions:
    """How files become transactions."""

    files: Annotated[
        int,
        typer.Option(
            "--files-per-transaction", min=1, metavar="N", help="With --checkpoint: files written per transaction."
        ),
    ] = 16
    follow: Annotated[bool, typer.Option("--follow", help="Keep running and load new files as they appear.")] = False
    trigger: Trigger = None
    checkpoint: Checkpoint = None


@grouped
def command(
    source: Annotated[str, typer.Argument(metavar="PARQUET", help="Parquet file, directory or glob pattern.")],
    *,
    target: TargetOptions,
    columns: ColumnOptions,
    stream: StreamOptions,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """Load Parquet into a topic, exactly once.

    With --checkpoint, the same command resumes where it stopped; without, everything is one transaction.
    """
    with spark_session(spark, "load") as session:
        from barnabas.pipeline.jobs.load import Columns, Load, load

        job = Load(
            cluster.servers,
            source,
            target.topic,
            Columns(columns.key, columns.value, columns.partition, columns.timestamp),
            partitions=target.partitions,
            checkpoint=stream.checkpoint,
            files_per_transaction=stream.files,
            follow=stream.follow,
            trigger=stream.trigger,
            compression=target.compression,
        )
        show_result(spark, time.monotonic(), load(session, job))
