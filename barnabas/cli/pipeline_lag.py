"""`barnabas pipeline lag`: how far jobs and groups are behind the ends of their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table, show_text
from barnabas.cli.pipeline_options import ClusterOptions, SparkOptions
from barnabas.cli.pipeline_session import errors_in_one_line, spark_session

if TYPE_CHECKING:
    from barnabas.pipeline.cluster_access import ClusterAccess


@grouped
def command(
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="GROUP", autocompletion=completion.groups, help="Consumer group; may be repeated."
        ),
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint", metavar="DIR", help="Checkpoint of a job, or its output directory; may be repeated."
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Also list partitions of this topic without any progress."),
    ] = None,
    *,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """Show the lag of jobs and consumer groups. Changes nothing.

    Needs no Spark unless a checkpoint is on a remote file system.
    """
    with errors_in_one_line():
        from barnabas.pipeline.files import files_for, is_remote
        from barnabas.pipeline.jobs import lag as jobs

        folders, groups, topics = checkpoint or [], group or [], topic or []
        if any(map(is_remote, folders)):
            with spark_session(spark, "lag") as session:
                found = _lags(cluster.servers, groups, [files_for(session, each) for each in folders], topics)
        else:
            found = _lags(cluster.servers, groups, [files_for(None, each) for each in folders], topics)
    if spark.as_json:
        show_json({"partitions": [each.to_json() for each in found], "lag": jobs.total(found)})
        return
    titles = ("reader", "topic", "partition", "position", "start", "end", "lag")
    show_table(titles, [tuple(each.to_json().values()) for each in found])
    for name in groups:
        if not any(each.reader == jobs.reader_of_group(name) for each in found):
            show_text(f"group {name} has no committed offsets, or does not exist")


def _lags(servers: ClusterAccess, groups: list[str], places: Any, topics: list[str]) -> Any:
    from barnabas.pipeline.blocking_cluster import BlockingCluster
    from barnabas.pipeline.jobs.lag import lags

    with BlockingCluster(servers) as view:
        return lags(view, groups, places, topics)
