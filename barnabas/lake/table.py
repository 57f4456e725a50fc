"""The interface to one table. `iceberg.py` is the real one; tests have a twin with lost answers and conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from barnabas.lake.commits import TableView
from barnabas.lake.upkeep import CompactionRules


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that was written, and may be added to the table."""

    path: str
    records: int
    size_bytes: int
    entry: Any
    """The table needs this to add it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One commit: files that come and go, and the summary."""

    properties: Mapping[str, str]
    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()


@dataclass(frozen=True, slots=True)
class Crowd:
    """Small files of one partition of the table, to be made one."""

    seen_on: int
    """The snapshot that has them."""
    files: Sequence[DataFile]


class LakeTable(Protocol):
    """One table. The calls raise `CatalogUnavailable` and `CatalogRefused`."""

    @property
    def name(self) -> str: ...

    async def load(self) -> TableView:
        """The table as the catalogue has it now."""

    async def write(self, rows: Sequence[Any], prefix: str) -> list[DataFile]:
        """Write rows (pyarrow Tables) as files whose names begin with `prefix`. They are not in the table yet."""

    async def write_dead_letters(self, rows: Sequence[Any], name: str) -> str:
        """Write records that do not fit; returns the path of the file."""

    async def commit(self, expected: int | None, change: Change) -> TableView:
        """Change the table if `expected` is its current snapshot, with one attempt; returns the table after it.

        `CommitConflict`: the current snapshot is another one; the change has not happened. `CatalogUnavailable`: it may
        have happened, or may happen later.
        """

    async def crowd(self, rules: CompactionRules) -> Crowd | None:
        """The largest crowd of small files in the current snapshot; None if there is none."""

    async def rewrite(self, crowd: Crowd, prefix: str) -> list[DataFile]:
        """Write the rows of these files into a new one, in the order of partition and offset."""

    async def sweep(self, epoch: int, min_age_ms: int) -> int:
        """Delete files of ours that no snapshot has and that are old; returns their number. For the process with the
        highest epoch, at a time when it has nothing written that it has yet to commit."""

    async def expire(self, max_age_ms: int) -> int:
        """Remove old snapshots, never the current one; returns their number."""
