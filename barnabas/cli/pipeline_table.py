"""`barnabas pipeline table`: a topic into a table of `barnabas lake`, by Spark."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from barnabas.cli.lake import CatalogOptions, catalog_address, require_packages
from barnabas.cli.option_group import grouped
from barnabas.cli.pipeline_options import ClusterOptions, SparkOptions, Topic
from barnabas.cli.pipeline_session import show_result, spark_session


@grouped
def command(
    topic: Topic,
    table: Annotated[str, typer.Option("--table", metavar="NAMESPACE.NAME", help="Table in key_value mode.")],
    records_per_task: Annotated[
        int, typer.Option("--records-per-task", metavar="N", min=1, help="Maximum number of offsets per task.")
    ] = 1_000_000,
    *,
    catalog: CatalogOptions,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """Add the records that are committed now to a table of `barnabas lake`, in one commit.

    Takes turns with `barnabas lake run`: whichever comes next continues after what the table has.
    """
    require_packages()
    address = catalog_address(catalog)
    with spark_session(spark, "table") as session:
        from barnabas.pipeline.jobs.table import TableJob, fill

        job = TableJob(
            cluster.servers,
            topic,
            table,
            address.uri,
            address.warehouse,
            address.properties,
            records_per_task,
        )
        show_result(spark, time.monotonic(), fill(session, job))
