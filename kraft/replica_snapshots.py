"""Shell: the snapshots of one replica of the metadata log: written from its own image, or downloaded from the leader.

At most one is written or installed at a time. `SnapshotFiles` has the files, the Raft core decides on downloads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.ready import InstallSnapshot, SnapshotStep, StartSnapshot, WriteSnapshotChunk
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.snapshots import CorruptSnapshotFile
from barnabas.protocol.schema import Message
from barnabas.runtime.freeing import empty_in_steps
from barnabas.runtime.world import File, World
from barnabas.storage.shortage import is_shortage

if TYPE_CHECKING:
    from barnabas.kraft.metadata_replica import MetadataReplica

log = logging.getLogger(__name__)

SNAPSHOT_PAUSE_MS = 60_000
"""Pause before another attempt to write a snapshot that did not fit."""


BYTES_BEFORE_A_STOP = 1 << 20
"""A log that has grown by more since its last snapshot takes longer to replay at the next start than a snapshot to
write: 1 MiB are about 20,000 changes of partitions."""

LAST_SNAPSHOT_SECONDS = 5
"""Longest wait of a stopping node for its last snapshot."""

STEP_RECORDS = 100
"""Records of a snapshot that are made in one step."""


class ReplicaSnapshots:
    """Mutable; owned by one replica."""

    def __init__(self, replica: MetadataReplica, world: World) -> None:
        self._replica = replica
        self._world = world
        self._lock = trio.Lock()
        self._part: File | None = None
        """The snapshot that is being downloaded."""
        self._last_ms = 0
        self._not_before_ms = 0
        self._is_requested = False

    def start(self) -> None:
        """The log is open: ages count from now on."""
        self._last_ms = self._replica.now_ms()

    @property
    def age_ms(self) -> int:
        """Milliseconds since the newest snapshot was written or downloaded; since the start, if there is none."""
        return self._replica.now_ms() - self._last_ms

    @property
    def is_due(self) -> bool:
        """Enough was appended, or enough time has passed, since the last snapshot (KIP-630)."""
        grown_bytes = self._replica.log.bytes_since_snapshot
        waited_ms = self._replica.now_ms() - self._last_ms
        due = (
            grown_bytes >= self._replica.config.snapshot_after_bytes
            or (grown_bytes > 0 and waited_ms >= self._replica.config.snapshot_interval_ms)
            or self._is_requested
        )
        return due and self._replica.now_ms() >= self._not_before_ms

    @property
    def is_due_before_a_stop(self) -> bool:
        """Enough was appended that the next start should not replay it."""
        grown_bytes = self._replica.log.bytes_since_snapshot
        return grown_bytes >= BYTES_BEFORE_A_STOP and self._replica.now_ms() >= self._not_before_ms

    def look_at(self, deltas: Sequence[MetadataDelta]) -> None:
        """A snapshot is due at once if metadata.version was lowered: an older release can read it, but not the log
        before it."""
        for delta in deltas:
            if delta.after.features.metadata_version < delta.before.features.metadata_version:
                self._is_requested = True

    async def create(self, records: Iterable[Message | None], offset: int, epoch: int, timestamp_ms: int) -> bool:
        """Write a snapshot of the state after the record at `offset`, then drop older log segments and
        snapshots.

        `epoch` and `timestamp_ms` are those of that record's batch: the same arguments give the same bytes on
        every node. `records` are taken in steps; None ends one. False if there is a snapshot as new already, or no
        room.
        """
        listed = await _listed(records)
        written = await self._write(listed, OffsetAndEpoch(offset=offset + 1, epoch=epoch), timestamp_ms)
        for _ in empty_in_steps(listed):
            await trio.lowlevel.checkpoint()
        return written

    async def _write(self, records: list[Message], snapshot: OffsetAndEpoch, timestamp_ms: int) -> bool:
        files = self._replica.log.snapshots
        assert snapshot.offset <= self._replica.high_watermark, "a snapshot holds committed records only"
        async with self._lock:
            while self._replica.core.synced_end_offset < snapshot.offset:
                await self._replica.syncs.wait_for_one()
            latest = self._replica.core.latest_snapshot
            self._is_requested = False
            if latest is not None and latest.offset >= snapshot.offset:
                return False
            last_offset = snapshot.offset - 1
            assert self._replica.core.log.epoch_of(last_offset) == snapshot.epoch, "the epoch is not that of the record"
            quorum_records = self._replica.core.voter_history.at(last_offset)
            try:
                await self._world.run_blocking(lambda: files.write(snapshot, records, timestamp_ms, quorum_records))
                self._world.fault_point("raft.snapshot.written")
                await self._world.run_blocking(lambda: files.publish(snapshot))
            except OSError as error:
                if not is_shortage(error):
                    raise
                log.warning("node %d writes its snapshot later: %s", self._replica.config.node_id, error)
                files.remove_part(snapshot)
                self._not_before_ms = self._replica.now_ms() + SNAPSHOT_PAUSE_MS
                return False
            self._world.fault_point("raft.snapshot.published")
            self._replica.step(lambda: self._published(snapshot))
            self._last_ms = self._replica.now_ms()
        return True

    def _published(self, snapshot: OffsetAndEpoch) -> None:
        start = self._replica.log.snapshot_published(snapshot, self._replica.wall_ms())
        self._replica.core.snapshot_created(snapshot)
        if start is not None:
            self._replica.core.log_started_at(start)

    def take_step(self, step: SnapshotStep, data: memoryview) -> None:
        """Carry out a step of a download; `data` are the bytes of the answer."""
        match step:
            case StartSnapshot():
                self.close_part()
                self._part = self._replica.log.snapshots.open_part(step.snapshot)
            case WriteSnapshotChunk():
                assert self._part is not None
                self._part.pwrite(data, step.position)
            case InstallSnapshot():
                self.close_part()
                self._replica.spawn(partial(self._install, step.snapshot))

    def close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    async def _install(self, snapshot: OffsetAndEpoch) -> None:
        async with self._lock:
            installed = True
            quorum_records: list[QuorumRecord] = []
            try:
                await self._world.run_blocking(lambda: self._replica.log.snapshots.verify_part(snapshot))
                quorum_records = self._replica.log.snapshots.quorum_records_of_part(snapshot)
                await self._replica.until_it_fits(lambda: self._replica.log.snapshots.publish(snapshot))
            except CorruptSnapshotFile as error:
                log.error("node %d drops the downloaded snapshot: %s", self._replica.config.node_id, error)
                self._replica.log.snapshots.remove_part(snapshot)
                installed = False
            self._world.fault_point("raft.snapshot.downloaded")
            self._replica.step(lambda: self._arrived(snapshot, installed, quorum_records))

    def _arrived(self, snapshot: OffsetAndEpoch, installed: bool, quorum_records: Sequence[QuorumRecord]) -> None:
        if installed:
            self._replica.log.restart_at(snapshot, self._replica.wall_ms())
            self._last_ms = self._replica.now_ms()
        self._replica.core.snapshot_installed(snapshot, installed, self._replica.now_ms(), quorum_records)


async def _listed(records: Iterable[Message | None]) -> list[Message]:
    listed: list[Message] = []
    for record in records:
        if record is not None:
            listed.append(record)
        if record is None or len(listed) % STEP_RECORDS == 0:
            await trio.lowlevel.checkpoint()
    return listed
