"""The commands of `barnabas pipeline`: data between topics and Parquet, by Spark, each command a job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table, show_text
from barnabas.cli.pipeline_options import Checkpoint, ClusterOptions, SparkOptions
from barnabas.cli.pipeline_session import spark_session, tell, told
from barnabas.cli.times import parse_time
from barnabas.cluster.errors import WrongArgument

app = typer.Typer(rich_markup_mode=None)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)]
ValueSchema = Annotated[
    str | None,
    typer.Option(
        "--value-schema", metavar="COLUMNS", help="Read values as JSON of these, as in 'year INT, dest STRING'."
    ),
]
Trigger = Annotated[
    str | None, typer.Option("--trigger", metavar="TIME", help="How often a batch begins, as in '10 seconds'.")
]
Compression = Annotated[
    str, typer.Option("--compression", "-z", metavar="NAME", help="none, gzip, snappy, lz4 or zstd.")
]
RecordsPerFile = Annotated[int, typer.Option("--records-per-file", min=1, metavar="N", help="At most so many.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="From the first record that is not older.")]
OfTime = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only records that are not older.")]
OlderThan = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only records that are older.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to the first record that is not older.")]


@app.command("load")
@grouped
def load(  # noqa: PLR0913, PLR0917 - options of a command
    source: Annotated[str, typer.Argument(metavar="PARQUET", help="A file, a folder or a pattern.")],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", autocompletion=completion.topics)],
    key: Annotated[
        str | None, typer.Option("--key", metavar="COLUMN", help="The record's key; none unless set.")
    ] = None,
    value: Annotated[str, typer.Option("--value", metavar="COLUMN|json", help="json is the whole row.")] = "json",
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="COLUMN", help="By its key unless set.")
    ] = None,
    timestamp: Annotated[str | None, typer.Option("--timestamp", metavar="COLUMN", help="Now unless set.")] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, metavar="N", help="Of the topic, if it has to be made.")
    ] = None,
    files: Annotated[int, typer.Option("--files-per-transaction", min=1, metavar="N", help="With --checkpoint.")] = 16,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more files.")] = False,
    trigger: Trigger = None,
    compression: Compression = "none",
    checkpoint: Checkpoint = None,
    *,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """Parquet to a topic, exactly once.

    With --checkpoint the same command goes on where it was; without, all of it is one transaction.
    """
    with spark_session(spark, "load") as session:
        from barnabas.pipeline.jobs.load import Columns, Load
        from barnabas.pipeline.jobs.load import load as run

        columns = Columns(key, value, partition, timestamp)
        job = Load(cluster.servers, source, topic, columns, partitions, checkpoint, files, follow, trigger, compression)
        _tell(spark, time.monotonic(), run(session, job))


@app.command("export")
@grouped
def export(  # noqa: PLR0913, PLR0917 - options of a command
    topic: Topic,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The lake: topic, partition and date are folders.")],
    value_schema: ValueSchema = None,
    since: Since = None,
    until: Until = None,
    records_per_file: RecordsPerFile = 1_000_000,
    follow: Annotated[bool, typer.Option("--follow", help="A stream: goes on until Ctrl-C.")] = False,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="With --follow: until the end that there is now.")
    ] = False,
    trigger: Trigger = None,
    max_offsets: Annotated[
        int | None, typer.Option("--max-offsets", min=1, metavar="N", help="With --follow: at most so many in a batch.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="With --follow: shows its lag to whoever asks.")
    ] = None,
    fail_on_data_loss: Annotated[
        bool,
        typer.Option("--fail-on-data-loss/--no-fail-on-data-loss", help="With --follow: offsets that are gone end it."),
    ] = True,
    checkpoint: Checkpoint = None,
    *,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """A topic to Parquet: what is there now, or a stream.

    The next batch into the same folder goes on behind the last; progress is kept in DIR/_barnabas unless --checkpoint
    says where.
    """
    if not follow and (
        given := _given(
            {"--available-now": available_now, "--trigger": trigger, "--group": group, "--max-offsets": max_offsets}
        )
    ):
        raise WrongArgument(f"{given} is for --follow")
    if available_now and trigger is not None:
        raise WrongArgument("--trigger says how often, and --available-now ends by itself: leave out one of them")
    if follow and (given := _given({"--since": since, "--until": until})):
        raise WrongArgument(f"{given} is for batches, without --follow")
    with spark_session(spark, "export") as session:
        from barnabas.pipeline.jobs import export as jobs

        began = time.monotonic()
        if follow:
            stream = jobs.Follow(
                cluster.servers,
                topic,
                to,
                checkpoint,
                value_schema,
                group,
                trigger,
                max_offsets,
                available_now,
                not fail_on_data_loss,
            )
            _tell(spark, began, jobs.follow(session, stream))
        else:
            batch = jobs.Export(
                cluster.servers,
                topic,
                to,
                checkpoint,
                value_schema,
                _time("--since", since),
                _time("--until", until),
                records_per_file,
            )
            _tell(spark, began, jobs.export(session, batch))


@app.command("replay")
@grouped
def replay(  # noqa: PLR0913, PLR0917 - options of a command
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", autocompletion=completion.topics, show_default=False)
    ] = None,
    ranges: Annotated[
        str | None, typer.Option("--ranges", metavar="LIST", help="PARTITION:START-END,…; END is not in it.")
    ] = None,
    since: OfTime = None,
    until: OlderThan = None,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", metavar="FILE", help="Topic and ranges as JSON, instead.")
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="TOPIC", help="Another topic; needs --checkpoint.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="DIR", help="Parquet, as export writes it.")] = None,
    by_key: Annotated[bool, typer.Option("--by-key", help="With --into: keys choose partitions anew.")] = False,
    value_schema: ValueSchema = None,
    records_per_file: RecordsPerFile = 1_000_000,
    compression: Compression = "none",
    checkpoint: Checkpoint = None,
    *,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """Records of the past into another topic, or as Parquet.

    What is replayed is decided once, and kept as offsets: the same command goes on where it was.
    """
    with spark_session(spark, "replay") as session:
        from barnabas.pipeline.jobs import replay as jobs

        began = time.monotonic()
        chosen, wanted = _wanted(topic, ranges, (since, until), manifest)
        job = jobs.Replay(
            cluster.servers, chosen, wanted, into, to, checkpoint, value_schema, by_key, records_per_file, compression
        )
        _tell(spark, began, jobs.replay(session, job))


@app.command("snapshot")
@grouped
def snapshot(
    topic: Topic,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="A folder that is not there yet.")],
    value_schema: ValueSchema = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    *,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """The latest value of each key as Parquet, without the keys that were removed."""
    with spark_session(spark, "snapshot") as session:
        from barnabas.pipeline.jobs.snapshot import Snapshot
        from barnabas.pipeline.jobs.snapshot import snapshot as run

        job = Snapshot(cluster.servers, topic, to, value_schema, overwrite)
        _tell(spark, time.monotonic(), run(session, job))


@app.command("lag")
@grouped
def lag(
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GROUP", autocompletion=completion.groups, help="May be repeated."),
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option("--checkpoint", metavar="DIR", help="Of a job, or the folder it exports to; may be repeated."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Its partitions too, if nothing was read.")
    ] = None,
    *,
    cluster: ClusterOptions,
    spark: SparkOptions,
) -> None:
    """How far jobs and groups are behind the ends of their topics. It reads only.

    Needs no Spark, unless a checkpoint is not on this machine.
    """
    with told():
        from barnabas.pipeline.blocking import BlockingCluster
        from barnabas.pipeline.files import files_for, is_elsewhere
        from barnabas.pipeline.jobs import lag as jobs

        folders = checkpoint or []
        if any(map(is_elsewhere, folders)):
            with spark_session(spark, "lag") as session:
                places = [files_for(session, each) for each in folders]
                found = _lags(cluster.servers, group or [], places, topic or [])
        else:
            places = [files_for(None, each) for each in folders]
            with BlockingCluster(cluster.servers) as view:
                found = jobs.lags(view, group or [], places, topic or [])
    if spark.as_json:
        show_json({"partitions": [each.to_json() for each in found], "lag": jobs.total(found)})
        return
    titles = ("reader", "topic", "partition", "position", "start", "end", "lag")
    show_table(titles, [tuple(each.to_json().values()) for each in found])
    for name in group or []:
        if not any(each.reader == jobs.reader_of_group(name) for each in found):
            show_text(f"group {name} has committed nothing, or there is no such group")


@app.command("generate")
@grouped
def generate(  # noqa: PLR0913, PLR0917 - options of a command
    to: Annotated[Path, typer.Argument(metavar="DIR", help="A folder for Parquet.")],
    records: Annotated[int, typer.Option("--records", "-n", min=1, help="How many.")] = 100_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same data.")] = 0,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="orders, or records (key, value).")] = "orders",
    keys: Annotated[int, typer.Option("--keys", min=1, metavar="N", help="Different ones.")] = 1_000,
    size: Annotated[int, typer.Option("--size", min=0, metavar="BYTES", help="Of each value of `records`.")] = 100,
    files: Annotated[int, typer.Option("--files", min=1, metavar="N", help="So many.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Data by seed, to try things with: orders of customers, or plain records. Needs no Spark."""
    if kind not in ("orders", "records"):
        raise WrongArgument(f"--kind {kind}: there are orders and records")
    with told():
        _require("pyarrow")
        from barnabas.pipeline.generator import Recipe, write_parquet

        if to.exists() and any(to.iterdir()):
            raise WrongArgument(f"{to} is not empty; take another folder")
        recipe = Recipe(kind=kind, records=records, seed=seed, keys=keys, value_bytes=size)  # type: ignore[arg-type]
        began = time.monotonic()
        written = write_parquet(recipe, to, files)
    size_bytes = sum(path.stat().st_size for path in written)
    account = {"to": str(to), "records": records, "files": len(written), "bytes": size_bytes}
    tell({**account, "seconds": round(time.monotonic() - began, 2)}, as_json)


def _lags(servers: str, groups: list[str], places: Any, topics: list[str]) -> Any:
    from barnabas.pipeline.blocking import BlockingCluster
    from barnabas.pipeline.jobs.lag import lags

    with BlockingCluster(servers) as view:
        return lags(view, groups, places, topics)


def _wanted(topic: str | None, ranges: str | None, times: tuple[str | None, str | None], path: Path | None) -> Any:
    """The topic, and what of it is asked for. Raises WrongUse, WrongArgument."""
    from barnabas.pipeline.jobs.plan import read_document
    from barnabas.pipeline.jobs.replay import Manifest, Wanted, parse_ranges

    if path is not None:
        if topic is not None or ranges is not None or any(times):
            raise WrongArgument("--manifest says topic and ranges; leave out the others")
        manifest: Manifest = read_document(Manifest, path.read_text(), str(path))
        return manifest.topic, tuple(manifest.ranges)
    if topic is None:
        raise WrongArgument("which topic? Give TOPIC, or --manifest FILE")
    if ranges is not None:
        if any(times):
            raise WrongArgument("--ranges are offsets; give times in a --manifest beside offsets")
        return topic, parse_ranges(ranges)
    since, until = times
    return topic, (Wanted(since_ms=_time("--since", since), until_ms=_time("--until", until)),)


def _time(option: str, text: str | None) -> int | None:
    return None if text is None else parse_time(option, text)


def _given(options: Mapping[str, object]) -> str:
    return ", ".join(name for name, value in options.items() if value not in (None, False))


def _require(module: str) -> None:
    from barnabas.pipeline.errors import PipelineError

    if find_spec(module) is None:
        raise PipelineError(f"{module} is not installed: pip install 'barnabas[pipeline]'")


def _tell(spark: SparkOptions, began: float, account: Mapping[str, Any]) -> None:
    tell({**account, "seconds": round(time.monotonic() - began, 2)}, spark.as_json)


def _add(name: str) -> None:
    """A command of a file of its own, if that is there."""
    module = f"barnabas.cli.pipeline_{name}"
    if find_spec(module) is not None:
        app.command(name)(import_module(module).command)


for _name in ("segments", "audit", "history"):
    _add(_name)
