"""Small things that several checkers do with arrays."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_LIMIT = 1 << 62


def pair_codes(first: Ints, second: Ints) -> Ints:
    """One integer for each pair, equal exactly where the pairs are equal, and ordered as they are."""
    if not len(first):
        return np.empty(0, dtype=np.int64)
    low, high = int(second.min()), int(second.max())
    width = high - low + 1
    ids = first
    if first.min() < 0 or int(first.max()) * width + width >= _LIMIT:
        ids = np.unique(first, return_inverse=True)[1].astype(np.int64)
    if int(ids.max()) * width + width < _LIMIT:
        return ids * width + (second - low)
    ranks = np.unique(second, return_inverse=True)[1].astype(np.int64)
    return ids * (int(ranks.max()) + 1) + ranks


def starts_of_runs(codes: Ints) -> Bools:
    """True where a value differs from the one before it; the first one does."""
    starts = np.ones(len(codes), dtype=np.bool_)
    starts[1:] = codes[1:] != codes[:-1]
    return starts


def ranks_in_runs(starts: Bools) -> Ints:
    """0, 1, 2, … from each start on."""
    places = np.arange(len(starts), dtype=np.int64)
    return places - np.maximum.accumulate(np.where(starts, places, 0)) if len(starts) else places


def running_max_in_runs(starts: Bools, values: Ints) -> Ints:
    """Running maximum that restarts at each start."""
    if not len(values):
        return values
    # Each run is lifted above the ones before it, so that one pass does for all.
    low, high = int(values.min()), int(values.max())
    lift = (np.cumsum(starts) - 1) * (high - low + 1)
    highest: Ints = np.maximum.accumulate(values - low + lift)
    return highest - lift + low


def first_in(sorted_codes: Ints, wanted: Ints) -> Ints:
    """Index of each wanted code among sorted unique codes; -1 if it is missing."""
    if not len(sorted_codes):
        return np.full(len(wanted), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(sorted_codes, wanted), len(sorted_codes) - 1)
    return np.where(sorted_codes[places] == wanted, places, -1)
