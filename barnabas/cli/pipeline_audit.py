"""`barnabas pipeline audit`: whether a cluster lost, repeated or changed records, judged by its brokers' files."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table
from barnabas.cli.pipeline_options import SparkOptions
from barnabas.cli.pipeline_segments import Directories, LogCluster, Topics
from barnabas.cli.pipeline_session import show_account, spark_session

COLUMNS = (
    *("topic", "partition", "start", "end", "records", "aborted", "markers", "compacted", "lost"),
    *("digest", "found"),
)


@grouped
def command(
    directories: Directories,
    topic: Topics = None,
    acks: Annotated[
        str | None,
        typer.Option(
            "--acks",
            metavar="PATH",
            help="Acknowledged records to look for: Parquet or JSON lines of topic, partition, offset (and value), or"
            " the directory of a fault injection run.",
        ),
    ] = None,
    *,
    cluster: LogCluster,
    spark: SparkOptions,
) -> None:
    """Audit a cluster by the files of all its brokers, up to the high watermark.

    Checks that each offset is accounted for, that replicas are equal, that producers' sequences have no gap, and that
    acknowledged records are there. Exit code 1 if any check fails.
    """
    with spark_session(spark, "audit") as session:
        from barnabas.pipeline.jobs import audit as jobs
        from barnabas.pipeline.segment_plan import SegmentOptions

        began = time.monotonic()
        options = SegmentOptions(tuple(directories), subscribe=topic or "", bootstrap=cluster.access())
        found = jobs.audit(session, options, acks)
    account = {**found.to_json(), "seconds": round(time.monotonic() - began, 2)}
    if spark.as_json:
        show_json(account)
    else:
        show_table(COLUMNS, jobs.table(found.accounts))
        totals = {"partitions": len(found.accounts), "records": sum(each.records for each in found.accounts)}
        of_acks = {f"acks {name}": count for name, count in (account["acks"] or {}).items()}
        show_account({**totals, **of_acks, "sound": found.is_sound, "seconds": account["seconds"]}, False)
        for finding in found.findings:
            typer.echo(str(finding), err=True)
    if not found.is_sound:
        raise typer.Exit(1)
