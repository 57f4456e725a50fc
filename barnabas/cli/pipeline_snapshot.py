"""`barnabas pipeline snapshot`: the latest value of each key as Parquet."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from barnabas.cli.option_group import grouped
from barnabas.cli.pipeline_options import ClusterOptions, SparkOptions, Topic, ValueSchema
from barnabas.cli.pipeline_session import show_result, spark_session


@grouped
def command(
    topic: Topic,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Output directory; it must not exist.")],
    value_schema: ValueSchema = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output directory if it exists.")] = False,
    *,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """Write the latest value of each key as Parquet, without deleted keys."""
    with spark_session(spark, "snapshot") as session:
        from barnabas.pipeline.jobs.snapshot import Snapshot, snapshot

        job = Snapshot(cluster.servers, topic, to, value_schema, overwrite)
        show_result(spark, time.monotonic(), snapshot(session, job))
