"""`barnabas dev`: a cluster of one node in this process, for development."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.option_group import grouped
from barnabas.cli.options import Settings, overrides_from, program
from barnabas.cli.output import show_text
from barnabas.runtime.error_groups import only_error

if TYPE_CHECKING:
    from barnabas.dev.node import DevNode
    from barnabas.dev.options import DevOptions


@dataclass(frozen=True)
class Listening:
    """Options on where a node listens."""

    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65_000, help="Port; 0: any free one.")] = 9092
    host: Annotated[
        str,
        typer.Option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 serves containers and others, too."),
    ] = "127.0.0.1"
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
    from barnabas.dev.options import DevOptions, NewDevTopic

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
    _run(options)


def _run(options: DevOptions) -> None:
    """Run the node until a signal. Raises `ClusterError`."""
    import gc
    import logging

    import trio

    from barnabas.dev.node import run_dev_node
    from barnabas.runtime.process import prepare_process, run_until_signal, start_logging

    began = time.monotonic()
    gc.disable()  # modules are no garbage; `run_until_signal` switches it on when the node serves
    start_logging(None)
    logging.getLogger().setLevel(logging.WARNING)
    prepare_process("barnabas-dev")

    async def run(stop: trio.Event, *, task_status: trio.TaskStatus[DevNode]) -> None:
        await run_dev_node(options, stop, task_status=task_status)

    def served(node: DevNode) -> None:
        show_text(_welcome(node, time.monotonic() - began))

    try:
        trio.run(run_until_signal, run, served)
    except BaseExceptionGroup as group:
        raise only_error(group) from None


def _welcome(node: DevNode, seconds: float) -> str:
    lines = [f"{node.bootstrap_servers} is ready after {seconds:.2f} s; Ctrl-C ends it"]
    if node.client_file is not None:
        lines.append(f"SASL_SSL; {program()} --client-config {node.client_file} is the administrator")
    if node.registry is not None:
        lines.append(f"{node.registry.url} is its schema registry")
    return "\n".join(lines)
