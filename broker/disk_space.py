"""Shell: watches log directories whose disk is full until they have space again.

A directory that stays full for `FULL_AFTER_MS` is reported to the controller, which moves away the leaderships of its
partitions (`kraft.controller.full_directories`). Free space is probed by writing, which also detects a quota and needs
no append.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from barnabas.runtime.world import World
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.shortage import is_shortage

log = logging.getLogger(__name__)

PROBE_FILE = ".room-probe"
PROBE_BYTES = 1 << 20
PROBE_EVERY_MS = 500
FULL_AFTER_MS = 2_000
"""A directory that is full for a shorter time keeps its leaderships."""


@dataclass(slots=True)
class _Suspect:
    since_ms: int
    is_full: bool = False


class DiskSpace:
    """The full log directories of one broker."""

    def __init__(self, world: World, directories: LogDirectories, report_soon: Callable[[], None]) -> None:
        """`report_soon` is called when `full_ids` changed."""
        self._world = world
        self._directories = directories
        self._report_soon = report_soon
        self._suspects: dict[str, tuple[LogDirectory, _Suspect]] = {}
        self._bell = trio.Event()

    @property
    def full_ids(self) -> list[bytes]:
        """Ids of the directories that are full."""
        return [
            directory.directory_id
            for directory, suspect in self._suspects.values()
            if suspect.is_full and directory.directory_id is not None and directory.failure is None
        ]

    def refused(self, directory: LogDirectory) -> None:
        """Called when a write to this directory failed because the disk is full."""
        if directory.path in self._suspects:
            return
        log.warning("log dir %s is full: nothing is appended until it has space again", directory.path)
        self._suspects[directory.path] = directory, _Suspect(self._world.monotonic.now_ms())
        self._directories.close_for_room(directory, True)
        self._bell.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._bell.wait()
            self._bell = trio.Event()
            while self._suspects:
                await trio.sleep(PROBE_EVERY_MS / 1000)
                for directory, suspect in list(self._suspects.values()):
                    await self._probe(directory, suspect)

    async def _probe(self, directory: LogDirectory, suspect: _Suspect) -> None:
        if directory.failure is not None:
            del self._suspects[directory.path]
            return
        data = self._world.chance.randbytes(PROBE_BYTES)
        if await self._world.run_blocking(partial(_has_space, directory, data)):
            log.warning("log dir %s has space again", directory.path)
            del self._suspects[directory.path]
            self._directories.close_for_room(directory, False)
            if suspect.is_full:
                self._report_soon()
        elif not suspect.is_full and self._world.monotonic.now_ms() - suspect.since_ms >= FULL_AFTER_MS:
            suspect.is_full = True
            self._report_soon()


def _has_space(directory: LogDirectory, data: bytes) -> bool:
    disk, path = directory.disk, f"{directory.path}/{PROBE_FILE}"
    try:
        file = disk.open(path, create=True)
        try:
            file.pwrite(data, 0)
        finally:
            file.close()
            disk.remove(path)
    except OSError as error:
        if not is_shortage(error):
            log.warning("%s: %s", path, error)
        return False
    return True
