"""Damage to the files on a simulated disk, as `damaging.py` does it to real ones."""

from __future__ import annotations

import fnmatch
import posixpath
from typing import Any

from barnabas.runtime.simulated.inode import Inode
from barnabas.runtime.simulated.store import Store
from barnabas.runtime.world import Chance
from barnabas.storage.checkpoints import RECOVERY_POINT_CHECKPOINT, MalformedCheckpoint, read_offsets
from nemeses.choosing import happens
from worlds.cluster import Damage
from worlds.damaging import bytes_below, covered_places


class _Files:
    """The part of a disk that the reader of a checkpoint needs, past all processes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def exists(self, path: str) -> bool:
        return self._store.find(path) is not None

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._store.file(path).cached)


def damage_store(store: Store, directory: str, damage: Damage, chance: Chance) -> list[str]:
    """Damages the files of a node; gives a line for each. `directory` is its log directory."""
    newest: dict[tuple[str, str], tuple[str, Inode]] = {}
    for path, inode in store.files(directory):
        if fnmatch.fnmatchcase(posixpath.relpath(path, directory), damage.pattern):
            folder, _, name = path.rpartition("/")
            newest[folder, name.rpartition(".")[2]] = path, inode
    damaged = []
    for path, inode in newest.values():
        name = posixpath.relpath(path, directory)
        size = len(inode.cached)
        if damage.kind == "truncate" and size:
            inode.truncate(max(0, size - damage.bytes_))
            inode.sync()
            store.used_bytes -= size - len(inode.cached)
            damaged.append(f"{name}: {size} bytes, now {len(inode.cached)}")
        elif damage.kind == "flip":
            data = bytes(inode.cached)
            start = _durable_bytes(store, directory, name, data)
            places = [place for place in covered_places(data, start) if happens(chance, damage.probability)]
            for place in places:
                store.flip_bits(path, place, 1)
            if places:
                damaged.append(f"{name}: a bit of each of {len(places)} bytes, the first at {places[0]}")
    return damaged


def _durable_bytes(store: Store, directory: str, name: str, data: bytes) -> int:
    """Bytes of a segment below the recovery point of its partition; 0 for any other file."""
    topic, dash, index = name.partition("/")[0].rpartition("-")
    if not name.endswith(".log") or not dash or not index.isdigit():
        return 0
    disk: Any = _Files(store)
    try:
        points = read_offsets(disk, f"{directory}/{RECOVERY_POINT_CHECKPOINT}")
    except (OSError, MalformedCheckpoint):
        return 0
    return bytes_below(data, points.get((topic, int(index)), 0))
