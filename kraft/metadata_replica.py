"""Shell around `kraft.raft`: one replica of the metadata log, as a voter (controllers) or an observer
(brokers).

Every input (a request, an answer, a sync that ended, the time) is one step of the core, and its effects are
carried out here, in their order: the election state is synced before anything of that step leaves the process,
and further inputs wait meanwhile. The log is synced away from the event loop, one sync for all
that was appended meanwhile (group commit without a linger); a leader counts its own log, and a voter fetches on,
only as far as it is synced.

The `MetadataListener` applies the records.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

import trio

from barnabas.kraft.commit_feed import CommitFeed, CommittedBatch, MetadataListener, OnCommitted
from barnabas.kraft.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from barnabas.kraft.metadata.image import MINIMUM_METADATA_VERSION
from barnabas.kraft.metadata.record_versions import encode_records
from barnabas.kraft.metadata_log import MAX_BATCH_BYTES, MetadataLog
from barnabas.kraft.quorum_calls import QuorumCalls
from barnabas.kraft.quorum_endpoints import QuorumEndpoints
from barnabas.kraft.quorum_messages import QuorumMessages, voter_addresses
from barnabas.kraft.quorum_requests import QuorumRequests
from barnabas.kraft.quorum_voter_requests import VoterRequests
from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.ready import (
    LeaderAndEpoch,
    LeaderChange,
    Ready,
)
from barnabas.kraft.raft.roles import Follower, Leader, Resigned
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.kraft.replica_config import ReplicaConfig
from barnabas.kraft.replica_deadline import ReplicaDeadline
from barnabas.kraft.replica_snapshots import ReplicaSnapshots
from barnabas.kraft.replica_syncs import SHORTAGE_PAUSE_MS, ReplicaSyncs
from barnabas.kraft.voter_records import record_bodies
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from barnabas.protocol.messages.metadata_log import NoOpRecord
from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import RaftControlBody, build_raft_control_batch
from barnabas.protocol.records.record import Record
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.dispatch import Handler
from barnabas.runtime.world import World
from barnabas.storage.shortage import is_shortage, shortage_behind

log = logging.getLogger(__name__)

NO_DATA = memoryview(b"")
RESIGNATION_MS = 200
"""After its disk failed, a leader waits so long for its resignation to reach the voters before the node stops."""

Reply = Callable[[], None]
Step = Callable[[], Reply | None]
"""Feeds the core; returns the callback that sends the answer, to be called once all effects were carried out."""


def encode_batch(records: Sequence[Message], timestamp_ms: int, metadata_version: int) -> bytes:
    """One batch of metadata records that follow a log at this level. Slow if they are many: may run in a thread."""
    values = encode_records(records, metadata_version)
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
        self.calls = QuorumCalls(self, self._messages, world)
        self.snapshots = ReplicaSnapshots(self, world)
        self._nursery: trio.Nursery | None = None
        self._requests = QuorumRequests(self, self._messages)
        self.voter_requests = VoterRequests(self, self._messages, world)
        self.awaited_end_offset = 0
        """On a leader, the end of the last batch that is not NoOpRecords alone. The commit of the NoOpRecords after it
        wakes no parked fetch; it is reported with the next records."""
        self._waiting_inputs: deque[tuple[Step, memoryview]] | None = None
        """Inputs that came while the election state is being synced, or while the log waits for room; else None."""
        self.is_short = False
        """The replica waits for room on its disk."""
        self.is_stepping = False
        """In the middle of a step: no other may begin."""
        self._deadline = ReplicaDeadline(self, self._due)
        self.syncs = ReplicaSyncs(self, world)
        self._role_changed = trio.Event()
        self.appended_records = 0
        """Records that this node appended as the leader since it started."""
        self.fetched_records = 0
        """Records that it fetched from leaders since then."""
        self._failure: BaseException | None = None
        self._failed = trio.Event()

    # ---- state

    @property
    def core(self) -> Raft:
        """The Raft core, for reading only."""
        assert self._core is not None, "the replica has not been started"
        return self._core

    @property
    def log(self) -> MetadataLog:
        """The log on disk, for reading only."""
        assert self._log is not None, "the replica has not been started"
        return self._log

    @property
    def waits_for_disk(self) -> bool:
        """A step waits until the election state is saved, or until there is room: further inputs wait for it."""
        return self._waiting_inputs is not None

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
    def kraft_version(self) -> int:
        """The level of `kraft.version` in the log: from 1 on, voters can be added and removed."""
        return 0 if self._core is None else self._core.kraft_version

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

    def quorum_endpoints(self) -> QuorumEndpoints:
        """Leader and voters with their addresses; nothing before the log is open."""
        if self._core is None:
            return QuorumEndpoints(voters=dict(self.config.voters))
        leader_id = self._core.leader_id
        return QuorumEndpoints(
            leader_id=leader_id,
            epoch=self._core.epoch,
            leader=None if leader_id is None else self.calls.address_of(leader_id),
            voters=voter_addresses(self._core.voters, self.config.listener_name),
        )

    def now_ms(self) -> int:
        """Milliseconds on the monotonic clock, which all deadlines use."""
        return self._world.monotonic.now_ms()

    def wall_ms(self) -> int:
        return self._world.wall_clock.now_ms()

    # ---- start and end

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the log, take part until cancelled. Started once the log is open and requests can be handled.

        Raises the cause of its end: an OSError or KAFKA_STORAGE_ERROR of the disk, a corrupt file, an exception of
        the listener, `CommittedRecordsLost`. A leader whose disk fails resigns first.
        """
        config, world = self.config, self._world
        now_ms = self.wall_ms()
        self._log = opened = await world.run_blocking(
            lambda: MetadataLog.open(world.disk, config.log_directory, now_ms, config.segment_bytes, config.segment_ms)
        )
        try:
            quorum_records = await world.run_blocking(opened.read_quorum_records)
            async with trio.open_nursery() as nursery:
                self._start(opened, quorum_records, nursery)
                task_status.started()
                await self._failed.wait()
                await self._resign_first()
                nursery.cancel_scope.cancel()
        finally:
            self.snapshots.close_part()
            opened.partition_log.close_files()
        assert self._failure is not None
        raise self._failure

    def _start(self, opened: MetadataLog, quorum_records: Sequence[QuorumRecord], nursery: trio.Nursery) -> None:
        config = self.config
        self._nursery = nursery
        self.calls.start(nursery)
        self._feed = CommitFeed(opened, self._listener, self._world.run_blocking, self._world.count_work)
        self.snapshots.start()
        self._core = Raft(
            RaftConfig(
                local=ReplicaKey(config.node_id, config.directory_id),
                bootstrap_ids=config.bootstrap_ids,
                listener_name=config.listener_name,
                endpoints=config.endpoints,
                kraft_versions=SUPPORTED_FEATURES[KRAFT_VERSION],
                can_vote=config.can_vote,
                joins=config.joins,
                election_timeout_ms=config.election_timeout_ms,
                fetch_timeout_ms=config.fetch_timeout_ms,
                election_backoff_max_ms=config.election_backoff_max_ms,
                request_timeout_ms=config.request_timeout_ms,
                retry_backoff_ms=config.retry_backoff_ms,
                fetch_max_wait_ms=config.fetch_max_wait_ms,
            ),
            config.static_voters,
            opened.election.read(),
            opened.history(),
            latest_snapshot=opened.snapshots.latest,
            quorum_records=quorum_records,
            chance=self._world.chance,
            now_ms=self.now_ms(),
        )
        opened.committed_to(self._core.high_watermark)
        self._feed.high_watermark_moved(self._core.high_watermark)
        for task in (self._feed.run, self.syncs.run, self._deadline.run, self.syncs.delete_dropped_files):
            self.spawn(task)
        self.step(lambda: None)

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task of this replica; an error in it ends the replica."""
        assert self._nursery is not None
        self._nursery.start_soon(self._guarded, task)

    async def _guarded(self, task: Callable[[], Awaitable[None]]) -> None:
        """An exception in a task of this replica ends the replica: `run` raises it."""
        try:
            await task()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        if self._failure is None:
            log.error("the metadata replica of node %d stops: %s", self.config.node_id, error)
            self._failure = error
            self._failed.set()

    async def _resign_first(self) -> None:
        if self._core is not None and self._core.is_leader:
            await self.resign(RESIGNATION_MS)

    async def resign(self, timeout_ms: int) -> None:
        """Stop leading and send EndQuorumEpoch to the voters, so that they elect the next leader without a
        timeout.

        Returns when all have acknowledged, another node leads, or the time is over.
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
        self.is_stepping = True
        try:
            reply = step()
            ready = self.core.take_ready()
            if ready.election is not None:
                self._waiting_inputs = deque()
                self.spawn(partial(self._save_election, ready, reply, data))
            else:
                self._carry_out(ready, data, reply)
        except Exception as error:
            self.fail(error)
        finally:
            self.is_stepping = False

    async def _save_election(self, ready: Ready, reply: Reply | None, data: memoryview) -> None:
        election = ready.election
        assert election is not None
        voters, version = self.core.voters.ids, self.core.kraft_version
        await self.until_it_fits(lambda: self.log.election.write(election, voters, version))
        self._world.fault_point("raft.election.saved")
        waiting, self._waiting_inputs = self._waiting_inputs, None
        assert waiting is not None
        self.is_stepping = True
        try:
            self._carry_out(ready, data, reply)
        finally:
            self.is_stepping = False
        self._take_up(waiting)

    def _take_up(self, waiting: deque[tuple[Step, memoryview]]) -> None:
        """Take the inputs that had to wait, unless one of them makes the others wait again."""
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
        """Changes of a step to the disk, in order. Each either succeeds or changes nothing."""
        truncate_to, leader_change, change = ready.truncate_to, ready.append_leader_change, ready.append_quorum_records
        if truncate_to is not None:
            yield lambda: self.log.truncate_to(truncate_to)
        if leader_change is not None:
            yield lambda: self._append_leader_change(leader_change)
        if change is not None:
            yield lambda: self._append_control(record_bodies(change.records), change.records[0].offset, change.epoch)
        if ready.append_fetched:
            yield lambda: self._append_fetched(data)
        for snapshot_step in ready.snapshot_steps:
            yield partial(self.snapshots.take_step, snapshot_step, data)

    def _write(self, writes: deque[Callable[[], None]]) -> None:
        """Writes that succeeded are removed, so that the rest can be retried."""
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
        """Carry out the rest of a step once there is room. The core counts it as done; nothing of it leaves the node
        before that."""
        log.error("the metadata replica of node %d waits for room on its disk", self.config.node_id)
        self.is_short = True
        while writes:
            await trio.sleep(SHORTAGE_PAUSE_MS / 1000)
            try:
                self._write(writes)
            except (OSError, KafkaError) as error:
                if shortage_behind(error) is None:
                    raise
        log.warning("the metadata replica of node %d continues: its disk has room again", self.config.node_id)
        self.is_short = False
        waiting, self._waiting_inputs = self._waiting_inputs, None
        assert waiting is not None
        self.is_stepping = True
        try:
            self._written(ready, reply)
        finally:
            self.is_stepping = False
        self._take_up(waiting)

    async def until_it_fits(self, work: Callable[[], None]) -> None:
        """Run slow work in a thread; retry it while there is a shortage of room or descriptors."""
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
        """The changes of a step are on the disk: carry out its other effects."""
        assert self.core.log.end_offset == self.log.end_offset, f"{self.core} is not {self.log.history()}"
        if ready.high_watermark is not None:
            self.log.committed_to(ready.high_watermark)
            self._feed_of().high_watermark_moved(ready.high_watermark)
        if ready.voters is not None:
            self.calls.voters_are(voter_addresses(ready.voters, self.config.listener_name))
        if ready.leader is not None:
            self._leader_changed(ready.leader)
        if reply is not None:
            reply()
        if ready.probe_voter is not None:
            self.spawn(partial(self.voter_requests.probe, ready.probe_voter))
        for done in ready.voter_changes:
            self.voter_requests.finish(done)
        for send in ready.requests:
            self.calls.ask(send)
        if ready.wake_fetches:
            self._requests.answer_woken()
        if self.core.must_sync and self.core.synced_end_offset < self.core.log.end_offset:
            # The log of a broker counts for no majority: it is synced for a snapshot only.
            self.syncs.appended()
        if isinstance(self.core.role, Resigned):
            self._role_changed.set()
        self._deadline.set(ready.next_deadline_ms, self._requests.next_deadline_ms)

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

    def _due(self) -> None:
        self._requests.answer_expired()
        self.step(self._tick)

    def _tick(self) -> None:
        self.core.tick(self.now_ms())

    # ---- appending

    def append(self, epoch: int, records: Sequence[Message]) -> int:
        """Append `records`, which every metadata.version has, as one batch; see `append_batch`."""
        batch = encode_batch(records, self.wall_ms(), MINIMUM_METADATA_VERSION)
        return self.append_batch(epoch, records, batch)

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
                self.fail(error)
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
        """Append, or resign if the disk is full: another voter may have room. Raises NotLeader then."""
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
        message = LeaderChangeMessage(
            leader_id=change.leader_id,
            voters=[LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in change.voters],
            granting_voters=[LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in change.granting_voters],
        )
        self._append_control([message, *record_bodies(change.quorum_records)], change.offset, change.epoch)
        self._world.fault_point("raft.leader_change.written")

    def _append_control(self, bodies: Sequence[RaftControlBody], offset: int, epoch: int) -> None:
        timestamp_ms = self.wall_ms()
        batch = build_raft_control_batch(bodies, offset, epoch, timestamp_ms)
        header = self.log.append_as_leader(batch, epoch, timestamp_ms)
        assert header.base_offset == offset
        self.awaited_end_offset = self.log.end_offset

    def on_committed(self, offset: int, callback: OnCommitted) -> None:
        """Call back when the record at `offset`, appended by this leader, is committed and applied, or with
        NotLeader."""
        self._feed_of().on_committed(offset, callback)

    # ---- requests of peers

    def handlers(self) -> dict[ApiKey, Handler]:
        """The requests of the quorum on a controller's listener: those of its replicas, DescribeQuorum, and changes of
        the voters."""
        return self._requests.handlers() | self.voter_requests.handlers()

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        """Raise `kraft.version` (UpdateFeatures). Returns the reason why that cannot be; None if it is appended, or
        done."""
        if self._waiting_inputs is not None:
            return "Upgrade kraft version failed because the replica is not the current leader"
        reasons: list[str | None] = []
        self.step(
            lambda: reasons.append(self.core.upgrade_kraft_version(level, self.now_ms(), validate_only=validate_only))
        )
        return reasons[0]
