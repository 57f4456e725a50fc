"""What commands write: tables for people, one JSON document for programs, complaints on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.visible import visible, visible_lines

Cell = str | int | float | bool | None
Json = object
"""Whatever `json` writes."""


@dataclass(frozen=True, slots=True)
class Styled:
    """A cell that stands out on a terminal."""

    text: str
    style: str

    def __str__(self) -> str:
        return self.text


def show_json(value: Json) -> None:
    """One document on standard output."""
    sys.stdout.write(visible_lines(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")


def show_table(titles: Sequence[str], rows: Iterable[Sequence[Cell | Styled]]) -> None:
    """Columns; on anything but a terminal each row is one line, however long, for cut, grep and awk."""
    rows = list(rows)
    if sys.stdout.isatty():
        _show_rich(titles, rows)
        return
    lines = [list(titles), *([_plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def say(text: str) -> None:
    """A line or more on standard output. What the cluster calls its things cannot steer the terminal."""
    print(visible_lines(text))


def complain(text: str) -> None:
    """One line on standard error."""
    sys.stdout.flush()
    print(visible_lines(text), file=sys.stderr)


@dataclass(slots=True)
class Account:
    """How each of several things went: what failed is told as it happens, and decides the exit code at the end."""

    errors: list[dict[str, Json]] = field(default_factory=list)
    _codes: list[int] = field(default_factory=list)

    def failure(self, name: str, error: Exception) -> None:
        """`name` was not done, because of `error`."""
        from barnabas.cli.session import exit_code, in_one_line

        self._codes.append(exit_code(error))
        self.errors.append({"name": name, "error": error_json(error)})
        complain(f"{name}: {in_one_line(error)}")

    def failures(self, errors: Mapping[Any, Exception]) -> None:
        """What was not done, by name, and why."""
        for name, error in errors.items():
            self.failure(str(name), error)

    def close(self) -> None:
        """Ends the command if anything failed: with 1, or with 3 if all that failed was not answered in time."""
        import typer

        if self._codes:
            raise typer.Exit(min(self._codes))


def error_json(error: BaseException | None) -> Json:
    """None, or Kafka's name of the error and what was said."""
    if error is None:
        return None
    code = getattr(error, "code", None)
    message = getattr(error, "message", None)
    return {
        "code": code.name if code is not None else type(error).__name__,
        "message": message if code is not None else str(error),
        "retriable": bool(getattr(error, "retriable", False)),
    }


def _plain(cell: Cell | Styled) -> str:
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return visible(str(cell))


def _show_rich(titles: Sequence[str], rows: Sequence[Sequence[Cell | Styled]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*titles, box=None)
    for row in rows:
        table.add_row(*(Text(_plain(cell), style=cell.style if isinstance(cell, Styled) else "") for cell in row))
    Console().print(table)
