"""`barnabas dev`: a cluster of one node in this process, for development.

`dev_words.py` reads the same options if they are plain.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.dev_run import run_in_foreground
from barnabas.cli.dev_words import MOST_PORT
from barnabas.cli.option_group import grouped
from barnabas.cli.options import Settings, overrides_from
from barnabas.dev.options import DEFAULT_PORT, LOOPBACK, DevOptions, NewDevTopic


@dataclass(frozen=True)
class Listening:
    """Options on where a node listens."""

    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=MOST_PORT, help="Port; 0: any free one.")
    ] = DEFAULT_PORT
    host: Annotated[
        str,
        typer.Option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 serves containers and others, too."),
    ] = LOOPBACK
    secure: Annotated[
        bool, typer.Option("--secure", help="Serve TLS, users and ACLs; client files go to DIR/security.")
    ] = False
    http_port: Annotated[
        int | None, typer.Option("--http-port", metavar="N", help="Serve health, metrics and decisions on this port.")
    ] = None


@grouped
def dev(
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Keep the data in DIR; default: in memory.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME[:PARTITIONS]", help="Create a topic if it does not exist; repeatable."),
    ] = None,
    settings: Settings = None,
    registry: Annotated[
        int | None,
        typer.Option("--registry", metavar="PORT", help="Serve a schema registry on this port; 0: any free one."),
    ] = None,
    *,
    listening: Listening,
) -> None:
    """Run a cluster of one node in the foreground until Ctrl-C. Data is kept only with --dir."""
    if registry is not None:
        from barnabas.cli.registry import require_packages

        require_packages()
    options = DevOptions(
        port=listening.port,
        host=listening.host,
        directory=directory,
        is_secure=listening.secure,
        http_port=listening.http_port,
        registry_port=registry,
        topics=[NewDevTopic.parse(each) for each in topics or ()],
        settings=overrides_from(settings),
    )
    run_in_foreground(options)
