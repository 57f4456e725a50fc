"""Core: which small files become one, which files are orphans, and which snapshots are no longer needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from barnabas.lake.commits import TableView
from barnabas.lake.progress import OFFSETS

OWN_FILE = re.compile(r"barnabas-(\d{6,})-[0-9a-f]{32}-\d{5,}\.parquet")
"""Names of data files of ours; the first number is the epoch of the process that wrote them."""


class Sized(Protocol):
    @property
    def size_bytes(self) -> int: ...


class FileSize(NamedTuple):
    """A data file and the partition of the table that it is in."""

    file: Sized
    group: str


class FoundFile(NamedTuple):
    """A file of the store."""

    path: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """When small files are made one."""

    min_files: int = 16
    small_bytes: int = 32 * 1024 * 1024
    """A file of this size stays as it is."""
    result_bytes: int = 128 * 1024 * 1024
    """The files for one new file have at most this size together."""


def crowded(files: Iterable[FileSize], rules: CompactionRules) -> Sequence[Sized]:
    """Files of the partition with the most small ones, up to the size of a result; empty below `min_files`."""
    groups: dict[str, list[Sized]] = {}
    for file, group in files:
        if file.size_bytes < rules.small_bytes:
            groups.setdefault(group, []).append(file)
    largest = max(groups.values(), key=len, default=[])
    if len(largest) < rules.min_files:
        return []
    chosen: list[Sized] = []
    size_bytes = 0
    for file in sorted(largest, key=lambda each: each.size_bytes):
        size_bytes += file.size_bytes
        if size_bytes > rules.result_bytes and len(chosen) >= rules.min_files:
            break
        chosen.append(file)
    return chosen


def orphans(found: Iterable[FoundFile], referenced: Iterable[str], epoch: int, before_ms: int) -> list[str]:
    """Paths of files of ours, in no snapshot, unchanged since `before_ms`. `referenced` are paths; names are compared,
    which are unique: the same place may be written in several ways.

    `epoch` is that of the process that deletes, the highest: a process with a lower one can no longer commit its files,
    because every commit is a compare-and-swap on a snapshot before the claim of this one.
    """
    kept = {path.rpartition("/")[2] for path in referenced}
    gone = []
    for path, modified_ms in found:
        name = OWN_FILE.fullmatch(path.rpartition("/")[2])
        if name is not None and int(name[1]) <= epoch and modified_ms < before_ms and name[0] not in kept:
            gone.append(path)
    return gone


def expirable(view: TableView, times_ms: Mapping[int, int], before_ms: int) -> list[int]:
    """Snapshots of ours older than `before_ms`, but none while the current snapshot has no offsets."""
    if not view.snapshots or OFFSETS not in view.snapshots[0].properties:
        return []
    return [
        each.snapshot_id
        for each in view.snapshots[1:]
        if OFFSETS in each.properties and times_ms[each.snapshot_id] < before_ms
    ]
