"""A topic without a cluster, and processes that write its table, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.lake.errors import Fenced, LakeError
from barnabas.lake.pieces import Piece
from barnabas.lake.progress import progress_of
from barnabas.lake.topic_lake import Habits, Rhythm, TopicLake, TopicSource, Upkeep
from barnabas.lake.upkeep import CompactionRules
from barnabas.runtime.simulated import Universe
from barnabas.runtime.world import World
from tests.barnabas.lake.simulated_table import Catalogue, Row, Rows, SimulatedTable

TOPIC, TOPIC_ID = "orders", "AAAAAAAAAAAAAAAAAAAAAQ"
HABITS = Habits(
    Rhythm(commit_interval_ms=2_000, batch_bytes=16 * 200),
    Upkeep(interval_ms=20_000, compaction=CompactionRules(min_files=4), orphan_age_ms=30_000, snapshot_age_ms=60_000),
)


@dataclass
class Log:
    """Committed records by partition: offsets with gaps, as markers and aborted transactions leave them."""

    chance: Any
    partitions: int = 3
    records: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for partition in range(self.partitions):
            self.records[partition], self.ends[partition], self.starts[partition] = [], 0, 0

    def grow(self, count: int) -> None:
        """Append records, with a gap now and then."""
        for _ in range(count):
            partition = self.chance.randrange(0, self.partitions)
            if self.chance.random() < 0.2:
                self.ends[partition] += self.chance.randrange(1, 4)
            self.records[partition].append(self.ends[partition])
            self.ends[partition] += 1

    def rows(self, below: Mapping[int, int] | None = None) -> list[Row]:
        return [
            (partition, offset)
            for partition, offsets in self.records.items()
            for offset in offsets
            if below is None or offset < below.get(partition, 0)
        ]


class LogReader:
    """The twin of `TopicReader`."""

    def __init__(self, log: Log, offsets: Mapping[int, int]) -> None:
        self._log = log
        self._positions = dict(offsets)

    async def run(self, pieces: trio.MemorySendChannel[Piece]) -> None:
        log = self._log
        while True:
            for partition, end in list(log.ends.items()):
                begin = self._positions[partition]
                if begin < end:
                    until = min(end, begin + log.chance.randrange(1, 60))
                    found = [offset for offset in log.records[partition] if begin <= offset < until]
                    rows = Rows((partition, offset) for offset in found) if found else None
                    await pieces.send(Piece(partition, until, rows))
                    self._positions[partition] = until
            await trio.sleep(log.chance.uniform(0.01, 1.0))


@dataclass
class Writers:
    """Processes that write one table, one after the other, or by mistake at the same time."""

    universe: Universe
    nursery: trio.Nursery
    log: Log
    catalogue: Catalogue
    ended: list[LakeError] = field(default_factory=list)
    started: int = 0

    def start(self) -> str:
        """Starts a process; returns its name."""
        name = self._new_name()
        self.nursery.start_soon(self._live, name, False)
        return name

    async def finish(self) -> None:
        """Run one process up to the end of the log."""
        await self._live(self._new_name(), True)

    def _new_name(self) -> str:
        self.started += 1
        return f"lake-{self.started}"

    async def _live(self, name: str, to_the_end: bool) -> None:
        async def main(world: World) -> None:
            try:
                await self.lake(world, to_the_end=to_the_end).run()
            except* LakeError as group:
                [error] = _flat(group)
                assert isinstance(error, Fenced), error
                self.ended.append(error)

        await self.universe.run_node(name, main)

    def lake(self, world: World, *, to_the_end: bool) -> TopicLake:
        table = SimulatedTable(self.catalogue, world)
        ends = dict(self.log.ends) if to_the_end else None
        source = TopicSource(
            TOPIC, TOPIC_ID, dict(self.log.starts), ends, lambda progress: LogReader(self.log, progress.offsets)
        )
        return TopicLake(table, source, HABITS, world)


def _flat(group: BaseExceptionGroup[Any]) -> list[Exception]:
    return [
        each
        for inner in group.exceptions
        for each in (_flat(inner) if isinstance(inner, BaseExceptionGroup) else [inner])
    ]


def check_history(catalogue: Catalogue, log: Log) -> None:
    """Every snapshot with progress has exactly the committed records below its offsets, each once, and its files are
    in the store."""
    for snapshot in catalogue.chain():
        progress = progress_of(snapshot.properties)
        if progress is not None:
            assert sorted(snapshot.rows()) == sorted(log.rows(progress.offsets)), snapshot.snapshot_id
        assert set(snapshot.files) <= set(catalogue.store)
