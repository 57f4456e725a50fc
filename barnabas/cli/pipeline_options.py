"""Options that several commands of the pipeline share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson, ClientConfig, Connection
from barnabas.cli.options import DEFAULT_DATA, Data, pairs_from
from barnabas.cli.times import parse_time

if TYPE_CHECKING:
    from barnabas.pipeline.cluster_access import ClusterAccess

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        show_envvar=False,
        metavar="HOST:PORT,…",
        help="Bootstrap servers; default: the cluster in --data.",
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Keep the job's progress in this directory; the same command resumes from it.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", envvar="SPARK_MASTER", show_envvar=False, metavar="URL", help="Spark master; default: local[*]."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Set a Spark property; may be repeated."),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)]
ValueSchema = Annotated[
    str | None,
    typer.Option(
        "--value-schema",
        metavar="COLUMNS",
        help="Read values as JSON with these columns, e.g. 'year INT, dest STRING'; default: keep bytes.",
    ),
]
Trigger = Annotated[
    str | None,
    typer.Option("--trigger", metavar="TIME", help="With --follow: start a batch this often, e.g. '10 seconds'."),
]
Compression = Annotated[
    str,
    typer.Option("--compression", "-z", metavar="NAME", help="Compression of batches: none, gzip, snappy, lz4, zstd."),
]
RecordsPerFile = Annotated[
    int, typer.Option("--records-per-file", min=1, metavar="N", help="Maximum number of offsets per Parquet file.")
]


@dataclass(frozen=True)
class ClusterOptions:
    bootstrap: Bootstrap = None
    data: Data = DEFAULT_DATA
    client_config: ClientConfig = None

    @property
    def servers(self) -> ClusterAccess:
        """Servers and security settings. Raises `WrongArgument`."""
        return cluster_access(Connection(self.bootstrap, self.data, self.client_config))


@dataclass(frozen=True)
class SparkOptions:
    """The Spark session of a command, and the form of its output."""

    master: Master = None
    conf: Conf = None
    as_json: AsJson = False

    @property
    def settings(self) -> dict[str, str]:
        """Raises `WrongArgument`."""
        return pairs_from("--conf", self.conf)


def cluster_access(connection: Connection) -> ClusterAccess:
    """The cluster of these options. Raises `WrongArgument`."""
    from barnabas.pipeline.cluster_access import ClusterAccess

    servers = connection.settings(["bootstrap_servers"])["bootstrap_servers"]
    security = connection.security().given_values()
    return ClusterAccess(servers if isinstance(servers, str) else ",".join(servers), security)


def optional_time(option: str, text: str | None) -> int | None:
    """Milliseconds since 1970. Raises `WrongArgument`."""
    return None if text is None else parse_time(option, text)
