"""Options that the commands of the pipeline share: which cluster, which Spark, where progress is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from barnabas.cli.connection import AsJson
from barnabas.cli.options import DEFAULT_DATA, Data, bootstrap_from, pairs_from

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        show_envvar=False,
        metavar="HOST:PORT,…",
        help="Brokers to begin with; the cluster in --data unless set.",
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Where the job keeps how far it is; the same command goes on from there.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", envvar="SPARK_MASTER", show_envvar=False, metavar="URL", help="Of Spark; local[*]."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster."""

    bootstrap: Bootstrap = None
    data: Data = DEFAULT_DATA

    @property
    def servers(self) -> str:
        """HOST:PORT,… Raises `WrongArgument`."""
        if self.bootstrap is not None:
            return self.bootstrap
        return ",".join(f"{host}:{port}" for host, port in bootstrap_from(None, self.data))


@dataclass(frozen=True)
class SparkOptions:
    """Which Spark, and how the account of the job is told."""

    master: Master = None
    conf: Conf = None
    as_json: AsJson = False

    @property
    def settings(self) -> dict[str, str]:
        """Raises `WrongArgument`."""
        return pairs_from("--conf", self.conf)
