"""`barnabas lake`: topics as Iceberg tables."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import complain, show_json, show_table, show_text
from barnabas.cli.session import run_connected
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.lake.catalogs import CatalogAddress
    from barnabas.lake.config import LakeConfig, LakeFile
    from barnabas.lake.iceberg import IcebergTable
    from barnabas.lake.progress import Progress
    from barnabas.lake.verdict import Verdict

app = typer.Typer(rich_markup_mode=None, help="Topics as Iceberg tables, each committed record exactly once.")


@dataclass(frozen=True)
class CatalogOptions:
    """Options that name the catalogue."""

    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="URL",
            envvar="BARNABAS_LAKE_CATALOG",
            show_envvar=False,
            help="Iceberg catalogue: https://… (REST), sqlite:///FILE or another database, or a name in pyiceberg's"
            " configuration.",
        ),
    ] = None
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            metavar="PLACE",
            envvar="BARNABAS_LAKE_WAREHOUSE",
            show_envvar=False,
            help="Directory or URL (s3://…) for new tables.",
        ),
    ] = None
    catalog_property: Annotated[
        list[str] | None,
        typer.Option(
            "--catalog-property", metavar="NAME=VALUE", help="As pyiceberg takes it, e.g. s3.endpoint=…; repeatable."
        ),
    ] = None


@dataclass(frozen=True)
class RunOptions:
    """Options on how tables are written."""

    table: Annotated[
        str | None,
        typer.Option("--table", metavar="NAMESPACE.NAME", help="Table of a single topic; default: topics.TOPIC."),
    ] = None
    mode: Annotated[str, typer.Option("--mode", metavar="MODE", help="key_value, json or avro.")] = "key_value"
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME=TYPE", help="Field of JSON values, e.g. price=double; repeatable."),
    ] = None
    commit_interval: Annotated[
        float | None,
        typer.Option("--commit-interval", metavar="SECONDS", min=0.0, help="Time between commits; default: 60."),
    ] = None
    schema_registry: Annotated[
        str | None,
        typer.Option("--schema-registry", metavar="URL", envvar="BARNABAS_SCHEMA_REGISTRY", show_envvar=False),
    ] = None
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="Continue after records that retention deleted before the table had them."),
    ] = False
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when the tables have what the topics have now.")
    ] = False


@app.command("run")
@grouped
def run_(
    sources: Annotated[list[str], typer.Argument(metavar="CONFIG|TOPIC…", help="A file.toml, or topics.")],
    as_json: AsJson = False,
    *,
    options: RunOptions,
    catalog: CatalogOptions,
    connection: Connection,
) -> None:
    """Write topics into tables until Ctrl-C, or with --available-now up to the current ends."""
    require_packages()
    file = _file_of(sources)
    config = _config(sources, file, options, catalog)
    own = {"bootstrap_servers": file.bootstrap_servers} if file is not None and file.bootstrap_servers else {}
    clients = _clients(connection, own)

    def claimed(table: str, progress: Progress) -> None:
        offsets = ", ".join(f"{partition}:{offset}" for partition, offset in progress.offsets.items())
        line = f"{table}: writing from offsets {offsets} on, epoch {progress.epoch}"
        (complain if as_json else show_text)(line)
        sys.stdout.flush()

    async def work() -> None:
        from barnabas.lake.running import run_lake

        accounts = await run_lake(config, clients, available_now=options.available_now, claimed=claimed)
        if as_json:
            show_json(
                {
                    table: {
                        "records": account.records,
                        "commits": account.commits,
                        "dead letters": account.dead_letters,
                        "compacted files": account.compacted_files,
                    }
                    for table, account in accounts.items()
                }
            )
        else:
            for table, account in accounts.items():
                dead = f", {account.dead_letters} dead letters" if account.dead_letters else ""
                show_text(f"{table}: {account.records} records in {account.commits} commits{dead}")

    run_connected(connection, work)


@app.command()
@grouped
def status(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE…")],
    as_json: AsJson = False,
    *,
    catalog: CatalogOptions,
    connection: Connection,
) -> None:
    """Show which offsets tables have, and how far their topics are ahead."""
    require_packages()
    from barnabas.lake.checking import lag_of, progress_of_table

    rows: list[dict[str, Any]] = []

    async def each(cluster: Cluster, table: IcebergTable) -> None:
        progress = await progress_of_table(table)
        rows.append(
            {
                "table": table.name,
                "topic": progress.topic,
                "epoch": progress.epoch,
                "commit": progress.commit_id,
                "offsets": {str(partition): offset for partition, offset in progress.offsets.items()},
                "lag": await lag_of(cluster, table.name, progress),
            }
        )

    _with_tables(tables, catalog, connection, each)
    if as_json:
        show_json(rows)
        return
    titles = ("TABLE", "TOPIC", "EPOCH", "LAG", "OFFSETS")
    show_table(
        titles,
        [
            (
                row["table"],
                row["topic"],
                row["epoch"],
                row["lag"],
                ",".join(f"{p}:{o}" for p, o in row["offsets"].items()),
            )
            for row in rows
        ],
    )


@app.command()
@grouped
def check(
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    as_json: AsJson = False,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="The topic is compacted: rows without a record are no fault.")
    ] = False,
    *,
    catalog: CatalogOptions,
    connection: Connection,
) -> None:
    """Compare a table with its topic: each committed record is there once. Exit code 1 if it is not so."""
    require_packages()
    from barnabas.lake.checking import check as compare

    verdicts: list[Verdict] = []

    async def each(cluster: Cluster, found: IcebergTable) -> None:
        verdicts.append(await compare(cluster, found, is_compacted=compacted))

    _with_tables([table], catalog, connection, each)
    [verdict] = verdicts
    if as_json:
        show_json(asdict(verdict))
    else:
        show_text(
            f"{table}: {verdict.records} records, {verdict.compared} of them compared with the topic;"
            f" {verdict.dead_letters} dead letters"
        )
    if verdict.findings:
        raise ClusterError("; ".join(verdict.findings))


def _with_tables(
    names: list[str],
    catalog: CatalogOptions,
    connection: Connection,
    work: Callable[[Cluster, IcebergTable], Awaitable[None]],
) -> None:
    from barnabas.client.admin.settings import AdminSettings
    from barnabas.client.session import open_cluster
    from barnabas.lake.catalogs import existing_table, open_catalog

    address = catalog_address(catalog)
    clients = _clients(connection, {})

    async def session() -> None:
        import trio

        opened = await trio.to_thread.run_sync(open_catalog, address)
        async with open_cluster(AdminSettings.of(clients)) as cluster:
            for name in names:
                run_blocking = cluster.world.run_blocking
                await work(cluster, await run_blocking(partial(existing_table, opened, name, run_blocking)))

    run_connected(connection, session)


def _clients(connection: Connection, own: dict[str, Any]) -> dict[str, Any]:
    """Settings of the client of the cluster."""
    from barnabas.client.admin.settings import AdminSettings

    clients = connection.settings(AdminSettings.model_fields, **(own if connection.bootstrap is None else {}))
    clients["client_id"] = "barnabas-lake"
    clients.pop("default_api_timeout_ms", None)
    clients["request_timeout_ms"] = connection.timeout_ms
    return clients


def _file_of(sources: list[str]) -> LakeFile | None:
    from barnabas.lake.config import read_file

    if len(sources) == 1 and sources[0].endswith(".toml"):
        return read_file(Path(sources[0]))
    return None


def _config(sources: list[str], file: LakeFile | None, options: RunOptions, catalog: CatalogOptions) -> LakeConfig:
    from barnabas.lake.config import LakeConfig, tables_of
    from barnabas.lake.topic_lake import Habits

    habits = Habits()
    if file is not None:
        tables, habits = file.tables, file.habits
    else:
        if options.table is not None and len(sources) > 1:
            raise WrongArgument("--table is for a single topic; for several write a file.toml")
        columns = _columns(options.column) if options.column else None
        settings = {"table": options.table or "", "mode": options.mode, "columns": columns}
        tables = tables_of(sources, settings)
    if options.commit_interval is not None:
        rhythm = replace(habits.rhythm, commit_interval_ms=round(options.commit_interval * 1000))
        habits = replace(habits, rhythm=rhythm)
        tables = [each.model_copy(update={"commit_interval_ms": None}) for each in tables]
    address = catalog_address(catalog, file)
    registry = options.schema_registry or (file.schema_registry if file is not None else "")
    return LakeConfig(address, tables, habits, options.skip_lost, registry)


def _columns(texts: list[str]) -> dict[str, str]:
    columns = {}
    for text in texts:
        name, equals, kind = text.partition("=")
        if not equals or not name or not kind:
            raise WrongArgument(f"--column {text}: not NAME=TYPE, as in price=double")
        columns[name] = kind
    return columns


def catalog_address(options: CatalogOptions, file: LakeFile | None = None) -> CatalogAddress:
    """The catalogue of the options, else of the file. Raises `WrongArgument`."""
    from barnabas.lake.catalogs import CatalogAddress

    in_file = None if file is None else file.catalog
    uri = options.catalog or (in_file.uri if in_file is not None else "")
    if not uri:
        raise WrongArgument("which catalogue? --catalog URL, BARNABAS_LAKE_CATALOG, or [catalog] in the file")
    properties = dict(in_file.properties) if in_file is not None else {}
    for text in options.catalog_property or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WrongArgument(f"--catalog-property {text}: not NAME=VALUE, as in s3.region=eu-west-1")
        properties[name] = value
    return CatalogAddress(uri, options.warehouse or (in_file.warehouse if in_file is not None else ""), properties)


def require_packages() -> None:
    """Raises `ClusterError` if a package of the extra `lake` is missing."""
    try:
        import numpy
        import pyarrow
        import pyiceberg
        import sqlalchemy
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"the lake needs the package {error.name}: install the extra `lake`, in a checkout `pip install '.[lake]'`"
        ) from None
    del numpy, pyarrow, pyiceberg, sqlalchemy
