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

from barnabas.runtime.simulated.inode import Inode
from barnabas.runtime.simulated.store import Directory, Entry
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
    copied = _Copied()
    store = other.store = copy.copy(rig.store)
    store.before_names_change = None
    store.chance = random.Random(seed)
    store.faults = [copy.copy(fault) for fault in rig.store.faults]
    store.root = copied.directory(rig.store.root)
    store._pending = [
        type(change)(
            [(copied.directory(at), name, copied.entry(old), copied.entry(new)) for at, name, old, new in change.parts]
        )
        for change in rig.store._pending
    ]
    other.start()
    return other


class _Copied:
    """Directories and files of a copied disk, each copied once. `copy.deepcopy` does the same, ten times slower."""

    def __init__(self) -> None:
        self._known: dict[int, Entry] = {}

    def directory(self, original: Directory) -> Directory:
        found = self._known.get(id(original))
        if found is None:
            found = self._known[id(original)] = Directory()
            assert isinstance(found, Directory)
            found.changes = original.changes
            found.entries = {name: self._one(entry) for name, entry in original.entries.items()}
            found.durable = {name: self._one(entry) for name, entry in original.durable.items()}
        assert isinstance(found, Directory)
        return found

    def entry(self, original: Entry | None) -> Entry | None:
        return None if original is None else self._one(original)

    def _one(self, original: Entry) -> Entry:
        return self.directory(original) if isinstance(original, Directory) else self._file(original)

    def _file(self, original: Inode) -> Inode:
        found = self._known.get(id(original))
        if found is None:
            found = self._known[id(original)] = copy.copy(original)
            found.cached, found.durable = bytearray(original.cached), bytearray(original.durable)
            found.dirty, found.written = dict(original.dirty), list(original.written)
        assert isinstance(found, Inode)
        return found
