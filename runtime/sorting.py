"""Core: sorts very many values in steps."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparisonT

RUN_VALUES = 2_000
"""Values that one step sorts, in one or two milliseconds."""


def sorted_in_steps(
    values: Iterable[SupportsRichComparisonT],
) -> Generator[None, None, Iterator[SupportsRichComparisonT]]:
    """The values in ascending order. They are merged while they are taken, about a microsecond for each."""
    waiting = iter(list(values))
    runs: list[list[SupportsRichComparisonT]] = []
    while run := list(islice(waiting, RUN_VALUES)):
        if runs:
            yield None
        run.sort()
        runs.append(run)
    return iter(runs[0]) if len(runs) == 1 else merge(*runs)
