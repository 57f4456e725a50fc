"""Every kind of power cut at one moment: which pending changes of names reach the disk is enumerated, not drawn.

A coin for each change rarely shows what goes wrong if exactly one is lost, or exactly one is kept (ALICE, CrashMonkey).
Here all are kept, none, each one alone, and all but each one; each time once with all data that was written, and once
with what chance lets through of it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

from tests.storage.rig import Rig


def names_kept(count: int) -> Iterator[frozenset[int]]:
    """Which of so many pending changes survive, each set once."""
    everything = frozenset(range(count))
    sets = [everything, frozenset[int]()]
    sets += [frozenset({one}) for one in everything]
    sets += [everything - {one} for one in everything]
    yield from dict.fromkeys(sets)


def after_power_cuts(rig: Rig, seed: int) -> Iterator[tuple[str, Rig]]:
    """What the disk may look like if the power is cut right now, in words and as a rig that has its power back. The
    rig itself goes on undisturbed.
    """
    count = rig.store.pending_changes
    for number, kept in enumerate(names_kept(count)):
        for with_all_data in (True, False):
            after = copy_of(rig, f"{seed} {number}")
            if with_all_data:
                for _, inode in after.store.files():
                    inode.sync()
            after.store.power_cut(kept)
            after.start()
            data = "all data" if with_all_data else "some data"
            yield f"{data}, changes {sorted(kept)} of {count}", after


def copy_of(rig: Rig, seed: str) -> Rig:
    """The same disk with a chance of its own."""
    other = Rig(seed=rig.seed)
    other.store = copy.deepcopy(rig.store)
    other.store.before_names_change = None
    other.store.chance = random.Random(seed)
    other.start()
    return other
