"""`barnabas pipeline audit`: whether a cluster lost, repeated or changed anything, by the files of its brokers."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table
from barnabas.cli.pipeline_options import SparkOptions
from barnabas.cli.pipeline_segments import Directories, LogBootstrap, Topic
from barnabas.cli.pipeline_session import spark_session, tell

COLUMNS = (
    *("topic", "partition", "start", "end", "records", "aborted", "markers", "compacted", "lost"),
    *("digest", "found"),
)


@grouped
def command(
    directories: Directories,
    topic: Topic = None,
    bootstrap: LogBootstrap = None,
    acks: Annotated[
        str | None,
        typer.Option(
            "--acks",
            metavar="PATH",
            help="What producers were told: Parquet or JSON lines of topic, partition, offset (and value), or a run of"
            " the fault injection suite.",
        ),
    ] = None,
    *,
    spark: SparkOptions,
) -> None:
    """Checks a cluster by the files of all its brokers, below the high watermark, and believes none of them.

    Each offset has to be accounted for, replicas to be equal, sequences of producers to be whole, and acknowledged
    records to be there. Exit code 1 if something is not.
    """
    with spark_session(spark, "audit") as session:
        from barnabas.pipeline.jobs import audit as jobs
        from barnabas.pipeline.segment_plan import SegmentOptions

        began = time.monotonic()
        options = SegmentOptions(tuple(directories), subscribe=topic or "", bootstrap=bootstrap or "")
        found = jobs.audit(session, options, acks)
    account = {**found.to_json(), "seconds": round(time.monotonic() - began, 2)}
    if spark.as_json:
        show_json(account)
    else:
        show_table(COLUMNS, jobs.table(found.accounts))
        told = {"partitions": len(found.accounts), "records": sum(each.records for each in found.accounts)}
        of_acks = {f"acks {name}": count for name, count in (account["acks"] or {}).items()}
        tell({**told, **of_acks, "sound": found.is_sound, "seconds": account["seconds"]}, False)
        for finding in found.findings:
            typer.echo(str(finding), err=True)
    if not found.is_sound:
        raise typer.Exit(1)
