"""`barnabas pipeline segments`: read the log segments in brokers' directories without a broker."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import ClientConfig, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table
from barnabas.cli.pipeline_options import SparkOptions, cluster_access
from barnabas.cli.pipeline_session import show_account, spark_session

if TYPE_CHECKING:
    from barnabas.pipeline.cluster_access import Bootstrap

Directories = Annotated[
    list[str],
    typer.Argument(metavar="DIR", help="Log directories of brokers, directories above them, or single partitions."),
]
Topics = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC,…", help="Topics to read; default: all but internal ones.")
]
LogBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        help="Bootstrap servers. If set, high watermarks are asked of the cluster, not read from checkpoint files.",
    ),
]

COLUMNS = ("topic", "partition", "node", "from", "until", "records", "aborted", "markers", "batches", "bytes", "tasks")


@dataclass(frozen=True)
class LogCluster:
    """Options for the cluster to ask for high watermarks."""

    bootstrap: LogBootstrap = None
    client_config: ClientConfig = None

    def access(self) -> Bootstrap:
        """Empty without `--bootstrap`."""
        if not self.bootstrap:
            return ""
        return cluster_access(Connection(self.bootstrap, client_config=self.client_config))


@dataclass(frozen=True)
class ReadingOptions:
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Include records of open and aborted transactions.")
    ] = False
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="With --to: skip unreadable batches and write the rest.")
    ] = False
    split_bytes: Annotated[
        int, typer.Option("--split-bytes", min=1, metavar="N", help="Split larger segments into several tasks.")
    ] = 128 * 1024 * 1024


@grouped
def command(
    directories: Directories,
    topic: Topics = None,
    to: Annotated[str | None, typer.Option("--to", metavar="DIR", help="Write the records as Parquet.")] = None,
    *,
    cluster: LogCluster,
    reading: ReadingOptions,
    spark: SparkOptions,
) -> None:
    """Read the logs of stopped or running brokers in parallel, from their files.

    Counts the records that a consumer would get, up to the high watermark. Reports torn and corrupt batches, with exit
    code 1.
    """
    with spark_session(spark, "segments") as session:
        from barnabas.client.offset_lookup import Isolation
        from barnabas.pipeline.jobs import segments as jobs
        from barnabas.pipeline.segment_plan import SegmentOptions

        began = time.monotonic()
        options = SegmentOptions(
            tuple(directories),
            subscribe=topic or "",
            bootstrap=cluster.access(),
            isolation=Isolation.READ_UNCOMMITTED if reading.uncommitted else Isolation.READ_COMMITTED,
            split_bytes=reading.split_bytes,
            skip_corrupt=reading.skip_corrupt,
        )
        account = jobs.account(*jobs.surveyed(session, options))
        if to is not None and (reading.skip_corrupt or not account["faults"]):
            account["written"] = jobs.export(session, options, to)
            account["to"] = to
    account["seconds"] = round(time.monotonic() - began, 2)
    if spark.as_json:
        show_json(account)
    else:
        show_table(COLUMNS, [tuple(row[name] for name in COLUMNS) for row in account["partitions"]])
        show_account({name: account.get(name) for name in ("records", "written", "to", "seconds")}, False)
        for fault in account["faults"]:
            typer.echo(fault, err=True)
    if account["faults"]:
        raise typer.Exit(1)
