"""Every kind of power cut at one moment: the pending name changes that reach the disk are enumerated, not drawn at
random.

A random choice for each change rarely shows what goes wrong if exactly one is lost or exactly one is kept (ALICE,
CrashMonkey). Here all are kept, none, each one alone, and all but each one; each time once with all written data, and
once with a random part of it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

from tests.storage.rig import Rig


def names_kept(count: int) -> Iterator[frozenset[int]]:
    """Sets of pending changes that survive, each set once."""
    everything = frozenset(range(count))
    sets = [everything, frozenset[int]()]
    sets += [frozenset({one}) for one in everything]
    sets += [everything - {one} for one in everything]
    yield from dict.fromkeys(sets)


def after_power_cuts(rig: Rig, seed: int) -> Iterator[tuple[str, Rig]]:
    """States of the disk after a power cut right now, each with a description and a rig on it. The original rig
    continues unaffected.
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
    """The same disk with its own random generator."""
    other = Rig(seed=rig.seed)
    other.store = copy.deepcopy(rig.store)
    other.store.before_names_change = None
    other.store.chance = random.Random(seed)
    other.start()
    return other
