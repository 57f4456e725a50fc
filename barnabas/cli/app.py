"""The command tree of `barnabas`."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

from barnabas.runtime.version import version

_COMMANDS = {
    "produce": "produce",
    "consume": "consume",
    "topics": "topics",
    "groups": "groups",
    "configs": "configs",
    "transactions": "transactions",
    "cluster": "cluster",
    "security": "security",
    "migrate": "migrate",
    "why": "why",
    "perf": "perf",
    "dev": "dev",
    "check": "check",
    "proxy": "proxy",
    "demo": "demo",
    "page": "page",
    "registry": "registry",
    "pipeline": "pipeline",
    "lake": "lake",
    "storage": "storage",
    "log": "log",
    "systemd": "systemd",
    "node": "node_help",
    "broker": "node_help",
    "controller": "node_help",
    "host": "host",
}
"""Commands and groups in the order of the help, and the module of each: it has a group `app`, or a function called like
the command."""


EXIT_CODES = (
    "Exit codes: 0 done, 1 refused or failed, 2 a wrong argument, 3 no answer in time, 130 Ctrl-C, 143 SIGTERM."
)


def command(words: Sequence[str] = ()) -> Any:
    """The command tree as typer's parser takes it. If `words` begins with a command, only that one is loaded."""
    wanted = words[:1] if words and words[0] in _COMMANDS else tuple(_COMMANDS)
    app = _root()
    for name in wanted:
        module = import_module(f"barnabas.cli.{_COMMANDS[name]}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            passes_on = {"context_settings": module.PASS_ON} if hasattr(module, "PASS_ON") else {}
            app.command(name, **passes_on)(getattr(module, name))
    return get_command(app)


def _root() -> typer.Typer:
    app = typer.Typer(
        name="barnabas",
        help="A replicated, durable event log that speaks the Apache Kafka protocol.",
        epilog=EXIT_CODES,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"barnabas {version()} (Python {platform.python_version()})")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `barnabas` itself."""
