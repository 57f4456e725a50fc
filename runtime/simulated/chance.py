"""Random numbers in a universe: streams of one seed. The only file of the simulation that imports `random`."""

from __future__ import annotations

import random

Stream = random.Random
"""The random numbers for one purpose."""


def make_stream(seed: int, purpose: str) -> Stream:
    """The stream for `purpose`; the same in every process, for every hash seed."""
    return Stream(f"{seed}/{purpose}")
