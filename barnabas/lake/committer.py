"""Commits to one table, as the one process that writes it: claims it, and brings each commit to a known end.

The decisions are in `commits.py`. Every failure is answered by a look at the table: the commit is there, or may be
sent again, or this process has been replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import trio

from barnabas.lake.commits import Standing, TableView, claim, latest_progress, standing
from barnabas.lake.errors import CatalogUnavailable, CommitConflict
from barnabas.lake.pieces import Batch
from barnabas.lake.progress import DEAD_LETTER_FILES, DEAD_LETTERS, Progress, as_json
from barnabas.lake.table import Change, DataFile, LakeTable
from barnabas.lake.upkeep import CompactionRules
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.world import World

log = logging.getLogger(__name__)

RETRY_MS, RETRY_MAX_MS = 200, 30_000


class Committer:
    """The commits of one process to one table. One call at a time."""

    def __init__(self, table: LakeTable, world: World) -> None:
        self.table = table
        self._world = world
        self._view: TableView | None = None
        """The table after the last answer; None after a failure."""
        self._progress: Progress | None = None

    @property
    def progress(self) -> Progress:
        """The last commit of this process."""
        assert self._progress is not None, "claim comes first"
        return self._progress

    async def claim(self, topic: str, topic_id: str, starts: Mapping[int, int]) -> Progress:
        """Take the table over from any other process. An empty table begins at `starts`.

        Raises as `commits.claim` and `commits.standing`; `CatalogRefused`. Waits while the catalogue is unavailable.
        """
        while True:
            view = await self._load()
            base, wanted = claim(view, Progress(topic, topic_id, starts, 1, self._new_id()))
            if await self._land(base, wanted, Change(wanted.properties())):
                return wanted

    async def write(self, batch: Batch) -> list[DataFile]:
        """Write the rows of a batch as files. Waits while the store is unavailable; what it left there is an orphan."""
        if not batch.rows:
            return []
        backoff = self._backoff()
        while True:
            try:
                return await self.table.write(batch.rows, self._prefix())
            except CatalogUnavailable as error:
                await self._wait(backoff, error)

    async def commit(self, batch: Batch, files: Sequence[DataFile]) -> Progress:
        """Add the files of a batch, and its offsets. Raises as `claim`."""
        base = self.progress
        skipped = dict(base.skipped)
        for partition, ranges in batch.skipped.items():
            skipped[partition] = skipped.get(partition, ()) + ranges
        offsets = {**base.offsets, **batch.offsets}
        epochs = {**base.leader_epochs, **batch.leader_epochs}
        known = {partition: epoch for partition, epoch in epochs.items() if epoch is not None}
        wanted = replace(base, offsets=offsets, skipped=skipped, leader_epochs=known, commit_id=self._new_id())
        properties = wanted.properties()
        if batch.dead_letters:
            path = await self._write_dead_letters(batch, wanted.commit_id)
            properties[DEAD_LETTERS] = str(sum(len(each) for each in batch.dead_letters))
            properties[DEAD_LETTER_FILES] = as_json([path])
        await self._land(base, wanted, Change(properties, add=files))
        return wanted

    async def compact(self, rules: CompactionRules) -> int:
        """Make one file of many small ones, as often as there are any; returns the number of files that are gone.

        Ends early if somebody else changes the table meanwhile. Raises as `claim`.
        """
        gone = 0
        try:
            while (crowd := await self.table.crowd(rules)) is not None:
                files = await self.table.rewrite(crowd, self._prefix())
                base = self.progress
                wanted = replace(base, commit_id=self._new_id())
                change = Change(wanted.properties(), add=files, remove=crowd.files)
                await self._land(base, wanted, change, only_on=crowd.seen_on)
                gone += len(crowd.files) - len(files)
        except (CommitConflict, CatalogUnavailable) as error:
            log.info("compaction is put off: %s", error)
        return gone

    async def tidy(self, orphan_age_ms: int, snapshot_age_ms: int) -> None:
        """Delete old orphans, and remove old snapshots. Raises `Fenced` and `TableChanged`."""
        try:
            view = await self.table.load()
            # The last commit is there, and nobody has a higher epoch.
            standing(view, self.progress, self.progress)
            latest = latest_progress(view)
            if latest is not None and latest.commit_id == self.progress.commit_id:
                swept = await self.table.sweep(self.progress.epoch, orphan_age_ms)
                expired = await self.table.expire(snapshot_age_ms)
                log.info("%s: deleted %d orphans, removed %d snapshots", self.table.name, swept, expired)
            self._view = None
        except (CommitConflict, CatalogUnavailable) as error:
            log.info("upkeep is put off: %s", error)

    async def view(self) -> TableView:
        """The table after the last commit, as far as it is known."""
        if self._view is None:
            self._view = await self._load()
        return self._view

    # ---- inside

    async def _land(self, base: Progress | None, wanted: Progress, change: Change, only_on: int | None = None) -> bool:
        """Send the commit until it is in the table; False if it is a claim that was overtaken. With `only_on`, only
        while that snapshot is the current one."""
        backoff = self._backoff()
        while True:
            view = await self.view()
            found = standing(view, base, wanted)
            if found is Standing.LANDED:
                break
            if found is Standing.OVERTAKEN:
                return False
            if only_on is not None and view.current != only_on:
                raise CommitConflict(f"{view.table} was changed by something else")
            self._view = None
            self._world.fault_point("lake.commit.sending")
            try:
                self._view = await self.table.commit(view.current, change)
            except CommitConflict as error:
                log.info("%s; looking at the table", error)
            except CatalogUnavailable as error:
                await self._wait(backoff, error)
            self._world.fault_point("lake.commit.sent")
        self._progress = wanted
        return True

    async def _load(self) -> TableView:
        backoff = self._backoff()
        while True:
            try:
                return await self.table.load()
            except CatalogUnavailable as error:
                await self._wait(backoff, error)

    async def _write_dead_letters(self, batch: Batch, name: str) -> str:
        backoff = self._backoff()
        while True:
            try:
                return await self.table.write_dead_letters(batch.dead_letters, name)
            except CatalogUnavailable as error:
                await self._wait(backoff, error)

    def _backoff(self) -> Backoff:
        return Backoff(RETRY_MS, RETRY_MAX_MS, self._world.chance)

    async def _wait(self, backoff: Backoff, error: CatalogUnavailable) -> None:
        wait_ms = backoff.next_ms()
        log.warning("%s; trying again in %d ms", error, wait_ms)
        await trio.sleep(wait_ms / 1000)

    def _new_id(self) -> str:
        return self._world.chance.randbytes(16).hex()

    def _prefix(self) -> str:
        """Begin of the names of files: the epoch says who wrote them."""
        return f"barnabas-{self.progress.epoch:06d}-{self._new_id()}"
