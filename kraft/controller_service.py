"""Shell around `QuorumController`: appends the records of its decisions, and releases answers when they are committed.

Follows the metadata log as its `MetadataListener`, runs the periodic work of the active controller, writes snapshots.
Decides nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.kraft.broker_watch import BrokerWatch
from barnabas.kraft.commit_feed import CommittedBatch
from barnabas.kraft.controller.controller import QuorumController
from barnabas.kraft.controller.gatherings import is_awaited, note_wishes
from barnabas.kraft.controller.partition_notes import is_alarming
from barnabas.kraft.controller.standby_notes import note_replayed
from barnabas.kraft.controller.state import MAX_RECORDS_PER_OPERATION, STEP_ITEMS, Asked, ControllerResult, R, Steps
from barnabas.kraft.controller.unclean_elections import unclean_elections
from barnabas.kraft.decision_queue import DecisionQueue, Job
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.features import obstacle
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.metadata.snapshot import image_to_records
from barnabas.kraft.metadata_replica import MetadataReplica, NotLeader, encode_batch
from barnabas.kraft.quotas import NodeQuotas
from barnabas.kraft.replica_snapshots import LAST_SNAPSHOT_SECONDS
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.decisions import Decisions, Note
from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.process import CannotRun
from barnabas.runtime.request_times import Spread
from barnabas.runtime.throttling import Mutations
from barnabas.runtime.world import Clock, World

if TYPE_CHECKING:
    from barnabas.kraft.authorization import Authorization

log = logging.getLogger("kraft.controller")

DEPOSED_PAUSE_MS = 100

NOTES_IN_A_STEP = 20
"""Decision notes that are kept and logged at once; more are kept in the background."""

Answer = Callable[[Message | None, bool], None]
"""Takes the response once it may leave, and whether it is too long to be encoded in one step; None if this is not the
active controller, or no longer."""


@dataclass(slots=True)
class Command:
    """A request for the active controller, and the place for its answer."""

    request: Message
    version: int
    answer: Answer
    """Called once: at once, or when the decision is committed."""
    failed: Callable[[Exception], None]
    """Called instead if deciding raises an unexpected exception."""
    connection: int | None = None
    """The connection that it came by; None for a request of this controller itself."""
    is_of_client: bool = False
    """A client sent it, and no node."""
    is_abandoned: Callable[[], bool] = lambda: False
    """True if its sender has gone."""
    principal: Principal = ANONYMOUS
    """Its sender."""
    mutations: Mutations | None = None
    """The quota for partitions that it creates and deletes."""


class ControllerTimes:
    """Durations of the active controller's work, in seconds."""

    def __init__(self) -> None:
        self.processing = Spread()
        """To decide on a request or on periodic work, and to append the records."""
        self.commit = Spread()
        """From the append of records until they are committed and applied."""
        self.activations = 0
        """Number of times that this controller became the active one."""


class ControllerService:
    """One per controller node. `run` is its task; the other methods never wait."""

    def __init__(self, core: QuorumController, world: World, nursery: trio.Nursery, decisions: Decisions) -> None:
        self.core = core
        self.changed = trio.Event()
        """Set, and replaced by a new one, whenever the leader or the committed image changed."""
        self._decisions = decisions
        self._started_ms = world.wall_clock.now_ms()
        """Records from before are not noted as decisions."""
        self._world = world
        self._nursery = nursery
        self._replica: MetadataReplica | None = None
        self._last_appended = -1
        self._snapshotting = False
        self._timetable_changed = trio.Event()
        self._heartbeat_came = trio.Event()
        """Set, and replaced by a new one, by each heartbeat of a registered broker."""
        self._failure: Exception | None = None
        self.times = ControllerTimes()
        self.quotas: NodeQuotas | None = None
        """Gets the quotas of the committed metadata."""
        self.unclean_elections = 0
        """Committed since this process started."""
        self.authorization: Authorization | None = None
        """Gets every step of the committed metadata."""
        self.queue = DecisionQueue(world)
        self.watch = BrokerWatch(world, nursery, self._broker_process_gone)

    def attach(self, replica: MetadataReplica) -> None:
        """The replica whose listener this is; before it runs."""
        self._replica = replica
        self.core.quorum = replica

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

    def execute(self, command: Command) -> None:
        """Decide on a request, after those before it."""
        name = type(command.request).__name__.removesuffix("Request")
        self.queue.add(
            Job(
                name,
                self._execute(command),
                command.failed,
                command.request.API_KEY,
                command.connection,
                command.is_of_client,
                command.is_abandoned,
            )
        )

    def _execute(self, command: Command) -> Steps[None]:
        if not self._leads():
            command.answer(None, False)
            return
        began = self.stopwatch()
        request, version = command.request, command.version
        mutations = command.mutations

        def decide(end_offset: int) -> Steps[ControllerResult[Message]]:
            if mutations is not None:
                mutations.again()
            asked = Asked(command.principal, self._world.wall_clock.now_ms(), mutations)
            return self.core.decide(request, version, end_offset, self._now_ms(), asked)

        try:
            result = yield from self._decide_and_append(decide)
        except NotLeader:
            command.answer(None, False)
            return
        except KafkaError as error:
            code, message = error.code, error.message
            if code is ErrorCode.RECORD_LIST_TOO_LARGE:
                code, message = ErrorCode.POLICY_VIOLATION, "the records of the operation do not fit one batch"
            elif code is not ErrorCode.INVALID_UPDATE_VERSION:
                raise
            refusal = yield partial(self.core.refuse, request, version, code, message)
            command.answer(refusal.response, True)
            return
        self.times.processing.took(self.stopwatch() - began)

        def answer(error: KafkaError | None) -> None:
            if error is None:
                command.answer(result.response, result.is_long)
            else:
                command.answer(None, False)

        # Even an answer without records may depend on records that are not committed yet.
        self.replica.on_committed(self._last_appended, answer)

    def heartbeat_arrived(self, request: BrokerHeartbeatRequest) -> int:
        """Keep the session of a registered broker, however long its heartbeat waits in the queue. Returns the longest
        time in ms for which the heartbeat should wait for others (see `wait_for_others`)."""
        core = self.core
        core.sessions.contact(request.broker_id, request.broker_epoch, self._now_ms())
        hold_ms = note_wishes(core.pending, core.sessions, request)
        self._heartbeat_came.set()
        self._heartbeat_came = trio.Event()
        return hold_ms

    async def wait_for_others(self, request: BrokerHeartbeatRequest, hold_ms: int) -> None:
        """Wait until it is time to decide on a heartbeat of a broker that may stop or start together with others."""
        with trio.move_on_after(hold_ms / 1000):
            if request.want_shut_down:
                await trio.sleep_forever()
            while self.core.is_active and is_awaited(self.core.pending, self.core.sessions, self._now_ms()):
                await self._heartbeat_came.wait()

    def _leads(self) -> bool:
        """Active, and not deposed by a leader change that the listener has not got yet."""
        leading = self.replica.leader_and_epoch
        return (
            self.core.is_active and leading.leader_id == self.core.defaults.node_id and leading.epoch == self.core.epoch
        )

    def _while_leading(self, steps: Steps[R]) -> Steps[R]:
        """Steps that need this controller to lead in the same epoch from begin to end. Raises NotLeader otherwise."""
        epoch = self.core.epoch
        result = None
        try:
            while True:
                if not self._leads() or self.core.epoch != epoch:
                    raise NotLeader(f"node {self.core.defaults.node_id} no longer leads epoch {epoch}")
                work = steps.send(result)
                result = yield work
        except StopIteration as finished:
            value: R = finished.value
            return value
        finally:
            steps.close()

    def _decide_and_append(self, decide: Callable[[int], Steps[ControllerResult[R]]]) -> Steps[ControllerResult[R]]:
        """Decide from the end of the log on, and append. Raises NotLeader, or what the decision raises.

        The quorum may append a record of its own between two steps, a change of the voters. A decision may depend on
        the offset that its records get, so it is made again then.
        """
        while True:
            end_offset = self.replica.log_end_offset
            result = yield from self._while_leading(decide(end_offset))
            if result.records and self.replica.log_end_offset != end_offset:
                continue
            if (yield from self._while_leading(self._append(result))):
                return result

    def _append(self, result: ControllerResult[R]) -> Steps[bool]:
        """Append the records of a decision on the pending image as it is; False, and nothing is appended, if the quorum
        appended a record meanwhile. Raises NotLeader, or KafkaError for a batch that is too large.

        More records than an operation of a user may write are cut into several batches: such records (a broker with
        very many partitions was fenced) are valid one by one.
        """
        records = result.records
        for prepare in result.before:
            prepare()
        for start in range(0, len(records), MAX_RECORDS_PER_OPERATION):
            chunk = records[start : start + MAX_RECORDS_PER_OPERATION]
            appended = False
            while not appended:
                expected = self.replica.log_end_offset + len(chunk) - 1
                preview = yield from self.core.preview(chunk, expected, self._now_ms())
                level = self.core.pending.features.metadata_version
                encode = partial(encode_batch, chunk, self._world.wall_clock.now_ms(), level)
                batch: bytes = encode() if len(chunk) <= STEP_ITEMS else (yield encode)
                appended = self._append_batch(chunk, batch, preview, expected)
                if not appended and start == 0 and not result.before:
                    return False
        for effect in result.effects:
            effect()
        if result.notes:
            committed_at = self._last_appended if records else None
            self.replica.on_committed(self._last_appended, partial(self._decided, result.notes, committed_at))
        if records:
            self.replica.on_committed(self._last_appended, partial(self._committed, self.stopwatch()))
            self._timetable_changed.set()
        return True

    def _append_batch(self, records: Sequence[Message], batch: bytes, preview: MetadataImage, expected: int) -> bool:
        """False, and nothing is appended, if the log does not end where it did."""
        if self.replica.log_end_offset + len(records) - 1 != expected:
            return False
        last_offset = self.replica.append_batch(self.core.epoch, records, batch)
        assert last_offset == expected, f"appended up to {last_offset}, not {expected}"
        self.core.appended(preview, self._now_ms())
        self._last_appended = last_offset
        return True

    def _committed(self, appended_at: float, error: KafkaError | None) -> None:
        if error is None:
            self.times.commit.took(self.stopwatch() - appended_at)

    def _decided(self, notes: Sequence[Note], metadata_offset: int | None, error: KafkaError | None) -> None:
        """Keep notes once their records are committed; the next leader notes the fate of others. A refusal has no
        offset: it is noted when the records that it depends on are committed."""
        if error is not None:
            return
        if len(notes) <= NOTES_IN_A_STEP:
            self._keep(notes, metadata_offset)
        else:
            self._nursery.start_soon(self._keep_many, notes, metadata_offset)

    async def _keep_many(self, notes: Sequence[Note], metadata_offset: int | None) -> None:
        for start in range(0, len(notes), NOTES_IN_A_STEP):
            self._keep(notes[start : start + NOTES_IN_A_STEP], metadata_offset)
            await trio.lowlevel.checkpoint()

    def _keep(self, notes: Sequence[Note], metadata_offset: int | None) -> None:
        self._decisions.take(notes, **({} if metadata_offset is None else {"metadata_offset": metadata_offset}))
        for note in notes:
            if is_alarming(note):
                log.warning("%s: %s", note.text, note.cause)

    def _broker_process_gone(self, broker_id: int, broker_epoch: int, cause: str) -> None:
        self.queue.add(Job("BrokerProcessGone", self._fence(broker_id, broker_epoch, cause), self._failed))

    def _fence(self, broker_id: int, broker_epoch: int, cause: str) -> Steps[None]:
        try:
            yield from self._decide_and_append(
                lambda end_offset: self.core.fence_broker(broker_id, broker_epoch, cause, end_offset, self._now_ms())
            )
        except NotLeader:
            log.info("broker %d is not fenced: this controller no longer leads", broker_id)

    def _failed(self, error: Exception) -> None:
        """Work that nobody asked for has failed: the node stops."""
        self._failure = error
        self._timetable_changed.set()

    # MetadataListener

    def handle_commit(self, batch: CommittedBatch) -> Stepwise[None]:
        deltas = yield from self.core.handle_commit(
            batch.base_offset, batch.epoch, batch.append_time_ms, batch.records, batch.last_offset
        )
        self.replica.snapshots.look_at(deltas)
        is_caught_up = batch.last_offset + 1 >= self.replica.high_watermark
        for delta in deltas:
            self._take_over(delta, is_caught_up=is_caught_up)
        if batch.append_time_ms >= self._started_ms:
            self.unclean_elections += sum(map(unclean_elections, deltas))
        if not self.core.is_active and batch.append_time_ms >= self._started_ms:
            for delta in deltas:
                self._note_replayed(delta)
        self._image_changed()

    def _note_replayed(self, delta: MetadataDelta) -> None:
        steps = note_replayed(self._decisions, self.core.defaults.node_id, delta)
        for _ in steps:
            self._nursery.start_soon(self._finish, steps)
            break

    async def _finish(self, steps: Steps[None]) -> None:
        for _ in steps:
            await trio.lowlevel.checkpoint()

    def handle_snapshot(self, records: list[Message], offset: int, epoch: int, timestamp_ms: int) -> Stepwise[None]:
        delta = yield from self.core.handle_snapshot(records, offset, epoch, timestamp_ms)
        self._take_over(delta, is_caught_up=False)
        self._image_changed()

    def _take_over(self, delta: MetadataDelta, *, is_caught_up: bool) -> None:
        if self.authorization is not None:
            self.authorization.put(delta, is_caught_up=is_caught_up)
        if self.quotas is not None:
            self.quotas.changed(delta)

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        if self.core.is_active:
            self.core.resign()
            self.watch.forget()
        if leader_id == self.core.defaults.node_id:
            self.queue.add(Job("Activation", self._activate(epoch), self._failed))
        self._timetable_changed.set()
        self._report_change()

    def _activate(self, epoch: int) -> Steps[None]:
        """Become active, unless leadership was lost again while earlier jobs ended."""
        leading = self.replica.leader_and_epoch
        if (leading.leader_id, leading.epoch) != (self.core.defaults.node_id, epoch) or self.core.is_active:
            return
        reason = obstacle(self.committed.features.levels)
        if reason is not None:
            raise CannotRun(f"this controller cannot lead the cluster: {reason}")
        self.times.activations += 1
        end_offset = self.replica.log_end_offset
        self._last_appended = end_offset - 1
        records = self.core.activate(epoch, end_offset, self._now_ms())
        try:
            while not (yield from self._while_leading(self._append(ControllerResult(None, records)))):
                pass
        except NotLeader:
            # Leadership is lost again; the listener will get the next leader.
            self.core.resign()
            return
        self._timetable_changed.set()
        for broker in self.core.pending.cluster.brokers.values():
            if not broker.fenced:
                self.watch.look_at(broker, f"controller {self.core.defaults.node_id} became active")

    def _image_changed(self) -> None:
        if self._may_snapshot and self.replica.snapshots.is_due:
            self._snapshotting = True
            self._nursery.start_soon(self._write_snapshot, self.core.loader.image)
        self._report_change()

    @property
    def _may_snapshot(self) -> bool:
        """A log from before a restart may be due for a snapshot before any of it was read back."""
        loader = self.core.loader
        return loader.image.offset >= 0 and not self._snapshotting and not loader.in_transaction

    async def snapshot_before_stop(self) -> None:
        """Write a snapshot if the next start would have to replay a long log."""
        if self._may_snapshot and self.replica.snapshots.is_due_before_a_stop:
            self._snapshotting = True
            with trio.move_on_after(LAST_SNAPSHOT_SECONDS):
                await self._write_snapshot(self.core.loader.image)

    def _report_change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def _write_snapshot(self, image: MetadataImage) -> None:
        try:
            snapshots = self.replica.snapshots
            if await snapshots.create(image_to_records(image), image.offset, image.epoch, image.timestamp_ms):
                log.info("a snapshot up to offset %d was written", image.offset)
        finally:
            self._snapshotting = False

    # Periodic work

    async def run(self) -> None:
        """Run the queue and the periodic work of the active controller, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.queue.run)
            await self._keep_timetable()

    async def _keep_timetable(self) -> None:
        while True:
            if self._failure is not None:
                raise self._failure
            self._timetable_changed = trio.Event()
            now_ms = self._now_ms()
            due_ms = self.core.next_periodic_ms(now_ms)
            if due_ms is None:
                await self._timetable_changed.wait()
            elif due_ms > now_ms:
                with trio.move_on_after((due_ms - now_ms) / 1000):
                    await self._timetable_changed.wait()
            else:
                self.queue.waited.took((now_ms - due_ms) / 1000)
                done = trio.Event()
                self.queue.add(Job("PeriodicWork", self._run_periodic(), self._failed, done=done.set))
                await done.wait()
                if not self._leads():
                    # The listener will get the next leader.
                    with trio.move_on_after(DEPOSED_PAUSE_MS / 1000):
                        await self._timetable_changed.wait()
                await trio.lowlevel.checkpoint()

    def _run_periodic(self) -> Steps[None]:
        began = self.stopwatch()
        try:
            yield from self._decide_and_append(
                lambda end_offset: self.core.run_periodic(
                    end_offset, self._now_ms(), self._world.wall_clock.now_ms()
                )
            )
        except NotLeader:
            return
        self.times.processing.took(self.stopwatch() - began)
