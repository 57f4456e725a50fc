"""`barnabas pipeline segments`: the logs in brokers' directories, read by no broker."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table
from barnabas.cli.pipeline_options import SparkOptions
from barnabas.cli.pipeline_session import spark_session, tell

Directories = Annotated[
    list[str],
    typer.Argument(metavar="DIR", help="Log dirs of brokers, or what has some in it, or single partitions."),
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC,…", help="All but internal ones unless set.")]
LogBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        help="Of the cluster, while it is up: says how far logs count. Their checkpoints do unless set.",
    ),
]
COLUMNS = ("topic", "partition", "node", "from", "until", "records", "aborted", "markers", "batches", "bytes", "tasks")


@grouped
def command(  # noqa: PLR0913, PLR0917 - options of a command
    directories: Directories,
    topic: Topic = None,
    bootstrap: LogBootstrap = None,
    to: Annotated[str | None, typer.Option("--to", metavar="DIR", help="Write the records there as Parquet.")] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Also records of transactions that are open or were aborted.")
    ] = False,
    skip_corrupt: Annotated[bool, typer.Option("--skip-corrupt", help="With --to: write what can be read.")] = False,
    split_bytes: Annotated[
        int, typer.Option("--split-bytes", min=1, metavar="N", help="Larger segments are several tasks.")
    ] = 128 * 1024 * 1024,
    *,
    spark: SparkOptions,
) -> None:
    """What is in the logs of stopped or running brokers, read in parallel from their files.

    Counts what a reader would be given, below the high watermark, and tells what is torn or corrupt: exit code 1 then.
    """
    with spark_session(spark, "segments") as session:
        from barnabas.client.offset_lookup import Isolation
        from barnabas.pipeline.jobs import segments as jobs
        from barnabas.pipeline.segment_plan import SegmentOptions

        began = time.monotonic()
        isolation = Isolation.READ_UNCOMMITTED if uncommitted else Isolation.READ_COMMITTED
        options = SegmentOptions(
            tuple(directories),
            subscribe=topic or "",
            bootstrap=bootstrap or "",
            isolation=isolation,
            split_bytes=split_bytes,
            skip_corrupt=skip_corrupt,
        )
        account = jobs.account(*jobs.surveyed(session, options))
        if to is not None and (skip_corrupt or not account["faults"]):
            account["written"] = jobs.export(session, options, to)
            account["to"] = to
    account["seconds"] = round(time.monotonic() - began, 2)
    if spark.as_json:
        show_json(account)
    else:
        show_table(COLUMNS, [tuple(row[name] for name in COLUMNS) for row in account["partitions"]])
        tell({name: account.get(name) for name in ("records", "written", "to", "seconds")}, False)
        for fault in account["faults"]:
            typer.echo(fault, err=True)
    if account["faults"]:
        raise typer.Exit(1)
