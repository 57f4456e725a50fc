"""A twin of an Iceberg table and its catalogue, for stories in virtual time.

The catalogue loses requests and answers, answers late, carries out a request after it was given up, and answers that a
commit failed although it happened. Somebody else writes snapshots, too. Rows are pairs of partition and offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.lake.commits import SnapshotView, TableView
from barnabas.lake.errors import CatalogRefused, CatalogUnavailable, CommitConflict
from barnabas.lake.progress import PREFIX
from barnabas.lake.table import Change, Crowd, DataFile
from barnabas.lake.upkeep import CompactionRules, FileSize, FoundFile, crowded, expirable, orphans
from barnabas.runtime.world import World

Row = tuple[int, int]


class Rows(list[Row]):
    """Stands for a pyarrow Table."""

    @property
    def nbytes(self) -> int:
        return 16 * len(self)


@dataclass(frozen=True)
class Snapshot:
    """One state of the table: all its files by path."""

    snapshot_id: int
    parent: int | None
    properties: Mapping[str, str]
    files: Mapping[str, DataFile]
    made_ms: int

    def rows(self) -> list[Row]:
        return [row for file in self.files.values() for row in file.entry]


@dataclass
class Weather:
    """Probabilities of faults of one call; each at most once."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    late_request: float = 0.0
    """The caller gives up, and the catalogue carries the request out later."""
    false_conflict: float = 0.0
    """The commit happens, and the answer says that it failed: a gateway has sent it twice."""
    slow_s: float = 0.2
    """Mean time of a call."""


@dataclass
class Catalogue:
    """The catalogue and the store of one table, which outlive processes."""

    nursery: trio.Nursery
    chance: Any
    now_ms: Any
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    current: int | None = None
    last_id: int = 0
    store: dict[str, int] = field(default_factory=dict)
    """Paths of files, and when they were written."""
    weather: Weather = field(default_factory=Weather)
    refuses: bool = False
    met: dict[str, int] = field(default_factory=dict)
    """Number of times that each fault happened."""

    def apply(self, expected: int | None, properties: Mapping[str, str], add: Any, remove: Any) -> None:
        """One compare-and-swap."""
        if self.current != expected:
            raise CommitConflict(f"the current snapshot is {self.current}, not {expected}")
        files = dict(self.snapshots[self.current].files) if self.current is not None else {}
        for file in remove:
            del files[file.path]
        for file in add:
            assert file.path in self.store, f"{file.path} is committed and not in the store"
            assert file.path not in files
            files[file.path] = file
        self.last_id += 1
        snapshot_id = self.last_id
        self.snapshots[snapshot_id] = Snapshot(snapshot_id, self.current, properties, files, self.now_ms())
        self.current = snapshot_id

    def somebody_else_commits(self) -> None:
        """A snapshot without any progress, as compaction by another program makes it."""
        if self.current is not None:
            self.apply(self.current, {"engine": "another"}, [], [])
            self.note("foreign snapshot")

    def note(self, fault: str) -> None:
        self.met[fault] = self.met.get(fault, 0) + 1

    def chain(self) -> list[Snapshot]:
        found, at = [], self.current
        while at is not None and at in self.snapshots:
            found.append(self.snapshots[at])
            at = self.snapshots[at].parent
        return found

    def view(self) -> TableView:
        chain = self.chain()
        is_cut = bool(chain) and chain[-1].parent is not None
        own = [
            SnapshotView(each.snapshot_id, {k: v for k, v in each.properties.items() if k.startswith(PREFIX)})
            for each in chain
        ]
        return TableView("lake.orders", tuple(own), is_cut)


class SimulatedTable:
    """One process's access to the table."""

    name = "lake.orders"

    def __init__(self, catalogue: Catalogue, world: World) -> None:
        self._catalogue = catalogue
        self._chance = catalogue.chance
        self._world = world

    async def load(self) -> TableView:
        await self._travel()
        if self._happens("lost_request"):
            raise CatalogUnavailable("no answer to a load")
        return self._catalogue.view()

    async def write(self, rows: Sequence[Any], prefix: str) -> list[DataFile]:
        await self._travel()
        self._world.fault_point("lake.files.writing")
        files = []
        whole = [row for each in rows for row in each]
        cut = self._chance.randrange(0, len(whole) + 1)
        for number, part in enumerate(each for each in (whole[:cut], whole[cut:]) if each):
            path = f"s3://lake/data/{prefix}-{number:05d}.parquet"
            self._catalogue.store[path] = self._catalogue.now_ms()
            files.append(DataFile(path, len(part), 10 * len(part), tuple(part)))
            if self._happens("lost_answer"):
                raise CatalogUnavailable("503 in the middle of an upload")
        self._world.fault_point("lake.files.written")
        return files

    async def write_dead_letters(self, rows: Sequence[Any], name: str) -> str:
        await self._travel()
        return f"s3://lake/dead-letters/{name}.parquet"

    async def commit(self, expected: int | None, change: Change) -> TableView:
        await self._travel()
        catalogue = self._catalogue
        if catalogue.refuses:
            raise CatalogRefused("403")
        if self._happens("lost_request"):
            raise CatalogUnavailable("no connection")
        if self._happens("late_request"):
            delay_s = self._chance.uniform(0, 60)
            catalogue.nursery.start_soon(self._late, delay_s, expected, change)
            raise CatalogUnavailable("no answer in time")
        catalogue.apply(expected, change.properties, change.add, change.remove)
        if self._happens("lost_answer"):
            raise CatalogUnavailable("connection reset")
        if self._happens("false_conflict"):
            raise CommitConflict("409")
        view = catalogue.view()
        await self._travel()
        return view

    async def _late(self, delay_s: float, expected: int | None, change: Change) -> None:
        await trio.sleep(delay_s)
        try:
            self._catalogue.apply(expected, change.properties, change.add, change.remove)
        except CommitConflict:
            self._catalogue.note("late request failed")
        else:
            self._catalogue.note("late request happened")

    async def crowd(self, rules: CompactionRules) -> Crowd | None:
        await self._travel()
        [current, *_] = self._catalogue.chain()
        chosen = crowded([FileSize(each, "day") for each in current.files.values()], rules)
        return Crowd(current.snapshot_id, chosen) if chosen else None

    async def rewrite(self, crowd: Crowd, prefix: str) -> list[DataFile]:
        return (await self.write([Rows(sorted(row for file in crowd.files for row in file.entry))], prefix)) or []

    async def sweep(self, epoch: int, min_age_ms: int) -> int:
        await self._travel()
        catalogue = self._catalogue
        found = [FoundFile(path, made_ms) for path, made_ms in catalogue.store.items()]
        await self._travel()
        referenced = {path for each in catalogue.snapshots.values() for path in each.files}
        gone = orphans(found, referenced, epoch, catalogue.now_ms() - min_age_ms)
        for path in gone:
            del catalogue.store[path]
        return len(gone)

    async def expire(self, max_age_ms: int) -> int:
        await self._travel()
        catalogue = self._catalogue
        times = {snapshot_id: each.made_ms for snapshot_id, each in catalogue.snapshots.items()}
        old = expirable(catalogue.view(), times, catalogue.now_ms() - max_age_ms)
        for snapshot_id in old:
            del catalogue.snapshots[snapshot_id]
        return len(old)

    async def _travel(self) -> None:
        await trio.sleep(self._chance.expovariate(1 / max(self._catalogue.weather.slow_s, 1e-6)))
        # The process may have been killed meanwhile; then nothing of it goes on.
        self._world.fault_point("lake.call")

    def _happens(self, fault: str) -> bool:
        happens = self._chance.random() < getattr(self._catalogue.weather, fault)
        if happens:
            self._catalogue.note(fault)
        return happens
