"""A replica's own log as Raft sees it: its extent, how much of it is durable and committed, its snapshots.

It knows offsets and epochs, but no records, roles, peers or time. Changes to the disk are gathered in
`LogWork`, for the shell to carry out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.kraft.raft.history import LogHistory, OffsetAndEpoch
from barnabas.kraft.raft.messages import FetchedSpan
from barnabas.kraft.raft.ready import InstallSnapshot, SnapshotStep, StartSnapshot, WriteSnapshotChunk


class CommittedRecordsLost(Exception):
    """The leader asks to drop committed records: a voter has lost its disk, or worse. The replica has to
    stop."""


@dataclass(slots=True)
class LogWork:
    """Changes to the log on the disk since the last step, and its new high watermark; fields of `Ready`."""

    truncate_to: int | None = None
    append_fetched: bool = False
    snapshot_steps: list[SnapshotStep] = field(default_factory=list)
    high_watermark: int | None = None


class OwnLog:
    """Invariants: `high_watermark` never falls, and nothing below it is truncated."""

    def __init__(self, history: LogHistory, latest_snapshot: OffsetAndEpoch | None) -> None:
        self.history = history
        self.latest_snapshot = latest_snapshot
        self.high_watermark = latest_snapshot.offset if latest_snapshot is not None else history.start.offset
        """Everything below is committed, as far as we know. A snapshot holds only what was."""
        self.generation = 0
        """Rises when records are dropped from the end, so that the result of an earlier sync is not misread."""
        self.synced_end_offset = history.end_offset
        self.installing: OffsetAndEpoch | None = None
        """A complete snapshot that is about to replace the log."""
        self._work = LogWork()

    @property
    def is_synced(self) -> bool:
        return self.synced_end_offset == self.history.end_offset

    def take_work(self) -> LogWork:
        """All work since the last call."""
        work, self._work = self._work, LogWork()
        return work

    # ---- records

    def append(self, epoch: int, next_offset: int) -> None:
        """A leader's own records."""
        self.history = self.history.appended(epoch, next_offset)

    def append_fetched(self, spans: tuple[FetchedSpan, ...], leader_epoch: int) -> bool:
        """Take over fetched records; False, and nothing is done, if they do not continue this log within the
        leader's epoch."""
        history = self.history
        for span in spans:
            continues = span.first_offset == history.end_offset < span.next_offset
            if not continues or not history.last_epoch <= span.epoch <= leader_epoch:
                return False
            history = history.appended(span.epoch, span.next_offset)
        self.history = history
        self._work.append_fetched = bool(spans)
        return True

    def truncate(self, offset: int, wanted_by: str) -> None:
        """Drop the records from `offset` on, if there are any; raises `CommittedRecordsLost`."""
        if offset < self.high_watermark:
            raise CommittedRecordsLost(
                f"{wanted_by} asks for a truncation to {offset}, below the high watermark {self.high_watermark}"
            )
        if offset < self.history.end_offset:
            self.history = self.history.truncated_to(offset)
            self.generation += 1
            self.synced_end_offset = min(self.synced_end_offset, offset)
            self._work.truncate_to = offset

    def synced(self, end_offset: int, generation: int) -> bool:
        """All records below `end_offset` are durable, as of `generation`; False if that was known."""
        if generation != self.generation or end_offset <= self.synced_end_offset:
            return False
        self.synced_end_offset = end_offset
        return True

    def raise_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._work.high_watermark = offset

    # ---- snapshots

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """A snapshot of our own committed records is on the disk."""
        assert snapshot.offset <= self.high_watermark, "a snapshot holds committed records only"
        if self.latest_snapshot is None or snapshot.offset > self.latest_snapshot.offset:
            self.latest_snapshot = snapshot

    def started_at(self, start: OffsetAndEpoch) -> None:
        """The prefix before the snapshot `start` was deleted."""
        self.history = self.history.started_at(start)

    def is_wanted(self, snapshot: OffsetAndEpoch) -> bool:
        """True if a snapshot of the leader is to be downloaded: it is new and holds all that is committed here."""
        return snapshot.offset >= self.high_watermark and snapshot != self.latest_snapshot

    def start_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        self._work.snapshot_steps.append(StartSnapshot(snapshot))

    def write_chunk(self, snapshot: OffsetAndEpoch, position: int) -> None:
        self._work.snapshot_steps.append(WriteSnapshotChunk(snapshot, position))

    def install_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """It is complete: the shell checks it and replaces the log with it; `snapshot_installed` follows."""
        self._work.snapshot_steps.append(InstallSnapshot(snapshot))
        self.installing = snapshot

    def snapshot_installed(self, snapshot: OffsetAndEpoch, installed: bool) -> None:
        """It replaced the log; or, if not `installed`, it was damaged."""
        assert self.installing == snapshot
        self.installing = None
        if installed:
            self.history = LogHistory.of_snapshot(snapshot)
            self.generation += 1
            self.synced_end_offset = snapshot.offset
            self.latest_snapshot = snapshot
            self.raise_high_watermark(snapshot.offset)
