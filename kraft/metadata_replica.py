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
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from kraft.commit_feed import CommitFeed, CommittedBatch, MetadataListener, OnCommitted
from kraft.metadata_log import MAX_BATCH_BYTES, MetadataLog
from kraft.quorum_messages import NodeAddress, QuorumMessages, ReadAnswer, UnusableAnswer
from kraft.quorum_peers import QuorumPeers
from kraft.quorum_requests import QuorumRequests
from kraft.raft.config import RaftConfig
from kraft.raft.history import OffsetAndEpoch
from kraft.raft.messages import Fetch, FetchSnapshot
from kraft.raft.raft import Raft
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
from protocol.messages.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from protocol.messages.metadata_log import NoOpRecord
from protocol.records.batch import BatchHeader, read_header
from protocol.records.builder import build_batch
from protocol.records.control import build_raft_control_batch
from protocol.records.metadata import encode_metadata_record
from protocol.records.record import Record
from protocol.schema import Message
from runtime.channel import ChannelError
from runtime.decisions import Decisions
from runtime.dispatch import Handler
from runtime.world import File, World
from storage.flushing import FlushWork
from storage.shortage import is_shortage, shortage_behind

log = logging.getLogger(__name__)

NO_DATA = memoryview(b"")
FAREWELL_MS = 200
"""After its disk failed, a leader gives its resignation so long to reach the voters before the node stops."""

SHORTAGE_PAUSE_MS = 500
"""How long the replica waits before it tries again what a full disk, or a lack of descriptors, refused."""
SNAPSHOT_PAUSE_MS = 60_000
"""How long it waits before it tries again to write a snapshot that did not fit."""

MAINTENANCE_MS = 10_000
"""How often files of dropped segments are looked for."""

Reply = Callable[[], None]
Step = Callable[[], Reply | None]
"""Feeds the core; gives what answers whoever asked, to be called once everything else was carried out."""


def encode_batch(records: Sequence[Message], timestamp_ms: int) -> bytes:
    """One batch of metadata records. Slow if they are many: may run in a thread."""
    values = [encode_metadata_record(record, record.VERSIONS.highest) for record in records]
    return build_batch([Record(0, timestamp_ms, None, value) for value in values])


class NotLeader(KafkaError):
    """This replica does not lead the metadata log, or no longer in the epoch that the caller means."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class MetadataReplica:
    """Start it with `run`. Methods are called from the event loop's thread; all but the awaitable ones return
    at once."""

    def __init__(
        self, config: ReplicaConfig, world: World, listener: MetadataListener, decisions: Decisions | None = None
    ) -> None:
        self.config = config
        self._decisions = decisions or Decisions(f"node-{config.node_id}", world.wall_clock.now_ms)
        self._world = world
        self._listener = listener
        self._messages = QuorumMessages(config.cluster_id, config.listener_name, config.address)
        self._core: Raft | None = None
        self._log: MetadataLog | None = None
        self._feed: CommitFeed | None = None
        self._peers: QuorumPeers | None = None
        self._nursery: trio.Nursery | None = None
        self._requests = QuorumRequests(self, self._messages)
        self.awaited_end_offset = 0
        """A leader's: the end of the last batch that says something. That what follows it is committed, which is
        NoOpRecords only, is no news that wakes anybody; it goes with the next records."""
        self._waiting_inputs: deque[tuple[Step, memoryview]] | None = None
        """Inputs that came while the election state is being synced, or while the log waits for room; else None."""
        self.is_short = False
        """Waits until something fits on its disk."""
        self._no_snapshot_before_ms = 0
        self._is_stepping = False
        """In the middle of a step: no other may begin."""
        self._deadline_ms: int | None = None
        self._deadline_moved = trio.Event()
        self._appended = trio.Event()
        self._synced = trio.Event()
        self._role_changed = trio.Event()
        self._part: File | None = None
        """The snapshot that is being downloaded."""
        self._snapshot_lock = trio.Lock()
        self._last_snapshot_ms = 0
        self.appended_records = 0
        """As the leader, since the node started."""
        self.fetched_records = 0
        """From leaders, since then."""
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
    def is_open(self) -> bool:
        """The log was read."""
        return self._core is not None

    @property
    def is_in_quorum(self) -> bool:
        """It leads a majority that fetches, or follows a leader that answers."""
        return self._core is not None and isinstance(self._core.role, Leader | Follower)

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
    def snapshot_age_ms(self) -> int:
        """Since the newest snapshot was made or arrived; since the node started, if none was."""
        return self.now_ms() - self._last_snapshot_ms

    @property
    def should_snapshot(self) -> bool:
        """Enough was appended, or enough time has passed, since the last snapshot (KIP-630)."""
        grown_bytes = self.log.bytes_since_snapshot
        waited_ms = self.now_ms() - self._last_snapshot_ms
        is_due = grown_bytes >= self.config.snapshot_after_bytes or (
            grown_bytes > 0 and waited_ms >= self.config.snapshot_interval_ms
        )
        return is_due and self.now_ms() >= self._no_snapshot_before_ms

    def now_ms(self) -> int:
        """Of the monotonic clock, which all deadlines go by."""
        return self._world.monotonic.now_ms()

    def wall_ms(self) -> int:
        return self._world.wall_clock.now_ms()

    # ---- life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the log, take part until cancelled. Started once the log is open and requests can be handled.

        Raises what broke it: an OSError or KAFKA_STORAGE_ERROR of the disk, a corrupt file, what the listener
        raised, `CommittedRecordsLost`. A leader whose disk fails resigns first.
        """
        config, world = self.config, self._world
        now_ms = self.wall_ms()
        self._log = opened = await world.run_blocking(
            lambda: MetadataLog.open(world.disk, config.log_directory, now_ms, config.segment_bytes, config.segment_ms)
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
        config = self.config
        self._nursery = nursery
        client_id = f"raft-client-{config.node_id}"
        self._peers = QuorumPeers(self._world, nursery, config.addresses, client_id, self._on_connection_news)
        self._feed = CommitFeed(opened, self._listener, self._world.run_blocking)
        self._last_snapshot_ms = self.now_ms()
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
            now_ms=self.now_ms(),
        )
        opened.committed_to(self._core.high_watermark)
        self._feed.high_watermark_moved(self._core.high_watermark)
        for task in (self._feed.run, self._sync_appends, self._keep_time, self._delete_dropped_files):
            self.spawn(task)
        self.step(lambda: None)

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task of this replica; an error in it ends the replica."""
        assert self._nursery is not None
        self._nursery.start_soon(self._guarded, task)

    async def _guarded(self, task: Callable[[], Awaitable[None]]) -> None:
        """Whatever ends a task of this replica, ends the replica, by way of `run`."""
        try:
            await task()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            log.error("the metadata replica of node %d stops: %s", self.config.node_id, error)
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
        self.step(self._resign)
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                role = self.core.role
                if not isinstance(role, Resigned) or not role.unacknowledged:
                    return
                self._role_changed = trio.Event()
                await self._role_changed.wait()

    def _resign(self) -> None:
        self.core.resign(self.now_ms())

    # ---- a step: core input, durable election state, effects, reply

    def step(self, step: Step, data: memoryview = NO_DATA) -> None:
        """One input for the core; `data` are the bytes that came with it."""
        if self._failure is not None and not isinstance(self.core.role, Leader | Resigned):
            return
        if self._waiting_inputs is not None:
            self._waiting_inputs.append((step, data))
            return
        self._is_stepping = True
        try:
            reply = step()
            ready = self.core.take_ready()
            if ready.election is not None:
                self._waiting_inputs = deque()
                self.spawn(partial(self._save_election, ready, reply, data))
            else:
                self._carry_out(ready, data, reply)
        except Exception as error:
            self._fail(error)
        finally:
            self._is_stepping = False

    async def _save_election(self, ready: Ready, reply: Reply | None, data: memoryview) -> None:
        election = ready.election
        assert election is not None
        voters = self.core.voters.ids
        await self._until_it_fits(lambda: self.log.election.write(election, voters))
        self._world.fault_point("raft.election.saved")
        waiting, self._waiting_inputs = self._waiting_inputs, None
        assert waiting is not None
        self._is_stepping = True
        try:
            self._carry_out(ready, data, reply)
        finally:
            self._is_stepping = False
        self._take_up(waiting)

    def _take_up(self, waiting: deque[tuple[Step, memoryview]]) -> None:
        """The inputs that had to wait, unless one of them makes the others wait again."""
        while waiting and self._waiting_inputs is None:
            step, its_data = waiting.popleft()
            self.step(step, its_data)
        if self._waiting_inputs is not None:
            self._waiting_inputs.extend(waiting)

    def _carry_out(self, ready: Ready, data: memoryview, reply: Reply | None) -> None:
        self._decisions.take(ready.notes)
        writes = deque(self._writes(ready, data))
        try:
            self._write(writes)
        except (OSError, KafkaError) as error:
            if shortage_behind(error) is None:
                raise
            self._waiting_inputs = deque()
            self.spawn(partial(self._write_later, writes, ready, reply))
            return
        self._written(ready, reply)

    def _writes(self, ready: Ready, data: memoryview) -> Iterator[Callable[[], None]]:
        """What a step changes on the disk, in order. Each either happens or changes nothing."""
        truncate_to, leader_change = ready.truncate_to, ready.append_leader_change
        if truncate_to is not None:
            yield lambda: self.log.truncate_to(truncate_to)
        if leader_change is not None:
            yield lambda: self._append_leader_change(leader_change)
        if ready.append_fetched:
            yield lambda: self._append_fetched(data)
        for snapshot_step in ready.snapshot_steps:
            yield partial(self._take_snapshot_step, snapshot_step, data)

    def _write(self, writes: deque[Callable[[], None]]) -> None:
        """Those that were done are taken out, so that the rest can be tried again."""
        while writes:
            try:
                writes[0]()
            except (OSError, KafkaError) as error:
                shortage = shortage_behind(error)
                if shortage is None or not self.log.reserve.give_up(shortage):
                    raise
                writes[0]()
            writes.popleft()

    async def _write_later(self, writes: deque[Callable[[], None]], ready: Ready, reply: Reply | None) -> None:
        """The rest of a step, once there is room. The core has taken it for done; nobody else is told before it is."""
        log.error("the metadata replica of node %d waits: its disk refuses to take more", self.config.node_id)
        self.is_short = True
        while writes:
            await trio.sleep(SHORTAGE_PAUSE_MS / 1000)
            try:
                self._write(writes)
            except (OSError, KafkaError) as error:
                if shortage_behind(error) is None:
                    raise
        log.warning("the metadata replica of node %d goes on: its disk takes more again", self.config.node_id)
        self.is_short = False
        waiting, self._waiting_inputs = self._waiting_inputs, None
        assert waiting is not None
        self._is_stepping = True
        try:
            self._written(ready, reply)
        finally:
            self._is_stepping = False
        self._take_up(waiting)

    async def _until_it_fits(self, work: Callable[[], None]) -> None:
        """Run slow work, again and again while something runs short."""
        while True:
            try:
                await self._world.run_blocking(work)
            except OSError as error:
                if not is_shortage(error):
                    raise
                self.is_short = True
                if not self.log.reserve.give_up(error):
                    log.error("node %d waits for room in %s: %s", self.config.node_id, self.log.directory, error)
                    await trio.sleep(SHORTAGE_PAUSE_MS / 1000)
            else:
                self.is_short = False
                return

    def _append_fetched(self, data: memoryview) -> None:
        end_offset = self.log.end_offset
        self.log.append_as_follower(data, self.wall_ms())
        self.fetched_records += self.log.end_offset - end_offset
        self._world.fault_point("raft.fetched.written")

    def _written(self, ready: Ready, reply: Reply | None) -> None:
        """What a step changed is on the disk: act on it, and let others know."""
        assert self.core.log.end_offset == self.log.end_offset, f"{self.core} is not {self.log.history()}"
        if ready.high_watermark is not None:
            self.log.committed_to(ready.high_watermark)
            self._feed_of().high_watermark_moved(ready.high_watermark)
        if ready.leader is not None:
            self._leader_changed(ready.leader)
        if reply is not None:
            reply()
        for send in ready.requests:
            self._ask(send)
        if ready.wake_fetches:
            self._requests.answer_woken()
        if self.core.is_voter and self.core.synced_end_offset < self.core.log.end_offset:
            # Nobody counts on what observers have: they sync for a snapshot only.
            self._appended.set()
        if isinstance(self.core.role, Resigned):
            self._role_changed.set()
        self._set_deadline(ready.next_deadline_ms)

    def _leader_changed(self, leader: LeaderAndEpoch) -> None:
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
        times = [time for time in (core_deadline_ms, self._requests.next_deadline_ms) if time is not None]
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
            wait_ms = deadline_ms - self.now_ms()
            if wait_ms > 0:
                with trio.move_on_after(wait_ms / 1000):
                    await self._deadline_moved.wait()
                continue
            if self._waiting_inputs is not None:
                # The step that waits for the disk sets the next deadline.
                self._deadline_ms = None
                continue
            self._requests.answer_expired()
            self.step(self._tick)

    def _tick(self) -> None:
        self.core.tick(self.now_ms())

    # ---- making durable

    async def _sync_appends(self) -> None:
        while True:
            await self._appended.wait()
            self._appended = trio.Event()
            generation = self.core.log_generation
            work: FlushWork | None = None
            try:
                end_offset, work = self.log.flush_work()
                if work is not None:
                    await self._world.run_blocking(work)
                    self._world.fault_point("raft.appends.synced")
                    self.log.flushed(end_offset)
            except (OSError, KafkaError) as error:
                shortage = shortage_behind(error)
                if shortage is None or (work is not None and not work.passes(shortage)):
                    raise
                log.error("node %d syncs its metadata log later: %s", self.config.node_id, error)
                if not self.log.reserve.give_up(shortage):
                    await trio.sleep(SHORTAGE_PAUSE_MS / 1000)
                self._appended.set()
                continue
            self.step(lambda: self._note_synced(end_offset, generation))  # noqa: B023 - called at once or queued

    def _note_synced(self, end_offset: int, generation: int) -> None:
        self.core.log_synced(end_offset, generation, self.now_ms())
        self._synced.set()

    async def _delete_dropped_files(self) -> None:
        while True:
            await trio.sleep(MAINTENANCE_MS / 1000)
            work = self.log.deletion_work(self.wall_ms())
            if work is not None:
                await self._world.run_blocking(work)
            if not self.log.reserve.is_there:
                await self._world.run_blocking(self.log.reserve.take)

    # ---- appending

    def append(self, epoch: int, records: Sequence[Message]) -> int:
        """Append `records` as one batch; see `append_batch`."""
        return self.append_batch(epoch, records, encode_batch(records, self.wall_ms()))

    def append_batch(self, epoch: int, records: Sequence[Message], batch: bytes) -> int:
        """Append `batch`, which holds `records`, so that they commit together; returns the offset of the last one.

        Raises NotLeader unless this replica leads in `epoch`; KafkaError with RECORD_LIST_TOO_LARGE, or with
        KAFKA_STORAGE_ERROR, after which the replica stops.
        """
        core = self.core
        if self._failure is not None or self._waiting_inputs is not None or not core.is_leader or core.epoch != epoch:
            raise NotLeader(f"node {core.leader_id} leads epoch {core.epoch}, not this one epoch {epoch}")
        if len(batch) > MAX_BATCH_BYTES:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of the metadata log has at most {MAX_BATCH_BYTES} bytes; got {len(batch)}",
            )
        timestamp_ms = read_header(batch).max_timestamp
        try:
            header = self._append_or_resign(batch, epoch, timestamp_ms)
        except (OSError, KafkaError) as error:
            if not isinstance(error, NotLeader):
                self._fail(error)
            raise
        self._world.fault_point("raft.append.written")
        self.appended_records += len(records)
        self._feed_of().appended(
            CommittedBatch(header.base_offset, header.last_offset, epoch, timestamp_ms, list(records))
        )
        if not all(isinstance(record, NoOpRecord) for record in records):
            self.awaited_end_offset = header.next_offset
        self.step(lambda: core.appended_as_leader(header.next_offset, self.now_ms()))
        return header.last_offset

    def _append_or_resign(self, batch: bytes, epoch: int, timestamp_ms: int) -> BatchHeader:
        """A leader whose log takes nothing more is of no use: another voter may have room. Raises NotLeader then."""
        try:
            return self.log.append_as_leader(batch, epoch, timestamp_ms)
        except KafkaError as error:
            shortage = shortage_behind(error)
            if shortage is None:
                raise
            if self.log.reserve.give_up(shortage):
                return self._append_or_resign(batch, epoch, timestamp_ms)
            log.error("node %d resigns as the active controller: %s", self.config.node_id, error)
            self.step(self._resign)
            raise NotLeader(f"node {self.config.node_id} has no room for more metadata") from error

    def _append_leader_change(self, change: LeaderChange) -> None:
        timestamp_ms = self.wall_ms()
        message = LeaderChangeMessage(
            leader_id=change.leader_id,
            voters=[LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in change.voters],
            granting_voters=[LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in change.granting_voters],
        )
        batch = build_raft_control_batch([message], change.offset, change.epoch, timestamp_ms)
        header = self.log.append_as_leader(batch, change.epoch, timestamp_ms)
        assert header.base_offset == change.offset
        self.awaited_end_offset = self.log.end_offset
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

    def _ask(self, send: Send) -> None:
        """One request to a peer; whatever becomes of it is an input, but of another step."""
        peers, request, config = self._peers, send.request, self.config
        assert peers is not None
        max_bytes, timeout_ms = config.fetch_max_bytes, config.request_timeout_ms
        if isinstance(request, FetchSnapshot):
            max_bytes = config.fetch_snapshot_max_bytes
        elif isinstance(request, Fetch):
            timeout_ms += request.max_wait_ms
        try:
            message = self._messages.write_request(request, max_bytes)
            if not peers.ask(send.peer_id, request, message, timeout_ms, partial(self._told, send)):
                self.spawn(partial(self._connect_and_ask, send, message, timeout_ms))
        except (ChannelError, EncodeError) as error:
            self.spawn(partial(self._hear_later, send, error))

    async def _connect_and_ask(self, send: Send, message: Message, timeout_ms: int) -> None:
        assert self._peers is not None
        try:
            answer = await self._peers.call(send.peer_id, send.request, message, timeout_ms)
        except (ChannelError, EncodeError) as error:
            self._hear(send, error)
        else:
            self._hear(send, answer)

    def _told(self, send: Send, answer: Any) -> None:
        """Usually in the turn in which it comes; but that a connection broke may come to light, and be told, in the
        middle of a step."""
        if self._is_stepping:
            self.spawn(partial(self._hear_later, send, answer))
            return
        try:
            self._hear(send, answer)
        except Exception as error:
            self._fail(error)

    async def _hear_later(self, send: Send, answer: Any) -> None:
        self._hear(send, answer)

    def _hear(self, send: Send, answer: Any) -> None:
        """A response, or why there is none."""
        try:
            if isinstance(answer, Exception):
                raise answer
            read = self._messages.read_answer(answer)
        except (ChannelError, UnusableAnswer, EncodeError) as error:
            log.debug("%s: %s", send, error)
            self.step(lambda: self.core.request_failed(send.peer_id, send.request_id, self.now_ms()))
            return
        self.step(lambda: self._take_answer(send, read), read.data)

    def _take_answer(self, send: Send, read: ReadAnswer) -> None:
        assert self._peers is not None
        self._peers.learn(read.addresses)
        answer = read.answer
        if answer.leader_id is not None and self._peers.address(answer.leader_id) is None:
            answer = replace(answer, leader_id=None)  # nobody we could fetch from
        self.core.handle_answer(send.peer_id, send.request_id, answer, self.now_ms())

    def _on_connection_news(self, peer_id: int, refused: bool) -> None:
        """A connection ended, or a dial was refused: if it was the leader's, is the process gone?"""
        core = self.core
        if core.leader_id != peer_id or not core.is_voter or self._nursery is None:
            return
        epoch = core.epoch
        if refused:
            self.step(lambda: core.leader_process_gone(peer_id, epoch, self.now_ms()))
        else:
            self.spawn(partial(self.probe_leader, peer_id, epoch))

    async def probe_leader(self, leader_id: int, epoch: int) -> None:
        """Dial the leader of `epoch`; if nobody listens there, the core hears of it."""
        assert self._peers is not None
        if await self._peers.is_gone(leader_id):
            self.step(lambda: self.core.leader_process_gone(leader_id, epoch, self.now_ms()))

    # ---- snapshots

    async def create_snapshot(self, records: Sequence[Message], offset: int, epoch: int, timestamp_ms: int) -> bool:
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
                self._appended.set()
                await self._synced.wait()
            latest = self.core.latest_snapshot
            if latest is not None and latest.offset >= snapshot.offset:
                return False
            assert self.core.log.epoch_of(offset) == epoch, "the epoch is not that of the record"
            try:
                await self._world.run_blocking(lambda: self.log.snapshots.write(snapshot, records, timestamp_ms))
                self._world.fault_point("raft.snapshot.written")
                await self._world.run_blocking(lambda: self.log.snapshots.publish(snapshot))
            except OSError as error:
                if not is_shortage(error):
                    raise
                log.warning("node %d writes its snapshot later: %s", self.config.node_id, error)
                self.log.snapshots.remove_part(snapshot)
                self._no_snapshot_before_ms = self.now_ms() + SNAPSHOT_PAUSE_MS
                return False
            self._world.fault_point("raft.snapshot.published")
            self.step(lambda: self._snapshot_published(snapshot))
            self._last_snapshot_ms = self.now_ms()
        return True

    def _snapshot_published(self, snapshot: OffsetAndEpoch) -> None:
        start = self.log.snapshot_published(snapshot, self.wall_ms())
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
                self.spawn(partial(self._install_snapshot, step.snapshot))

    def _close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    async def _install_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        async with self._snapshot_lock:
            installed = True
            try:
                await self._world.run_blocking(lambda: self.log.snapshots.verify_part(snapshot))
                await self._until_it_fits(lambda: self.log.snapshots.publish(snapshot))
            except CorruptSnapshotFile as error:
                log.error("the downloaded snapshot is no good: %s", error)
                self.log.snapshots.remove_part(snapshot)
                installed = False
            self._world.fault_point("raft.snapshot.downloaded")
            self.step(lambda: self._snapshot_arrived(snapshot, installed))

    def _snapshot_arrived(self, snapshot: OffsetAndEpoch, installed: bool) -> None:
        if installed:
            self.log.restart_at(snapshot, self.wall_ms())
            self._last_snapshot_ms = self.now_ms()
        self.core.snapshot_installed(snapshot, installed, self.now_ms())

    # ---- requests of others

    def handlers(self) -> dict[ApiKey, Handler]:
        """Fetch, Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot and DescribeQuorum of a controller's
        listener."""
        return self._requests.handlers()

    def address_of(self, node_id: int) -> NodeAddress | None:
        """Where a replica listens for the quorum, if that is known."""
        if node_id == self.config.node_id:
            return self.config.address
        return None if self._peers is None else self._peers.address(node_id)

    def learn_addresses(self, addresses: Mapping[int, NodeAddress]) -> None:
        """Addresses that somebody told; what the configuration says counts more."""
        if self._peers is not None:
            self._peers.learn(addresses)
