"""One replica of the metadata log: the shell around `kraft.raft`, as a voter (controllers) or an observer
(brokers).

Every input (a request, an answer, a sync that ended, the time) is one step of the core, and what the core
then wants is carried out here, in its order: the election state is synced before anything of that step leaves
the process, and further inputs wait meanwhile. The log is synced away from the event loop, one sync for all
that was appended meanwhile (group commit without a linger); a leader counts itself, and a voter fetches on,
only as far as it is synced.

What the records mean is the `MetadataListener`'s business.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from kraft.commit_feed import CommitFeed, CommittedBatch, MetadataListener, OnCommitted
from kraft.metadata_log import MAX_BATCH_BYTES, MetadataLog
from kraft.parked_fetches import ParkedFetch, ParkedFetches
from kraft.quorum_description import describe_quorum
from kraft.quorum_messages import QuorumMessages, ReadAnswer, RefusedRequest, UnusableAnswer
from kraft.quorum_peers import QuorumPeers
from kraft.raft.history import OffsetAndEpoch
from kraft.raft.messages import Fetch, FetchAnswer, FetchSnapshot
from kraft.raft.raft import Raft, RaftConfig
from kraft.raft.ready import (
    InstallSnapshot,
    LeaderAndEpoch,
    LeaderChange,
    Ready,
    Send,
    SnapshotStep,
    StartSnapshot,
    WriteSnapshotChunk,
)
from kraft.raft.roles import Follower, Leader, Resigned
from kraft.raft.voters import ReplicaKey, VoterSet
from kraft.replica_config import ReplicaConfig
from kraft.snapshots import CorruptSnapshotFile
from protocol.api_keys import ApiKey
from protocol.errors import EncodeError, ErrorCode, KafkaError
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.messages.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
from protocol.messages.fetch import FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotResponse
from protocol.messages.vote import VoteResponse
from protocol.records.builder import build_batch
from protocol.records.control import build_raft_control_batch
from protocol.records.metadata import encode_metadata_record
from protocol.records.record import Record
from protocol.schema import Message
from runtime.channel import ChannelError
from runtime.dispatch import Call, Handler
from runtime.world import File, World

log = logging.getLogger(__name__)

NO_DATA = memoryview(b"")
FAREWELL_MS = 200
"""After its disk failed, a leader gives its resignation so long to reach the voters before the node stops."""

MAINTENANCE_MS = 10_000
"""How often files of dropped segments are looked for."""

Reply = Callable[[], None]
Step = Callable[[], Reply | None]
"""Feeds the core; gives what answers whoever asked, to be called once everything else was carried out."""


class NotLeader(KafkaError):
    """This replica does not lead the metadata log, or no longer in the epoch that the caller means."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class MetadataReplica:
    """Start it with `run`. Methods are called from the event loop's thread; all but the awaitable ones return
    at once."""

    def __init__(self, config: ReplicaConfig, world: World, listener: MetadataListener) -> None:
        self._config = config
        self._world = world
        self._listener = listener
        self._messages = QuorumMessages(config.cluster_id, config.listener_name, config.address)
        self._core: Raft | None = None
        self._log: MetadataLog | None = None
        self._feed: CommitFeed | None = None
        self._peers: QuorumPeers | None = None
        self._nursery: trio.Nursery | None = None
        self._parked = ParkedFetches()
        self._waiting_inputs: deque[tuple[Step, memoryview]] | None = None
        """Inputs that came while the election state is being synced; None while it is not."""
        self._deadline_ms: int | None = None
        self._deadline_moved = trio.Event()
        self._appended = trio.Event()
        self._synced = trio.Event()
        self._role_changed = trio.Event()
        self._part: File | None = None
        """The snapshot that is being downloaded."""
        self._snapshot_lock = trio.Lock()
        self._last_snapshot_ms = 0
        self._failure: BaseException | None = None
        self._failed = trio.Event()

    # ---- what it is

    @property
    def core(self) -> Raft:
        """The Raft core, to be looked at only."""
        assert self._core is not None, "the replica has not been started"
        return self._core

    @property
    def log(self) -> MetadataLog:
        """The log on disk, to be looked at only."""
        assert self._log is not None, "the replica has not been started"
        return self._log

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.core.leader_id, self.core.epoch)

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def high_watermark(self) -> int:
        """Everything below is committed. Never falls while the replica runs."""
        return self.core.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset

    @property
    def should_snapshot(self) -> bool:
        """Enough was appended, or enough time has passed, since the last snapshot (KIP-630)."""
        grown_bytes = self.log.bytes_since_snapshot
        waited_ms = self._now_ms() - self._last_snapshot_ms
        return grown_bytes >= self._config.snapshot_after_bytes or (
            grown_bytes > 0 and waited_ms >= self._config.snapshot_interval_ms
        )

    def _now_ms(self) -> int:
        return self._world.monotonic.now_ms()

    # ---- life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the log, take part until cancelled. Started once the log is open and requests can be handled.

        Raises what broke it: an OSError or KAFKA_STORAGE_ERROR of the disk, a corrupt file, what the listener
        raised, `CommittedRecordsLost`. A leader whose disk fails resigns first.
        """
        config, world = self._config, self._world
        now_ms = world.wall_clock.now_ms()
        self._log = opened = await world.run_blocking(
            lambda: MetadataLog.open(
                world.disk, config.log_directory, now_ms, config.segment_bytes, config.segment_ms
            )
        )
        try:
            async with trio.open_nursery() as nursery:
                self._start(opened, nursery)
                task_status.started()
                await self._failed.wait()
                await self._bid_farewell()
                nursery.cancel_scope.cancel()
        finally:
            self._close_part()
            opened.partition_log.close_files()
        assert self._failure is not None
        raise self._failure

    def _start(self, opened: MetadataLog, nursery: trio.Nursery) -> None:
        config = self._config
        self._nursery = nursery
        client_id = f"raft-client-{config.node_id}"
        self._peers = QuorumPeers(self._world, nursery, config.addresses, client_id, self._on_connection_news)
        self._feed = CommitFeed(opened, self._listener, self._world.run_blocking)
        self._last_snapshot_ms = self._now_ms()
        self._core = Raft(
            RaftConfig(
                local=ReplicaKey(config.node_id, config.directory_id),
                bootstrap_ids=config.bootstrap_ids,
                election_timeout_ms=config.election_timeout_ms,
                fetch_timeout_ms=config.fetch_timeout_ms,
                election_backoff_max_ms=config.election_backoff_max_ms,
                request_timeout_ms=config.request_timeout_ms,
                retry_backoff_ms=config.retry_backoff_ms,
                fetch_max_wait_ms=config.fetch_max_wait_ms,
            ),
            VoterSet.of_ids(config.voters),
            opened.election.read(),
            opened.history(),
            latest_snapshot=opened.snapshots.latest,
            chance=self._world.chance,
            now_ms=self._now_ms(),
        )
        opened.committed_to(self._core.high_watermark)
        self._feed.high_watermark_moved(self._core.high_watermark)
        for task in (self._feed.run, self._sync_appends, self._keep_time, self._delete_dropped_files):
            nursery.start_soon(self._guarded, task)
        self._step(lambda: None)

    async def _guarded(self, task: Callable[[], Awaitable[None]]) -> None:
        """Whatever ends a task of this replica, ends the replica, by way of `run`."""
        try:
            await task()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            log.error("the metadata replica of node %d stops: %s", self._config.node_id, error)
            self._failure = error
            self._failed.set()

    async def _bid_farewell(self) -> None:
        if self._core is not None and self._core.is_leader:
            await self.resign(FAREWELL_MS)

    async def resign(self, timeout_ms: int) -> None:
        """Stop leading and tell the voters, most complete log first; a stop is quicker for everybody that
        way.

        Returns when all have acknowledged, somebody else leads, or the time is over.
        """
        self._step(self._resign)
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                role = self.core.role
                if not isinstance(role, Resigned) or not role.unacknowledged:
                    return
                self._role_changed = trio.Event()
                await self._role_changed.wait()

    def _resign(self) -> None:
        self.core.resign(self._now_ms())

    # ---- a step: core input, durable election state, effects, reply

    def _step(self, step: Step, data: memoryview = NO_DATA) -> None:
        """One input for the core; `data` are the bytes that came with it."""
        if self._failure is not None and not isinstance(self.core.role, Leader | Resigned):
            return
        if self._waiting_inputs is not None:
            self._waiting_inputs.append((step, data))
            return
        try:
            reply = step()
            ready = self.core.take_ready()
            if ready.election is not None:
                self._waiting_inputs = deque()
                assert self._nursery is not None
                self._nursery.start_soon(self._guarded, partial(self._save_election, ready, reply, data))
            else:
                self._carry_out(ready, data, reply)
        except Exception as error:
            self._fail(error)

    async def _save_election(self, ready: Ready, reply: Reply | None, data: memoryview) -> None:
        election = ready.election
        assert election is not None
        voters = self.core.voters.ids
        await self._world.run_blocking(lambda: self.log.election.write(election, voters))
        self._world.fault_point("raft.election.saved")
        waiting, self._waiting_inputs = self._waiting_inputs, None
        assert waiting is not None
        self._carry_out(ready, data, reply)
        while waiting:
            step, its_data = waiting.popleft()
            self._step(step, its_data)
            if self._waiting_inputs is not None:
                self._waiting_inputs.extend(waiting)
                return

    def _carry_out(self, ready: Ready, data: memoryview, reply: Reply | None) -> None:
        if ready.truncate_to is not None:
            log.info("node %d cuts the metadata log at %d", self._config.node_id, ready.truncate_to)
            self.log.truncate_to(ready.truncate_to)
        if ready.append_leader_change is not None:
            self._append_leader_change(ready.append_leader_change)
        if ready.append_fetched:
            self.log.append_as_follower(data, self._world.wall_clock.now_ms())
            self._world.fault_point("raft.fetched.written")
        for snapshot_step in ready.snapshot_steps:
            self._take_snapshot_step(snapshot_step, data)
        assert self.core.log.end_offset == self.log.end_offset, f"{self.core} is not {self.log.history()}"
        if ready.high_watermark is not None:
            self.log.committed_to(ready.high_watermark)
            self._feed_of().high_watermark_moved(ready.high_watermark)
        if ready.leader is not None:
            self._leader_changed(ready.leader)
        if reply is not None:
            reply()
        for send in ready.requests:
            assert self._nursery is not None
            self._nursery.start_soon(self._guarded, partial(self._exchange, send))
        if ready.wake_fetches:
            self._wake_fetches()
        if self.core.synced_end_offset < self.core.log.end_offset:
            self._appended.set()
        if isinstance(self.core.role, Resigned):
            self._role_changed.set()
        self._set_deadline(ready.next_deadline_ms)

    def _leader_changed(self, leader: LeaderAndEpoch) -> None:
        log.info("node %d: leader %s in epoch %d", self._config.node_id, leader.leader_id, leader.epoch)
        role = self.core.role
        self._feed_of().leader_changed(leader, role.epoch_start_offset if isinstance(role, Leader) else None)
        if not isinstance(role, Leader):
            self._feed_of().fail_waiting(NotLeader(f"node {leader.leader_id} leads epoch {leader.epoch}"))
        self._role_changed.set()

    def _feed_of(self) -> CommitFeed:
        assert self._feed is not None
        return self._feed

    # ---- time

    def _set_deadline(self, core_deadline_ms: int | None) -> None:
        times = [time for time in (core_deadline_ms, self._parked.next_deadline_ms) if time is not None]
        deadline_ms = min(times, default=None)
        earlier = deadline_ms is not None and (self._deadline_ms is None or deadline_ms < self._deadline_ms)
        self._deadline_ms = deadline_ms
        if earlier:
            self._deadline_moved.set()

    async def _keep_time(self) -> None:
        while True:
            self._deadline_moved = trio.Event()
            deadline_ms = self._deadline_ms
            if deadline_ms is None:
                await self._deadline_moved.wait()
                continue
            wait_ms = deadline_ms - self._now_ms()
            if wait_ms > 0:
                with trio.move_on_after(wait_ms / 1000):
                    await self._deadline_moved.wait()
                continue
            if self._waiting_inputs is not None:
                # The step that waits for the disk sets the next deadline.
                self._deadline_ms = None
                continue
            for parked in self._parked.take_expired(self._now_ms()):
                self._answer_fetch(parked.call, self.core.answer_fetch(parked.fetch))
            self._step(self._tick)

    def _tick(self) -> None:
        self.core.tick(self._now_ms())

    # ---- making durable

    async def _sync_appends(self) -> None:
        while True:
            await self._appended.wait()
            self._appended = trio.Event()
            generation = self.core.log_generation
            end_offset, work = self.log.flush_work()
            if work is not None:
                await self._world.run_blocking(work)
                self._world.fault_point("raft.appends.synced")
                self.log.flushed(end_offset)
            self._step(lambda: self._note_synced(end_offset, generation))  # noqa: B023 - called at once or queued

    def _note_synced(self, end_offset: int, generation: int) -> None:
        self.core.log_synced(end_offset, generation, self._now_ms())
        self._synced.set()

    async def _delete_dropped_files(self) -> None:
        while True:
            await trio.sleep(MAINTENANCE_MS / 1000)
            work = self.log.deletion_work(self._world.wall_clock.now_ms())
            if work is not None:
                await self._world.run_blocking(work)

    # ---- appending

    def append(self, epoch: int, records: Sequence[Message]) -> int:
        """Append `records` as one batch, so that they commit together; gives the offset of the last one.

        Raises NotLeader unless this replica leads in `epoch`; KafkaError with RECORD_LIST_TOO_LARGE, or with
        KAFKA_STORAGE_ERROR, after which the replica stops.
        """
        core = self.core
        if (
            self._failure is not None
            or self._waiting_inputs is not None
            or not core.is_leader
            or core.epoch != epoch
        ):
            raise NotLeader(f"node {core.leader_id} leads epoch {core.epoch}, not this one epoch {epoch}")
        timestamp_ms = self._world.wall_clock.now_ms()
        values = [encode_metadata_record(record, record.VERSIONS.highest) for record in records]
        batch = build_batch([Record(0, timestamp_ms, None, value) for value in values])
        if len(batch) > MAX_BATCH_BYTES:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(batch)} bytes of records do not fit one batch"
            )
        try:
            header = self.log.append_as_leader(batch, epoch, timestamp_ms)
        except (OSError, KafkaError) as error:
            self._fail(error)
            raise
        self._world.fault_point("raft.append.written")
        self._feed_of().appended(
            CommittedBatch(header.base_offset, header.last_offset, epoch, timestamp_ms, list(records))
        )
        self._step(lambda: core.appended_as_leader(header.next_offset, self._now_ms()))
        return header.last_offset

    def _append_leader_change(self, change: LeaderChange) -> None:
        timestamp_ms = self._world.wall_clock.now_ms()
        message = LeaderChangeMessage(
            leader_id=change.leader_id,
            voters=[LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in change.voters],
            granting_voters=[
                LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in change.granting_voters
            ],
        )
        batch = build_raft_control_batch([message], change.offset, change.epoch, timestamp_ms)
        header = self.log.append_as_leader(batch, change.epoch, timestamp_ms)
        assert header.base_offset == change.offset
        self._world.fault_point("raft.leader_change.written")

    def on_committed(self, offset: int, callback: OnCommitted) -> None:
        """Call back when the record at `offset`, appended by this leader, is committed and applied, or with
        NotLeader."""
        self._feed_of().on_committed(offset, callback)

    async def wait_committed(self, offset: int) -> None:
        """Wait for what `on_committed` tells. Raises NotLeader: the record may be committed later, or
        never."""
        outcome: list[KafkaError | None] = []
        settled = trio.Event()

        def told(error: KafkaError | None) -> None:
            outcome.append(error)
            settled.set()

        self.on_committed(offset, told)
        await settled.wait()
        if outcome[0] is not None:
            raise outcome[0]

    # ---- asking others

    async def _exchange(self, send: Send) -> None:
        """One request to a peer; whatever becomes of it is an input."""
        peers, request, config = self._peers, send.request, self._config
        assert peers is not None
        max_bytes, timeout_ms = config.fetch_max_bytes, config.request_timeout_ms
        if isinstance(request, FetchSnapshot):
            max_bytes = config.fetch_snapshot_max_bytes
        elif isinstance(request, Fetch):
            timeout_ms += request.max_wait_ms
        try:
            message = self._messages.write_request(request, max_bytes)
            read = self._messages.read_answer(await peers.call(send.peer_id, request, message, timeout_ms))
        except (ChannelError, UnusableAnswer, EncodeError) as error:
            log.debug("%s: %s", send, error)
            self._step(lambda: self.core.request_failed(send.peer_id, send.request_id, self._now_ms()))
            return
        self._step(lambda: self._take_answer(send, read), read.data)

    def _take_answer(self, send: Send, read: ReadAnswer) -> None:
        assert self._peers is not None
        self._peers.learn(read.addresses)
        answer = read.answer
        if answer.leader_id is not None and self._peers.address(answer.leader_id) is None:
            answer = replace(answer, leader_id=None)  # nobody we could fetch from
        self.core.handle_answer(send.peer_id, send.request_id, answer, self._now_ms())

    def _on_connection_news(self, peer_id: int, refused: bool) -> None:
        """A connection ended, or a dial was refused: if it was the leader's, is the process gone?"""
        core = self.core
        if core.leader_id != peer_id or not core.is_voter or self._nursery is None:
            return
        epoch = core.epoch
        if refused:
            self._step(lambda: core.leader_process_gone(peer_id, epoch, self._now_ms()))
        else:
            self._nursery.start_soon(self._guarded, partial(self._probe, peer_id, epoch))

    async def _probe(self, leader_id: int, epoch: int) -> None:
        assert self._peers is not None
        if await self._peers.is_gone(leader_id):
            self._step(lambda: self.core.leader_process_gone(leader_id, epoch, self._now_ms()))

    # ---- snapshots

    async def create_snapshot(
        self, records: Sequence[Message], offset: int, epoch: int, timestamp_ms: int
    ) -> bool:
        """Write a snapshot of all that holds after the record at `offset`, then let go of older log and
        snapshots.

        `epoch` and `timestamp_ms` are those of that record's batch: the same arguments give the same bytes on
        every node. `records` must not change meanwhile. False if there is a snapshot as new already.
        """
        snapshot = OffsetAndEpoch(offset=offset + 1, epoch=epoch)
        assert snapshot.offset <= self.high_watermark, "a snapshot holds committed records only"
        async with self._snapshot_lock:
            while self.core.synced_end_offset < snapshot.offset:
                self._synced = trio.Event()
                await self._synced.wait()
            latest = self.core.latest_snapshot
            if latest is not None and latest.offset >= snapshot.offset:
                return False
            assert self.core.log.epoch_of(offset) == epoch, "the epoch is not that of the record"
            await self._world.run_blocking(lambda: self.log.snapshots.write(snapshot, records, timestamp_ms))
            self._world.fault_point("raft.snapshot.written")
            await self._world.run_blocking(lambda: self.log.snapshots.publish(snapshot))
            self._world.fault_point("raft.snapshot.published")
            self._step(lambda: self._snapshot_published(snapshot))
            self._last_snapshot_ms = self._now_ms()
        return True

    def _snapshot_published(self, snapshot: OffsetAndEpoch) -> None:
        start = self.log.snapshot_published(snapshot, self._world.wall_clock.now_ms())
        self.core.snapshot_created(snapshot)
        if start is not None:
            self.core.log_started_at(start)

    def _take_snapshot_step(self, step: SnapshotStep, data: memoryview) -> None:
        match step:
            case StartSnapshot():
                self._close_part()
                self._part = self.log.snapshots.open_part(step.snapshot)
            case WriteSnapshotChunk():
                assert self._part is not None
                self._part.pwrite(data, step.position)
            case InstallSnapshot():
                self._close_part()
                assert self._nursery is not None
                self._nursery.start_soon(self._guarded, partial(self._install_snapshot, step.snapshot))

    def _close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    async def _install_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        async with self._snapshot_lock:
            installed = True
            try:
                await self._world.run_blocking(lambda: self.log.snapshots.verify_part(snapshot))
                await self._world.run_blocking(lambda: self.log.snapshots.publish(snapshot))
            except CorruptSnapshotFile as error:
                log.error("the downloaded snapshot is no good: %s", error)
                self.log.snapshots.remove_part(snapshot)
                installed = False
            self._world.fault_point("raft.snapshot.downloaded")
            self._step(lambda: self._snapshot_arrived(snapshot, installed))

    def _snapshot_arrived(self, snapshot: OffsetAndEpoch, installed: bool) -> None:
        if installed:
            self.log.restart_at(snapshot, self._world.wall_clock.now_ms())
            self._last_snapshot_ms = self._now_ms()
        self.core.snapshot_installed(snapshot, installed, self._now_ms())

    # ---- requests of others

    def handlers(self) -> dict[ApiKey, Handler]:
        """The requests a controller's listener passes on to this replica."""
        return {
            ApiKey.FETCH: self.handle_fetch,
            ApiKey.VOTE: self.handle_vote,
            ApiKey.BEGIN_QUORUM_EPOCH: self.handle_begin_quorum_epoch,
            ApiKey.END_QUORUM_EPOCH: self.handle_end_quorum_epoch,
            ApiKey.DESCRIBE_QUORUM: self.handle_describe_quorum,
            ApiKey.FETCH_SNAPSHOT: self.handle_fetch_snapshot,
        }

    def handle_vote(self, call: Call) -> None:
        """Vote and pre-vote. A pre-vote against a leader we hear from makes us look whether that still
        lives."""
        try:
            request = self._messages.read_vote(call.message)
        except RefusedRequest as refused:
            call.answer(VoteResponse(error_code=refused.code))
            return

        def decide() -> Reply:
            answer = self.core.handle_vote(request, self._now_ms())
            hint = self._hint(answer.leader_id)
            return lambda: call.answer(self._messages.write_vote_answer(answer, hint, call.version))

        if self._waiting_inputs is None and self.core.wants_leader_check(request):
            assert self._nursery is not None and isinstance(self.core.role, Follower)
            self._nursery.start_soon(
                self._decide_after_probe, self.core.role.leader_id, self.core.epoch, decide
            )
        else:
            self._step(decide)

    async def _decide_after_probe(self, leader_id: int, epoch: int, decide: Step) -> None:
        await self._probe(leader_id, epoch)
        self._step(decide)

    def handle_begin_quorum_epoch(self, call: Call) -> None:
        try:
            request = self._messages.read_begin(call.message)
        except RefusedRequest as refused:
            call.answer(BeginQuorumEpochResponse(error_code=refused.code))
            return
        if not self._knows_address(request.leader_id, call.message.leader_endpoints):
            call.answer(BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
            return

        def follow() -> Reply:
            answer = self.core.handle_begin_quorum_epoch(request, self._now_ms())
            hint = self._hint(answer.leader_id)
            return lambda: call.answer(self._messages.write_begin_answer(answer, hint, call.version))

        self._step(follow)

    def handle_end_quorum_epoch(self, call: Call) -> None:
        try:
            request = self._messages.read_end(call.message)
        except RefusedRequest as refused:
            call.answer(EndQuorumEpochResponse(error_code=refused.code))
            return
        if not self._knows_address(request.leader_id, call.message.leader_endpoints):
            call.answer(EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
            return

        def stand() -> Reply:
            answer = self.core.handle_end_quorum_epoch(request, self._now_ms())
            hint = self._hint(answer.leader_id)
            return lambda: call.answer(self._messages.write_end_answer(answer, hint, call.version))

        self._step(stand)

    def handle_fetch(self, call: Call) -> None:
        """Fetches of the metadata partition; answered when there is news or `max.wait` is over."""
        try:
            request = self._messages.read_fetch(call.message)
        except RefusedRequest as refused:
            call.answer(FetchResponse(error_code=refused.code))
            return

        def fetch() -> Reply | None:
            answer = self.core.handle_fetch(request, self._now_ms())
            if self.core.must_wait(request, answer):
                self._parked.add(ParkedFetch(call, request, self._now_ms() + request.max_wait_ms))
                return None
            return lambda: self._answer_fetch(call, answer)

        self._step(fetch)

    def _answer_fetch(self, call: Call, answer: FetchAnswer) -> None:
        data = b""
        if answer.readable is not None:
            first, end = answer.readable
            max_bytes = min(call.message.max_bytes, MAX_BATCH_BYTES)
            data = self.log.read(first, max(max_bytes, 1), end)
        hint = self._hint(answer.leader_id)
        call.answer(self._messages.write_fetch_answer(answer, data, hint, call.version))

    def _wake_fetches(self) -> None:
        core = self.core
        for parked in self._parked.take(lambda fetch: not core.must_wait(fetch, core.answer_fetch(fetch))):
            self._answer_fetch(parked.call, core.answer_fetch(parked.fetch))

    def handle_fetch_snapshot(self, call: Call) -> None:
        try:
            request = self._messages.read_fetch_snapshot(call.message)
        except RefusedRequest as refused:
            call.answer(FetchSnapshotResponse(error_code=refused.code))
            return

        def send_chunk() -> Reply:
            size = self.log.snapshots.size_bytes(request.snapshot)
            bounded = replace(request, max_bytes=min(request.max_bytes, MAX_BATCH_BYTES))
            answer = self.core.handle_fetch_snapshot(bounded, size, self._now_ms())
            data = b""
            if answer.count:
                data = self.log.snapshots.read(request.snapshot, answer.position, answer.count)
            hint = self._hint(answer.leader_id)
            return lambda: call.answer(
                self._messages.write_fetch_snapshot_answer(answer, data, hint, call.version)
            )

        self._step(send_chunk)

    def handle_describe_quorum(self, call: Call) -> None:
        def describe() -> Reply:
            now_ms = self._now_ms()
            wall_offset_ms = self._world.wall_clock.now_ms() - now_ms
            response = describe_quorum(
                self.core, call.message, self._config, now_ms=now_ms, wall_offset_ms=wall_offset_ms
            )
            return lambda: call.answer(response)

        self._step(describe)

    def _hint(self, leader_id: int | None) -> Any:
        if leader_id is None or self._peers is None:
            return None
        return self._config.address if leader_id == self._config.node_id else self._peers.address(leader_id)

    def _knows_address(self, leader_id: int, endpoints: Sequence[Any]) -> bool:
        """Whether we could fetch from this leader, after learning what it says of itself."""
        assert self._peers is not None
        if leader_id not in self._config.voters:
            self._peers.learn(self._messages.read_endpoints(leader_id, endpoints))
        return leader_id == self._config.node_id or self._peers.address(leader_id) is not None
