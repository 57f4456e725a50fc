"""`python jepsen-style`: breaks clusters on purpose, and checks what their clients saw."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import typer

ROOT = Path(__file__).resolve().parent
COMMANDS: tuple[str, ...] = ("run", "check", "report", "suite", "seeds", "shrink", "plants", "scenario")
"""Each is a module of `commands`, whose function `command` does it."""


NEEDED = ("numpy", "pyarrow")
COULD_NOT_RUN = 2


def main() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        told = "pip install -e '.[faults]' installs what is missing, make suite too"
        print(f"jepsen-style: there is no {' and no '.join(missing)}: {told}", file=sys.stderr)
        sys.exit(COULD_NOT_RUN)
    # The program runs from its folder, beside the packages that it breaks.
    sys.path[:0] = [str(ROOT), str(ROOT.parent)]
    app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    for name in COMMANDS:
        app.command(name)(import_module(f"commands.{name}").command)
    app()


if __name__ == "__main__":
    main()
