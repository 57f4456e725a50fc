"""Fewer points, the same picture: what would be drawn over something of the same place is left out.

Everything is a function of its input alone, so that a report of one run is always the same.
"""

from __future__ import annotations

import numpy as np

from reports.scales import Integers


def thin_points(x: Integers, y: Integers, most: int) -> tuple[Integers, Integers]:
    """One point for each cell of a grid, in order of time; the grid is coarsened until there are at most so many.

    Outliers survive: a cell that has a single point keeps it.
    """
    across, upwards = 5, 12
    while True:
        cells = (x // across) * (1 << 20) + (y // upwards)
        kept = np.sort(np.unique(cells, return_index=True)[1])
        if len(kept) <= most:
            return x[kept], y[kept]
        across, upwards = across * 2, upwards * 2


def thin_line(x: Integers, y: Integers, most: int = 800) -> tuple[Integers, Integers]:
    """Thin a line with rising x: its first, lowest, highest and last point in each column stay."""
    if len(x) <= most:
        return x, y
    column = x // max(1, (int(x[-1]) - int(x[0])) * 4 // most + 1)
    first = np.flatnonzero(np.diff(column, prepend=column[0] - 1))
    last = np.append(first[1:], len(x)) - 1
    order = np.lexsort((y, column))
    kept = np.unique(np.concatenate([first, last, order[first], order[last]]))
    return x[kept], y[kept]


def corners(x: Integers, y: Integers) -> tuple[Integers, Integers]:
    """Points of a stepped line where it changes, and its last point."""
    if len(x) <= 2:
        return x, y
    kept = np.flatnonzero(np.diff(y, prepend=y[0] - 1))
    kept = np.unique(np.append(kept, len(x) - 1))
    return x[kept], y[kept]


def stairs(x: Integers, y: Integers) -> tuple[Integers, Integers]:
    """The points of a line in which each value holds until the next one comes."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
