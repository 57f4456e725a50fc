"""Shell: one partition on this broker. Connects its log to the cores and carries out their effects, in one place.

The replica core decides what is committed and who leads, the follower core what is fetched and truncated; the log holds
the bytes. Single-threaded, and nothing here waits. Knows no other partition, no sockets and no requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from barnabas.broker.admission import limits_of
from barnabas.broker.keyed_queues import KeyedQueues
from barnabas.broker.purgatory import WaitingAck, WaitingAcks
from barnabas.broker.replication.decision_notes import (
    note_deposed,
    note_isr_refused,
    note_isr_wanted,
    note_leading,
    note_truncation,
)
from barnabas.broker.replication.follower import (
    APPEND,
    Append,
    BoundsWanted,
    Cut,
    EpochWanted,
    FetchAnswer,
    FetchWanted,
    Follower,
    StartBehindRemote,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from barnabas.broker.replication.reads import (
    FetchKind,
    ReadRequest,
    ReadResult,
    divergence,
    offsets_of,
    read_log,
    readable_to,
)
from barnabas.broker.replication.replica import (
    ACKS_ALL,
    CommittedIsr,
    Effects,
    Follow,
    FollowerFetch,
    HighWatermarkAdvanced,
    IsrChangeWanted,
    LeadershipLost,
    LeadershipTaken,
    Leading,
    Offline,
    Replica,
    ReplicaSettings,
)
from barnabas.broker.replication.tier_start import RemoteState, StateWanted, TierBounds, TierWanted
from barnabas.broker.traffic import PartitionTraffic
from barnabas.kraft.metadata.image import NO_LEADER, PartitionImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.protocol.records.batch import BatchHeader, CorruptBatch
from barnabas.protocol.records.record_check import ProduceLimits
from barnabas.runtime.decisions import DecisionKind, Notepad, Notes
from barnabas.runtime.world import Clock, no_fault
from barnabas.settings.topic import TopicConfig
from barnabas.storage.fetched_batches import EpochsMissing
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_results import AppendResult, OffsetOutOfRange
from barnabas.storage.producer_snapshot_format import CorruptSnapshot
from barnabas.storage.producers import NO_WARRANT, Verification, Warrant

log = logging.getLogger(__name__)

_EXPECTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH)
"""Answers of a leader that knows more or less of the metadata; they may come for thousands of partitions at once."""

HIGH_WATERMARK = -1
"""Offset in DeleteRecords that stands for the high watermark."""


@dataclass(frozen=True, slots=True)
class PartitionHost:
    """The ports of a partition to its broker."""

    monotonic: Clock
    wall_clock: Clock
    propose_isr: Callable[[Partition, IsrChangeWanted], None]
    follow: Callable[[Partition, int], None]
    """Fetch this partition from that broker from now on; NO_LEADER: from none."""
    changed: Callable[[Partition], None]
    """There may be more to read, or an error to report: check the waiting requests."""
    replica_fetch_backoff_ms: int = 1_000
    fault_point: Callable[[str], None] = no_fault
    """`World.fault_point`."""
    leadership_changed: Callable[[Partition], None] = lambda partition: None
    """This broker began to lead the partition, leads it in a new epoch, or leads it no longer."""
    may_be_fenced: Callable[[], bool] = lambda: False
    """True if the controllers may have moved this broker's leaderships away without its knowledge."""
    session_timeout_ms: int = 9_000
    """A follower that has not fetched for this long is no evidence that this broker still leads."""
    decisions: Notepad = field(default_factory=Notes)
    """Takes notes of what happens and why."""
    committed: Callable[[Partition], None] = lambda partition: None
    """Like `changed`, but only for readers of committed records."""
    begins_behind_copied: Callable[[], bool] = lambda: False
    """`follower.fetch.last.tiered.offset.enable`"""


class Partition:
    """A replica of a partition on this broker. `topic_id` and `index` never change.

    The high watermark belongs to `replica`; the log has a copy of it, which bounds what readers get and which the
    checkpoint persists. Only `_publish_high_watermark` writes the copy.
    """

    __slots__ = (
        "_acks",
        "_admitting",
        "_host",
        "_noted_proposal",
        "_noted_refusal",
        "follower",
        "index",
        "log",
        "producer_queues",
        "replica",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self, topic: str, topic_id: bytes, log: PartitionLog, replica: Replica, host: PartitionHost
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.traffic = PartitionTraffic()
        self.index = log.partition
        self.log = log
        self.replica = replica
        self.follower = Follower(
            log,
            replica_fetch_backoff_ms=host.replica_fetch_backoff_ms,
            begins_behind_copied=self._begins_behind_copied,
        )
        self._host = host
        self._noted_proposal: IsrChangeWanted | None = None
        self._noted_refusal: tuple[IsrChangeWanted, ErrorCode] | None = None
        self._acks: WaitingAcks[ErrorCode] = WaitingAcks()
        self.producer_queues: KeyedQueues[int] = KeyedQueues()
        """Transactional batches by producer id, while the first of them is being verified."""
        self._admitting: tuple[TopicConfig, ProduceLimits] | None = None
        """The limits of the last batch, and the config that they follow from."""
        self._publish_high_watermark()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index} {self.replica.describe()}"

    def _begins_behind_copied(self) -> bool:
        return self.log.config.is_tiered and self._host.begins_behind_copied()

    @property
    def key(self) -> tuple[bytes, int]:
        return self.topic_id, self.index

    @property
    def name(self) -> str:
        """`flights-3`"""
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.replica.is_leader

    @property
    def leader_epoch(self) -> int:
        return self.replica.leader_epoch

    @property
    def is_offline(self) -> bool:
        return isinstance(self.replica.role, Offline)

    def known_leader(self) -> tuple[int, int]:
        """(leader id, leader epoch) by the metadata log; (-1, epoch) if there is no leader (KIP-951)."""
        return self.replica.leader_id, self.replica.leader_epoch

    @property
    def waiting_acks(self) -> int:
        return len(self._acks)

    # -- producing

    @property
    def produce_limits(self) -> ProduceLimits:
        """Limits for produced batches under the topic's present configuration."""
        admitting = self._admitting
        if admitting is None or admitting[0] is not self.log.config:
            admitting = self._admitting = (self.log.config, limits_of(self.log.config))
        return admitting[1]

    def append(
        self,
        buffer: bytearray | memoryview,
        batches: Sequence[tuple[int, BatchHeader]],
        acks: int,
        warrant: Warrant = NO_WARRANT,
    ) -> AppendResult:
        """Append batches of a client or a coordinator. Raises KafkaError if nothing was appended."""
        error = self.replica.append_error(acks)
        if error is None and acks == ACKS_ALL and self._host.may_be_fenced() and self._cannot_replicate:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not None:
            raise KafkaError(error)
        host = self._host
        now_ms = host.wall_clock.now_ms()
        result = self.log.append_as_leader(buffer, batches, self.replica.leader_epoch, now_ms, warrant)
        if host.fault_point is not no_fault:
            host.fault_point("replica.append.written")
        if not result.duplicate:
            traffic = self.traffic
            traffic.messages_in += result.last_offset - result.first_offset + 1
            traffic.bytes_in += len(buffer)
            effects = self.replica.appended(self.log.log_end_offset, host.monotonic.now_ms())
            if effects:
                self._carry_out(effects)
            # Followers read up to the log end.
            host.changed(self)
        return result

    @property
    def _cannot_replicate(self) -> bool:
        """True if other in-sync replicas have to acknowledge a record, and possibly none of them follows this broker
        any longer."""
        return len(self.replica.isr) > 1 and self.is_forgotten

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, supports_epoch_bump: bool
    ) -> Verification | None:
        """Begin to verify that this partition is in the producer's transaction (KIP-890). Once the coordinator has
        confirmed it, the result lets the first batch be appended; None if the transaction has begun here already.
        Raises KafkaError.

        `sequence` is -1 for coordinators, which do not number their batches.
        """
        error = self.replica.leader_error()
        if error is not None:
            raise KafkaError(error)
        producers = self.log.producers
        if producers is None:
            return None
        return producers.begin_verification(
            producer_id,
            producer_epoch,
            sequence,
            self._host.wall_clock.now_ms(),
            supports_epoch_bump=supports_epoch_bump,
        )

    def when_replicated(
        self, required_offset: int, callback: Callable[[ErrorCode | None], None]
    ) -> WaitingAck[ErrorCode] | None:
        """Call `callback(None)` when the ISR has everything below `required_offset` (the last offset + 1), or
        `callback(error)`.

        Returns None if that was at once; otherwise cancel the result at the request's deadline.
        """
        done, error = self.replica.enough_replicas(required_offset)
        if done:
            callback(error)
            return None
        return self._acks.add(required_offset, callback)

    # -- reading

    def read(self, request: ReadRequest) -> ReadResult:
        """Raises KafkaError: epochs (74, 75), NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR."""
        replica = self.replica
        if request.leader_only:
            error = replica.leader_error(request.current_leader_epoch)
        else:
            error = replica.replica_error(request.current_leader_epoch)
        if error is not None:
            raise KafkaError(error)
        diverging_epoch = divergence(self.log, request)
        return self._read(request) if diverging_epoch is None else offsets_of(self.log, None, diverging_epoch)

    def offsets(self, current_leader_epoch: int) -> ReadResult:
        """`read` from any replica, without records."""
        error = self.replica.replica_error(current_leader_epoch)
        if error is not None:
            raise KafkaError(error)
        return offsets_of(self.log)

    def follower_read(self, fetch: FollowerFetch, request: ReadRequest) -> ReadResult:
        """A fetch of another replica: records that replica's progress, then reads."""
        error = self.replica.follower_error(fetch.node_id, fetch.broker_epoch, request.current_leader_epoch)
        if error is not None:
            raise KafkaError(error)
        partition_log = self.log
        diverging_epoch = divergence(partition_log, request)
        if diverging_epoch is not None:
            # Its log diverges from this one, so its end is no progress.
            return offsets_of(partition_log, None, diverging_epoch)
        if not partition_log.log_start_offset <= fetch.fetch_offset <= partition_log.log_end_offset:
            raise OffsetOutOfRange(f"{partition_log}: replica {fetch.node_id} at {fetch.fetch_offset}")
        effects = self.replica.follower_fetched(
            fetch, partition_log.log_end_offset, self._host.monotonic.now_ms()
        )
        if effects:
            # Before the read, so that the response has the high watermark that this fetch advanced.
            self._carry_out(effects)
        return self._read(request)

    def is_caught_up(self, fetch: FollowerFetch, leader_epoch: int, last_fetched_epoch: int) -> bool:
        """True if a fetch of another replica reports nothing but its progress: it is in sync, has all records of this
        log and no others, and knows the leader epoch. `follower_read` would return no records. If in doubt, False."""
        partition_log = self.log
        return (
            fetch.fetch_offset == partition_log.log_end_offset
            and last_fetched_epoch == partition_log.epochs.latest_epoch
            and self.replica.is_in_sync_fetch(fetch, leader_epoch)
        )

    def follower_progressed(self, fetch: FollowerFetch) -> None:
        """Record the progress of a follower that is caught up."""
        now_ms = self._host.monotonic.now_ms()
        effects = self.replica.follower_fetched(fetch, self.log.log_end_offset, now_ms)
        if effects:
            self._carry_out(effects)

    def wake_if_forgotten(self) -> None:
        """Check the waiting readers if another broker may lead by now."""
        if self.is_forgotten:
            self._host.changed(self)

    @property
    def is_forgotten(self) -> bool:
        """True if another broker may lead by now without this broker's knowledge. Readers then get an error instead of
        an empty response: otherwise they would wait here for ever and never look for the leader.
        """
        host = self._host
        may_be_fenced = host.may_be_fenced()
        if not may_be_fenced and isinstance(self.replica.role, Leading):
            return False
        active_since_ms = host.monotonic.now_ms() - host.session_timeout_ms
        return self.replica.is_forgotten(active_since_ms, may_be_fenced=may_be_fenced)

    def _read(self, request: ReadRequest) -> ReadResult:
        result = read_log(self.log, request)
        if (
            result.records is None
            and request.kind is not FetchKind.REPLICA
            and request.offset >= readable_to(self.log, request.kind)
            and self.is_forgotten
        ):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return result

    def end_offset_for_epoch(self, epoch: int, current_leader_epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: (largest epoch <= `epoch`, its end offset), (-1, -1) if unknown. Raises KafkaError."""
        error = self.replica.leader_error(current_leader_epoch)
        if error is not None:
            raise KafkaError(error)
        return self.log.end_offset_for_epoch(epoch)

    def read_copy(self, offset: int, last_fetched_epoch: int, max_bytes: int) -> ReadResult:
        """Read up to the log end, for a copy of this log on this broker. Raises KafkaError."""
        request = ReadRequest(FetchKind.REPLICA, offset, max_bytes, last_fetched_epoch=last_fetched_epoch)
        diverging_epoch = divergence(self.log, request)
        return read_log(self.log, request) if diverging_epoch is None else offsets_of(self.log, None, diverging_epoch)

    def log_replaced(self, partition_log: PartitionLog) -> None:
        """`partition_log`, which has all records of the log and its producers, takes its place."""
        self.log = partition_log
        self.follower.log_replaced(partition_log)
        self._publish_high_watermark()

    # -- deleting

    def delete_records(self, offset: int) -> int:
        """Advance the log start offset to `offset` (-1: the high watermark). Returns the low watermark, which rises as
        followers do the same. Raises KafkaError.
        """
        error = self.replica.leader_error()
        if error is not None:
            raise KafkaError(error)
        if not self.log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{self.topic} does not have cleanup.policy delete")
        if offset == HIGH_WATERMARK:
            offset = self.log.high_watermark
        if offset < 0:
            raise OffsetOutOfRange(f"{self.log}: cannot delete below {offset}")
        if self.log.advance_log_start_offset(offset):
            self._host.changed(self)
        return self.low_watermark

    def advance_log_start(self, offset: int) -> None:
        """The records below `offset`, or the high watermark, have left the remote store, or are about to."""
        if self.log.advance_log_start_offset(min(offset, self.log.high_watermark)):
            self._host.changed(self)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the live replicas. Leader only."""
        return self.replica.low_watermark(self.log.log_start_offset)

    def apply_retention(self) -> int:
        """Delete old segments; returns how many. Their files are removed later."""
        try:
            count = self.log.delete_old_segments(self._host.wall_clock.now_ms())
        except KafkaError as error:
            log.error("%s: retention failed: %s", self, error)
            return 0
        if count:
            self._host.changed(self)
        return count

    # -- news from the metadata log and the controller

    def partition_changed(self, image: PartitionImage) -> None:
        """Apply a newer state of this partition."""
        now_ms = self._host.monotonic.now_ms()
        before = self._state
        self._moved_on(before, self.replica.partition_changed(image, self.log.log_end_offset, now_ms))

    @property
    def _state(self) -> tuple[int, int, int]:
        """(partition epoch, numbers of replicas in the ISR and in the maximal ISR; 0 if this broker does not lead)."""
        replica = self.replica
        role = replica.role
        if isinstance(role, Leading):
            return replica.partition_epoch, len(role.isr), len(role.maximal_isr)
        return replica.partition_epoch, 0, 0

    def _moved_on(self, before: tuple[int, int, int], effects: Effects) -> None:
        """Carry out effects, and check all waiting fetches if the ISR changed or a proposal was refused. A follower
        that has all records would otherwise wait for ever and not be proposed again."""
        self._carry_out(effects)
        now = self._state
        if before[1] and now[1]:
            self.traffic.isr_changed(before[1], now[1])
        if (now[0] != before[0] or now[2] < before[2]) and not _concerns_all_readers(effects):
            self._host.changed(self)

    def settings_changed(self, settings: ReplicaSettings) -> None:
        if settings != self.replica.settings:
            self.replica.settings = settings
            self.tick()

    def tick(self) -> None:
        """Re-evaluate which followers lag, by the clock and by the state of their brokers."""
        self._carry_out(self.replica.tick(self._host.monotonic.now_ms()))

    def isr_change_answered(self, proposal: IsrChangeWanted, answer: CommittedIsr | ErrorCode) -> None:
        """The controller answered a proposal of `PartitionHost.propose_isr`."""
        now_ms = self._host.monotonic.now_ms()
        before = self._state
        refused = (proposal, answer) if isinstance(answer, ErrorCode) else None
        if refused not in (None, self._noted_refusal) and proposal == self.replica.pending_isr_change:
            self._noted_refusal = refused
            note_isr_refused(self._host.decisions, self.name, self.replica, proposal, refused[1].name)
        self._moved_on(before, self.replica.isr_change_answered(proposal, answer, now_ms))

    def go_offline(self) -> None:
        """The disk of this log failed."""
        self._carry_out(self.replica.go_offline())
        self.follower.stop()
        self._host.leadership_changed(self)
        self._host.changed(self)

    def leave(self) -> None:
        """The partition is deleted or moves to other brokers: waiting requests get NOT_LEADER_OR_FOLLOWER."""
        self.follower.stop()
        self._host.follow(self, NO_LEADER)
        self.replica.leave()
        self._host.leadership_changed(self)
        self._acks.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- following

    def fetched(self, asked: FetchWanted, data: PartitionData) -> None:
        """The leader answered `asked`."""
        now_ms = self._host.monotonic.now_ms()
        diverging = data.diverging_epoch
        answer = FetchAnswer(data.error_code, diverging.epoch, diverging.end_offset)
        step = self.follower.answered(asked, answer, now_ms)
        if step is APPEND:
            self._replicate(data, now_ms)
        elif step is not None:
            assert not isinstance(step, Append)
            self._truncate(step, now_ms, self._divergence(diverging.epoch, diverging.end_offset))
        elif data.error_code:
            level = logging.DEBUG if data.error_code in _EXPECTED else logging.INFO
            log.log(level, "%s: the leader answered with error %d", self, data.error_code)

    def bounds_answered(self, asked: BoundsWanted, bounds: tuple[int, int] | None) -> None:
        """The leader answered with (log start offset, log end offset), or with an error (None)."""
        now_ms = self._host.monotonic.now_ms()
        step = self.follower.bounds_answered(asked, bounds, now_ms)
        if step is not None:
            assert bounds is not None
            ends = f"its leader, broker {self.replica.leader_id}, has only offsets {bounds[0]} to {bounds[1]}"
            self._truncate(step, now_ms, ends)

    def epoch_answered(self, asked: EpochWanted, answer: tuple[int, int] | None) -> None:
        """The leader answered with (epoch, end offset), or with an error (None)."""
        self.follower.epoch_answered(asked, answer, self._host.monotonic.now_ms())

    def tier_answered(self, asked: TierWanted, bounds: TierBounds | None) -> None:
        """The leader answered with the bounds of its log, or with an error (None)."""
        now_ms = self._host.monotonic.now_ms()
        step = self.follower.tier_answered(asked, bounds, now_ms)
        if step is not None:
            assert bounds is not None
            leader = f"its leader, broker {self.replica.leader_id}"
            self._truncate(step, now_ms, f"{leader}, has no offsets before {bounds.log_start_offset}")

    def state_built(self, asked: StateWanted, built: RemoteState | None) -> None:
        """The state at the end of a remote segment was read, or is unavailable now (None)."""
        now_ms = self._host.monotonic.now_ms()
        step = self.follower.state_built(asked, built if self.log.config.is_tiered else None, now_ms)
        if step is not None:
            assert built is not None
            leader = f"its leader, broker {self.replica.leader_id}"
            self._truncate(step, now_ms, f"{leader}, has offset {asked.offset} only in a remote segment")

    def _divergence(self, epoch: int, end_offset: int) -> str:
        replica = self.replica
        leader = f"broker {replica.leader_id}, its leader in epoch {replica.leader_epoch}"
        return f"{leader}, has epoch {epoch} only up to offset {end_offset}"

    def _replicate(self, data: PartitionData, now_ms: int) -> None:
        partition_log = self.log
        try:
            if data.records:
                wall_ms, leader_epoch = self._host.wall_clock.now_ms(), self.replica.leader_epoch
                end_offset = partition_log.append_as_follower(
                    data.records, wall_ms, leader_epoch, self.follower.leaders_epochs
                )
                if self._host.fault_point is not no_fault:
                    self._host.fault_point("replica.fetched.written")
            else:
                end_offset = partition_log.log_end_offset
        except EpochsMissing:
            self.follower.ask_epochs()
            return
        except (CorruptBatch, KafkaError) as error:
            # Corrupt on the network or on this disk: nothing was appended. Retry later.
            log.warning("%s: cannot append what was fetched: %s", self, error)
            self.follower.back_off(now_ms)
            return
        self.follower.appended()
        effects = self.replica.replicated(end_offset, data.high_watermark)
        if effects:
            self._carry_out(effects)
        elif partition_log.high_watermark != self.replica.high_watermark:
            # An empty log was restarted at the first batch that the leader still has.
            self._publish_high_watermark()
        if data.log_start_offset > partition_log.log_start_offset:
            self._carry_out(self.replica.log_start_advanced(data.log_start_offset))
            partition_log.advance_log_start_offset(min(data.log_start_offset, end_offset))

    def _truncate(self, step: Cut, now_ms: int, cause: str) -> None:
        partition_log = self.log
        if not isinstance(step, StartBehindRemote) and step.offset < self.replica.high_watermark:
            log.warning("%s: %s", self, step)
        before, wall_ms = partition_log.log_end_offset, self._host.wall_clock.now_ms()
        try:
            if isinstance(step, TruncateTo):
                partition_log.truncate_to(step.offset)
            elif isinstance(step, TruncateFullyAndStartAt):
                partition_log.truncate_fully_and_start_at(step.offset, now_ms=wall_ms)
            else:
                state, start = step.state, step.log_start_offset
                epochs, snapshot = state.leader_epochs, state.producer_snapshot
                partition_log.start_behind_remote(state.next_offset, start, epochs, snapshot, wall_ms)
        except (KafkaError, CorruptSnapshot) as error:
            log.warning("%s: cannot truncate: %s", self, error)
            self.follower.truncated()
            self.follower.back_off(now_ms)
            return
        self._host.fault_point("replica.truncated")
        if partition_log.log_end_offset != before:
            ends = (before, partition_log.log_end_offset)
            note_truncation(self._host.decisions, self.name, self.replica, ends, cause)
        self.replica.truncated(partition_log.log_end_offset)
        self.replica.log_start_advanced(partition_log.local_log_start_offset)
        self._publish_high_watermark()
        self.follower.truncated()
        self._host.changed(self)

    # -- effects

    def _publish_high_watermark(self) -> None:
        """Copy the replica's high watermark to the log."""
        self.log.set_high_watermark(self.replica.high_watermark)

    def _carry_out(self, effects: Effects) -> None:
        """Carry out the effects of the replica core in order, then check the waiting requests."""
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self._publish_high_watermark()
                if self._host.fault_point is not no_fault:
                    self._host.fault_point("replica.high_watermark.moved")
                self._acks.complete_up_to(effect.offset, self.replica.ack_error())
            elif isinstance(effect, IsrChangeWanted):
                if effect != self._noted_proposal:
                    self._noted_proposal = effect
                    if self._host.decisions.accepts(DecisionKind.ISR):
                        note_isr_wanted(self._host.decisions, self.name, self.replica, effect)
                self._host.propose_isr(self, effect)
            elif isinstance(effect, LeadershipTaken):
                self.follower.stop()
                self._host.follow(self, NO_LEADER)
                self.log.epochs.assign(effect.leader_epoch, effect.start_offset)
                self._host.fault_point("replica.leadership.taken")
                if self._host.decisions.accepts(DecisionKind.ELECTION):
                    note_leading(self._host.decisions, self.name, self.replica, effect.start_offset)
                self._host.leadership_changed(self)
            elif isinstance(effect, LeadershipLost):
                is_deposed = effect.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
                if is_deposed and self._host.decisions.accepts(DecisionKind.ELECTION):
                    note_deposed(self._host.decisions, self.name, self.replica)
                self._host.leadership_changed(self)
                self._acks.fail_all(effect.error)
            elif isinstance(effect, Follow):
                if effect.leader_id == NO_LEADER:
                    self.follower.stop()
                else:
                    self.follower.start(effect.leader_epoch)
                self._host.follow(self, effect.leader_id)
        if len(effects) == 1 and isinstance(effects[0], HighWatermarkAdvanced):
            self._host.committed(self)
        elif effects:
            self._host.changed(self)


def _concerns_all_readers(effects: Effects) -> bool:
    """False for nothing but a new high watermark: readers of uncommitted records have its records already."""
    return len(effects) > 1 or (len(effects) == 1 and not isinstance(effects[0], HighWatermarkAdvanced))
