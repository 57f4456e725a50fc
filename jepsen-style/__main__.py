"""`python jepsen-style`: breaks clusters on purpose, and checks what their clients saw."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent
COMMANDS: tuple[str, ...] = ("run", "check", "report", "suite", "seeds", "shrink", "plants", "scenario", "attack")
"""Each is a module of `commands`, whose function `command` does it."""


KEEP_WHAT_THEY_HAVE = frozenset({"run", "suite", "seeds", "shrink", "plants"})
"""Commands that report what they have found until then if they are interrupted."""
NEEDED = ("trio", "typer", "numpy")
COULD_NOT_RUN = 2


def main() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        remedy = "pip install -e '.[faults]', or make suite and .venv/bin/python"
        print(f"jepsen-style: missing modules: {', '.join(missing)}; install them with {remedy}", file=sys.stderr)
        sys.exit(COULD_NOT_RUN)
    signal.signal(signal.SIGTERM, _end)
    try:
        _run()
    except KeyboardInterrupt:
        _interrupted()


def _run() -> None:
    import typer

    # The program runs from its folder, beside the packages that it breaks.
    sys.path[:0] = [str(ROOT), str(ROOT.parent)]
    app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    for name in COMMANDS:
        app.command(name)(_with_its_exit_code(name, import_module(f"commands.{name}").command))
    app()


def _with_its_exit_code(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Interrupted, it has not run; typer would end with 130 and an empty line."""
    is_void = name not in KEEP_WHAT_THEY_HAVE

    @wraps(command)
    def call(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except BaseException as error:
            if not _is_of_an_interrupt(error) and not (is_void and _heard):
                raise
            _interrupted()
        if is_void and _heard:
            # It went on to its end: what a signal raises in the midst of a destructor Python drops.
            _interrupted()

    return call


def _is_of_an_interrupt(error: BaseException | None) -> bool:
    """It is one, or is what one came to: in a group, or an internal error of trio, if the signal met it there."""
    if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt) is not None:
        return True
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_of_an_interrupt(error.__cause__))


def _interrupted() -> NoReturn:
    """Prints the last line. Python would warn behind it about coroutines that the signal kept from starting."""
    warnings.simplefilter("ignore", RuntimeWarning)
    print("interrupted", file=sys.stderr)
    # If the signal met code that is made of text, as dataclasses make theirs when a module is loaded, Python would kill
    # itself at its end, though the interrupt was caught; the next such code makes it forget.
    exec("")
    sys.exit(COULD_NOT_RUN)


_heard: list[int] = []
"""Signals that asked this program to end."""


def _end(number: int, _frame: FrameType | None) -> None:
    """SIGTERM is what Ctrl-C is, also where Ctrl-C is ignored, as in the background of a script."""
    _heard.append(number)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
