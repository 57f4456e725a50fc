"""Help of `barnabas node`, `barnabas broker` and `barnabas controller`; `main.py` becomes the node before these
functions run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cluster.errors import WrongArgument

PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True}

_Config = Annotated[Path, typer.Argument(help="The node's .properties file.")]
_Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the file; repeatable.")
]
_LogFile = Annotated[
    Path | None, typer.Option("--log-file", help="Log to this file, with rotation, instead of standard error.")
]


def node(config: _Config, set_: _Set = None, log_file: _LogFile = None) -> None:
    """Run the node of a file, in the roles of its process.roles, in the foreground until SIGTERM or Ctrl-C."""
    raise WrongArgument("`barnabas node CONFIG` must be the first words of the command")


def broker(config: _Config, set_: _Set = None, log_file: _LogFile = None) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C."""
    raise WrongArgument("`barnabas broker CONFIG` must be the first words of the command")


def controller(config: _Config, set_: _Set = None, log_file: _LogFile = None) -> None:
    """Run a controller in the foreground until SIGTERM or Ctrl-C."""
    raise WrongArgument("`barnabas controller CONFIG` must be the first words of the command")
