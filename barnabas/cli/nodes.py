"""`barnabas broker` and `barnabas controller`: their help; `main.py` turns into the node before it comes
here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cluster.errors import WrongArgument

PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True}

_Config = Annotated[Path, typer.Argument(help="The node's .properties file.")]
_Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Wins over the file; may be repeated.")
]
_LogFile = Annotated[Path | None, typer.Option("--log-file", help="Log there, rotated, instead of to standard error.")]


def broker(config: _Config, set_: _Set = None, log_file: _LogFile = None) -> None:
    """Run a broker in this terminal until SIGTERM or Ctrl-C."""
    raise WrongArgument("barnabas broker CONFIG comes first on the command line")


def controller(config: _Config, set_: _Set = None, log_file: _LogFile = None) -> None:
    """Run a controller in this terminal until SIGTERM or Ctrl-C."""
    raise WrongArgument("barnabas controller CONFIG comes first on the command line")
