"""Output of commands: tables for people, one JSON document for programs, errors on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.runtime.visible import visible, visible_lines

Cell = str | int | float | bool | None
Json = object
"""A value that `json` can write."""


@dataclass(frozen=True, slots=True)
class Styled:
    """A table cell with a rich style, applied on terminals."""

    text: str
    style: str

    def __str__(self) -> str:
        return self.text


def show_json(value: Json) -> None:
    """Prints one JSON document."""
    sys.stdout.write(visible_lines(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")


def show_table(titles: Sequence[str], rows: Iterable[Sequence[Cell | Styled]]) -> None:
    """Prints a table. If standard output is no terminal, each row is one line of any length, for grep and awk."""
    rows = list(rows)
    if sys.stdout.isatty():
        _show_rich(titles, rows)
        return
    lines = [list(titles), *([_plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def show_text(text: str) -> None:
    """Prints lines. Control characters are escaped: names from the cluster cannot steer the terminal."""
    print(visible_lines(text))


def complain(text: str) -> None:
    """Prints lines to standard error, escaped as in `show_text`."""
    sys.stdout.flush()
    print(visible_lines(text), file=sys.stderr)


@dataclass(slots=True)
class Account:
    """Failures of a command on several items. Each is printed at once; together they decide the exit code."""

    errors: list[dict[str, Json]] = field(default_factory=list)
    _codes: list[int] = field(default_factory=list)

    def failure(self, name: str, error: Exception) -> None:
        """Prints and records the failure of the item `name`."""
        from barnabas.cli.session import exit_code, in_one_line

        self._codes.append(exit_code(error))
        self.errors.append({"name": name, "error": error_json(error)})
        complain(f"{name}: {in_one_line(error)}")

    def failures(self, errors: Mapping[Any, Exception]) -> None:
        """Prints and records failures by item."""
        for name, error in errors.items():
            self.failure(str(name), error)

    def close(self) -> None:
        """Exits if any item failed: with 3 if all failures are timeouts, otherwise with 1."""
        import typer

        if self._codes:
            raise typer.Exit(min(self._codes))


def error_json(error: BaseException | None) -> Json:
    """The error as JSON: Kafka's name for it and the message."""
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
