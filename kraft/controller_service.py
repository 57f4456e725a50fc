"""The shell around `QuorumController`: appends what it decides, and lets answers go when they are committed.

Hears of the metadata log as its `MetadataListener`, keeps the timetable of the active controller, writes
snapshots, registers this controller with the active one. Decides nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import trio

from kraft.broker_watch import BrokerWatch
from kraft.commit_feed import CommittedBatch
from kraft.controller.controller import QuorumController
from kraft.controller.heard import note_heard
from kraft.controller.state import MAX_RECORDS_PER_OPERATION
from kraft.controller.unclean_elections import unclean_elections
from kraft.metadata.image import MetadataImage
from kraft.metadata.snapshot import image_to_records
from kraft.metadata_replica import MetadataReplica, NotLeader
from protocol.errors import ErrorCode, KafkaError
from protocol.schema import Message
from runtime.decisions import Decisions, Notes
from runtime.request_times import Spread
from runtime.world import Clock, World

log = logging.getLogger("kraft.controller")

DEPOSED_PAUSE_MS = 100

Answer = Callable[[Message | None], None]
"""Takes the response once it may go; None when this is not the active controller (any more)."""


class ControllerTimes:
    """What the active controller's work takes."""

    def __init__(self) -> None:
        self.processing = Spread()
        """To decide on a request or on what is due, and to append it."""
        self.lateness = Spread()
        """Until what is due is looked at."""
        self.commit = Spread()
        """From the append of records until they are committed and applied."""
        self.activations = 0
        """How often this controller became the active one."""


class ControllerService:
    """One per controller node. `run` drives it; the other methods never wait."""

    def __init__(self, core: QuorumController, world: World, nursery: trio.Nursery, decisions: Decisions) -> None:
        self.core = core
        self.changed = trio.Event()
        """Set, and made anew, whenever the leader or the committed image changed."""
        self._decisions = decisions
        self._started_ms = world.wall_clock.now_ms()
        """What was decided before is history, and nobody's news."""
        self._world = world
        self._nursery = nursery
        self._replica: MetadataReplica | None = None
        self._last_appended = -1
        self._snapshotting = False
        self._timetable_changed = trio.Event()
        self.times = ControllerTimes()
        self.unclean_elections = 0
        """Committed since this process started."""
        self.watch = BrokerWatch(world, nursery, self._broker_process_gone)

    def attach(self, replica: MetadataReplica) -> None:
        """The replica whose listener this is; before it runs."""
        self._replica = replica

    @property
    def replica(self) -> MetadataReplica:
        assert self._replica is not None, "no replica was attached"
        return self._replica

    @property
    def monotonic(self) -> Clock:
        return self._world.monotonic

    @property
    def stopwatch(self) -> Callable[[], float]:
        return self._world.stopwatch

    @property
    def committed(self) -> MetadataImage:
        return self.core.committed

    def _now_ms(self) -> int:
        return self._world.monotonic.now_ms()

    # Commands

    def execute(self, request: Message, version: int, answer: Answer) -> None:
        """Decide on a request. `answer` is called once: at once, or when what was decided is committed."""
        if not self._leads():
            answer(None)
            return
        began = self.stopwatch()
        result = self.core.decide(request, version, self.replica.log_end_offset, self._now_ms())
        try:
            self._append(result.records, result.notes)
            self.times.processing.took(self.stopwatch() - began)
        except NotLeader:
            answer(None)
            return
        except KafkaError as error:
            if error.code is not ErrorCode.RECORD_LIST_TOO_LARGE:
                raise
            message = "the operation would write more than fits one batch"
            answer(self.core.refuse(request, version, ErrorCode.POLICY_VIOLATION, message).response)
            return
        # Even an answer without records may rest on records that are not committed yet.
        self.replica.on_committed(self._last_appended, lambda error: answer(result.response if error is None else None))

    def _leads(self) -> bool:
        """Active, and not deposed by something that the log has not told yet."""
        leading = self.replica.leader_and_epoch
        return (
            self.core.is_active and leading.leader_id == self.core.defaults.node_id and leading.epoch == self.core.epoch
        )

    def _append(self, records: Sequence[Message], notes: Notes) -> None:
        """Append records that were decided on the pending image as it is. Raises NotLeader, or KafkaError for
        a batch that is too large.

        More than an operation of a user may write is cut into several batches: such records (a broker with
        very many partitions went away) keep their sense one by one.
        """
        for start in range(0, len(records), MAX_RECORDS_PER_OPERATION):
            chunk = records[start : start + MAX_RECORDS_PER_OPERATION]
            expected = self.replica.log_end_offset + len(chunk) - 1
            preview = self.core.preview(chunk, expected, self._now_ms())
            last_offset = self.replica.append(self.core.epoch, chunk)
            assert last_offset == expected, f"appended up to {last_offset}, not {expected}"
            self.core.appended(preview, self._now_ms())
            self._last_appended = last_offset
        if notes:
            committed_at = self._last_appended if records else None
            self.replica.on_committed(self._last_appended, partial(self._decided, notes, committed_at))
        if records:
            self.replica.on_committed(self._last_appended, partial(self._told_committed, self.stopwatch()))
            self._timetable_changed.set()

    def _told_committed(self, appended_at: float, error: KafkaError | None) -> None:
        if error is None:
            self.times.commit.took(self.stopwatch() - appended_at)

    def _decided(self, notes: Notes, metadata_offset: int | None, error: KafkaError | None) -> None:
        """Decisions count once they are committed; what became of others is told by whoever leads now. A refusal has
        no offset of its own: it counts when what it rests on is committed."""
        if error is None:
            self._decisions.take(notes, **({} if metadata_offset is None else {"metadata_offset": metadata_offset}))

    def _broker_process_gone(self, broker_id: int, broker_epoch: int, cause: str) -> None:
        end_offset = self.replica.log_end_offset
        result = self.core.fence_broker(broker_id, broker_epoch, cause, end_offset, self._now_ms())
        try:
            self._append(result.records, result.notes)
        except NotLeader:
            log.info("broker %d is not fenced by this controller: it does not lead any more", broker_id)

    # MetadataListener

    def handle_commit(self, batch: CommittedBatch) -> None:
        deltas = self.core.handle_commit(batch.base_offset, batch.epoch, batch.append_time_ms, batch.records)
        if batch.append_time_ms >= self._started_ms:
            self.unclean_elections += sum(map(unclean_elections, deltas))
        if not self.core.is_active and batch.append_time_ms >= self._started_ms:
            for delta in deltas:
                note_heard(self._decisions, self.core.defaults.node_id, delta)
        self._image_changed()

    def handle_snapshot(self, records: list[Message], offset: int, epoch: int, timestamp_ms: int) -> None:
        self.core.handle_snapshot(records, offset, epoch, timestamp_ms)
        self._image_changed()

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        if self.core.is_active:
            self.core.resign()
            self.watch.forget()
        if leader_id == self.core.defaults.node_id:
            self._activate(epoch)
        self._timetable_changed.set()
        self._tell()

    def _activate(self, epoch: int) -> None:
        self.times.activations += 1
        end_offset = self.replica.log_end_offset
        self._last_appended = end_offset - 1
        records = self.core.activate(epoch, end_offset, self._now_ms())
        try:
            self._append(records, Notes())
        except NotLeader:
            # Lost again already; the log tells soon who leads.
            self.core.resign()
            return
        for broker in self.core.pending.cluster.brokers.values():
            if not broker.fenced:
                self.watch.look_at(broker, f"controller {self.core.defaults.node_id} became active")

    def _image_changed(self) -> None:
        loader = self.core.loader
        # A log that was grown in an earlier life may be due for a snapshot before any of it was read back.
        may_snapshot = loader.image.offset >= 0 and not self._snapshotting and not loader.in_transaction
        if may_snapshot and self.replica.should_snapshot:
            self._snapshotting = True
            self._nursery.start_soon(self._write_snapshot, loader.image)
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def _write_snapshot(self, image: MetadataImage) -> None:
        try:
            records = await self._world.run_blocking(lambda: image_to_records(image))
            await self.replica.create_snapshot(records, image.offset, image.epoch, image.timestamp_ms)
            log.info("wrote a snapshot of %d records up to offset %d", len(records), image.offset)
        finally:
            self._snapshotting = False

    # By the clock

    async def run(self) -> None:
        """Do what the active controller does by the clock, until cancelled."""
        while True:
            self._timetable_changed = trio.Event()
            now_ms = self._now_ms()
            due_ms = self.core.next_periodic_ms(now_ms)
            if due_ms is None:
                await self._timetable_changed.wait()
            elif due_ms > now_ms:
                with trio.move_on_after((due_ms - now_ms) / 1000):
                    await self._timetable_changed.wait()
            else:
                self.times.lateness.took((now_ms - due_ms) / 1000)
                began = self.stopwatch()
                result = self.core.run_periodic(self.replica.log_end_offset, now_ms)
                try:
                    self._append(result.records, result.notes)
                    self.times.processing.took(self.stopwatch() - began)
                except NotLeader:
                    # The log tells soon who leads instead.
                    with trio.move_on_after(DEPOSED_PAUSE_MS / 1000):
                        await self._timetable_changed.wait()
                await trio.lowlevel.checkpoint()
