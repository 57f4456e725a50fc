"""Keeps one table up to date with one topic: reads, writes files, commits; by turns for ever, or up to the ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import trio

from barnabas.lake.committer import Committer
from barnabas.lake.pieces import Batch, Piece, batch_of, size_bytes
from barnabas.lake.progress import Progress
from barnabas.lake.table import LakeTable
from barnabas.lake.upkeep import CompactionRules
from barnabas.runtime.world import World

log = logging.getLogger(__name__)

WAITING_PIECES = 4
"""Pieces that were read, and wait for the commit before them."""


class Reader(Protocol):
    """Reads one topic: `TopicReader`, or a twin in tests."""

    async def run(self, pieces: trio.MemorySendChannel[Piece]) -> None: ...


@dataclass(frozen=True, slots=True)
class TopicSource:
    """The topic, as it is at the start."""

    topic: str
    topic_id: str
    starts: Mapping[int, int]
    """Offsets at which an empty table begins."""
    ends: Mapping[int, int] | None
    """Offsets at which to end; None: never."""
    reader: Callable[[Progress], Reader]
    """Makes a reader that continues after what the table has."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often a table is committed."""

    commit_interval_ms: int = 60_000
    """A record is in the table after at most this time, if the catalogue answers."""
    batch_bytes: int = 128 * 1024 * 1024
    """Memory of rows that makes a commit earlier."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How files and snapshots of a table are kept in order."""

    interval_ms: int = 600_000
    compaction: CompactionRules = field(default_factory=CompactionRules)
    orphan_age_ms: int = 3 * 24 * 3_600_000
    """Files that no snapshot has are deleted at this age."""
    snapshot_age_ms: int = 5 * 24 * 3_600_000


@dataclass(slots=True)
class Account:
    """Totals of one run."""

    commits: int = 0
    records: int = 0
    dead_letters: int = 0
    compacted_files: int = 0

    def add(self, batch: Batch) -> None:
        self.commits += 1
        self.records += sum(len(rows) for rows in batch.rows)
        self.dead_letters += sum(len(each) for each in batch.dead_letters)


@dataclass(frozen=True, slots=True)
class Habits:
    rhythm: Rhythm = field(default_factory=Rhythm)
    upkeep: Upkeep = field(default_factory=Upkeep)


class TopicLake:
    """One topic and its table."""

    def __init__(self, table: LakeTable, source: TopicSource, habits: Habits, world: World) -> None:
        self.account = Account()
        self._source = source
        self._rhythm = habits.rhythm
        self._upkeep = habits.upkeep
        self._committer = Committer(table, world)

    async def run(self, claimed: Callable[[Progress], None] = lambda _: None) -> Account:
        """Until cancelled, or up to the source's ends. Raises what `Committer` and the reader raise; what was committed
        before stays."""
        source = self._source
        progress = await self._committer.claim(source.topic, source.topic_id, source.starts)
        claimed(progress)
        send, receive = trio.open_memory_channel[Piece](WAITING_PIECES)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.reader(progress).run, send)
            await self._turns(receive)
            nursery.cancel_scope.cancel()
        await self._keep_up()
        return self.account

    async def _turns(self, receive: trio.MemoryReceiveChannel[Piece]) -> None:
        upkeep_at = trio.current_time() + self._upkeep.interval_ms / 1000
        while not self._is_done(self._committer.progress.offsets):
            await self._commit(batch_of(await self._collect(receive)))
            if trio.current_time() >= upkeep_at:
                await self._keep_up()
                upkeep_at = trio.current_time() + self._upkeep.interval_ms / 1000

    async def _keep_up(self) -> None:
        self.account.compacted_files += await self._committer.compact(self._upkeep.compaction)
        await self._committer.tidy(self._upkeep.orphan_age_ms, self._upkeep.snapshot_age_ms)

    async def _collect(self, receive: trio.MemoryReceiveChannel[Piece]) -> list[Piece]:
        """The pieces of the next commit: at least one."""
        pieces = [await receive.receive()]
        with trio.move_on_after(self._rhythm.commit_interval_ms / 1000):
            while size_bytes(pieces) < self._rhythm.batch_bytes and not self._would_be_done(pieces):
                pieces.append(await receive.receive())
        return pieces

    async def _commit(self, batch: Batch) -> None:
        files = await self._committer.write(batch)
        await self._committer.commit(batch, files)
        self.account.add(batch)

    def _would_be_done(self, pieces: Sequence[Piece]) -> bool:
        if self._source.ends is None:
            return False
        return self._is_done({**self._committer.progress.offsets, **batch_of(pieces).offsets})

    def _is_done(self, offsets: Mapping[int, int]) -> bool:
        ends = self._source.ends
        return ends is not None and all(offsets.get(partition, 0) >= end for partition, end in ends.items())
