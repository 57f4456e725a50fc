"""A bar on standard error while something takes long, if somebody looks on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""So much more is done."""


@contextmanager
def progress(title: str, total: int | None, *, unit: str = "records", quiet: bool = False) -> Iterator[Advance]:
    """`total` is None while nobody knows it; `unit` is `bytes` or the name of what is counted."""
    if quiet or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    in_bytes = unit == "bytes"
    columns = [TextColumn("{task.description}"), BarColumn()]
    columns += [DownloadColumn(), TransferSpeedColumn()] if in_bytes else [MofNCompleteColumn(), TextColumn(unit)]
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=5,
    ) as bar:
        task = bar.add_task(title, total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)

        yield advance
