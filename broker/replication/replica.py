"""Core: one replica of one partition, as leader, as follower or offline.

The leader learns from its followers' fetches how far each of them has come. The high watermark is the smallest log end
offset of the ISR; records below it are committed. The ISR itself belongs to the controller: the leader only proposes
changes (AlterPartition, KIP-497), and until the answer it uses the *maximal* ISR, the union of what is committed and
what is proposed. So a refused change can never have acknowledged too much.

Deals with offsets, epochs and broker ids. Knows no records, no log, no network: inputs are method calls, effects are
returned as a tuple for `partition.py` to carry out. Milliseconds are those of the node's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.kraft.metadata.image import LEADER_RECOVERED, NO_LEADER, BrokerImage, PartitionImage
from barnabas.protocol.errors import ErrorCode

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
NEVER_MS = -(1 << 62)
ACKS_ALL = -1
"""acks of a produce that all in-sync replicas acknowledge."""
REFUSED_BACKOFF_MS = 100
"""Time until a replica that the controller refused is proposed for the ISR again."""


class HighWatermarkAdvanced(NamedTuple):
    """Everything below `offset` is committed. (A tuple, not a dataclass: one is created for every batch.)"""

    offset: int


@dataclass(frozen=True, slots=True)
class IsrChangeWanted:
    """Propose this ISR to the controller; pass its answer to `isr_change_answered` together with this value."""

    isr: tuple[tuple[int, int], ...]
    """(broker id, broker epoch), by id. An epoch of -1 is not checked (KIP-903)."""
    leader_epoch: int
    partition_epoch: int
    """Compared and set by the controller: of two changes to the same state, one is refused."""
    leader_recovery_state: int = LEADER_RECOVERED
    because_of: tuple[tuple[int, int, int | None], ...] = field(default=(), compare=False)
    """Replicas that leave or join: (broker id, log end offset or -1, ms since it was caught up or None for never)."""

    @property
    def members(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, _ in self.isr)


@dataclass(frozen=True, slots=True)
class LeadershipTaken:
    """This replica leads. Write (leader_epoch, start_offset) to the leader-epoch cache before serving anything:
    followers with a longer log from an older epoch find their truncation point by it (KIP-101).
    """

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """Requests that wait for the high watermark here are answered with `error`."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Follow:
    """Fetch from `leader_id` (NO_LEADER: from none) in this epoch."""

    leader_id: int
    leader_epoch: int


Effect = HighWatermarkAdvanced | IsrChangeWanted | LeadershipTaken | LeadershipLost | Follow
Effects = tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """The controller's answer to an accepted change."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class FollowerFetch(NamedTuple):
    """The progress that a follower reports by fetching."""

    node_id: int
    broker_epoch: int
    fetch_offset: int
    """Its log end offset: it has everything below."""
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """The settings that the rules depend on."""

    replica_lag_time_max_ms: int = 30_000
    min_insync_replicas: int = 1
    """The topic's setting; capped by the replication factor."""
    hold_below_min_isr: bool = True
    """KIP-966 (eligible.leader.replicas.version 1): the high watermark does not advance while the ISR is too small."""


@dataclass(slots=True)
class Progress:
    """The leader's view of one follower in this leader epoch. Nothing is carried over from an earlier epoch: the
    follower may have truncated its log for another leader meanwhile.
    """

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int | None = None
    """The broker epoch of its last fetch."""
    last_fetch_ms: int = NEVER_MS
    leader_log_end_offset: int = UNKNOWN_OFFSET
    """The leader's log end offset at its last fetch."""
    last_caught_up_ms: int = NEVER_MS
    """The latest time at which it had all records that the leader had then. A follower lags if that is too long
    ago."""
    not_before_ms: int = NEVER_MS
    """It is not proposed for the ISR before this time."""
    is_ineligible: bool = False
    """The controller refused it for a reason other than its progress: its log directory is full, or its broker is
    shutting down. The high watermark does not wait for it until it is proposed again."""

    def behind_ms(self, now_ms: int) -> int | None:
        """Time since it was caught up; None if it never was in this leader epoch."""
        return None if self.last_caught_up_ms == NEVER_MS else now_ms - self.last_caught_up_ms


@dataclass(slots=True)
class Leading:
    """Invariants: isr ⊆ maximal_isr ⊆ followers ∪ {self}; isr is the last one that the controller committed."""

    epoch_start_offset: int
    isr: frozenset[int]
    maximal_isr: frozenset[int]
    followers: dict[int, Progress]
    pending: IsrChangeWanted | None = None


@dataclass(slots=True)
class Following:
    leader_id: int = NO_LEADER
    in_sync: bool = True
    """True if this replica is in the ISR of the newest metadata."""


@dataclass(slots=True)
class Offline:
    """The log cannot be used: its disk failed."""


# The controller refused the change of the current state: the committed ISR holds.
_REFUSED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# This leader's state is out of date, or the change was made and the answer lost: the metadata log will show it.
_STALE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


@dataclass(slots=True)
class Replica:
    """The state machine. `high_watermark` never moves back unless the log is truncated.

    It owns the high watermark. `log_end_offset` belongs to the log and is held here as of the last input, because a
    decision compares it with what followers reported before that input, and because the core must run without a log.
    """

    node_id: int
    brokers: Callable[[int], BrokerImage | None]
    """A broker's registration in the newest metadata."""
    settings: ReplicaSettings
    log_end_offset: int
    high_watermark: int
    """Invariant: high_watermark <= log_end_offset."""
    role: Leading | Following | Offline = field(default_factory=Following)
    leader_epoch: int = UNKNOWN_EPOCH
    partition_epoch: int = UNKNOWN_EPOCH
    replicas: tuple[int, ...] = ()
    last_fetch_ms: Callable[[int], int] | None = None
    """The time of a broker's last fetch of any partition. A fetch does not name partitions without changes, so
    followers that are caught up are judged by it (KIP-227)."""

    # -- which requests are allowed

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leading)

    @property
    def leader_id(self) -> int:
        if isinstance(self.role, Following):
            return self.role.leader_id
        return self.node_id if isinstance(self.role, Leading) else NO_LEADER

    @property
    def isr(self) -> frozenset[int]:
        """The committed ISR, empty where this replica does not lead."""
        return self.role.isr if isinstance(self.role, Leading) else frozenset()

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The committed ISR and the replicas that are proposed to join it, empty where this replica does not lead."""
        return self.role.maximal_isr if isinstance(self.role, Leading) else frozenset()

    @property
    def pending_isr_change(self) -> IsrChangeWanted | None:
        """The proposal that is not answered yet."""
        return self.role.pending if isinstance(self.role, Leading) else None

    @property
    def min_isr(self) -> int:
        return min(self.settings.min_insync_replicas, max(1, len(self.replicas)))

    @property
    def high_watermark_is_current(self) -> bool:
        """False while a new leader does not know yet that all records of earlier epochs are committed (KIP-207)."""
        return isinstance(self.role, Leading) and self.high_watermark >= self.role.epoch_start_offset

    def replica_error(self, current_leader_epoch: int) -> ErrorCode | None:
        """The error for a reader of any replica that knows `current_leader_epoch` (-1: not given; KIP-320)."""
        if current_leader_epoch not in (UNKNOWN_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(self.role, Offline) else None

    def leader_error(self, current_leader_epoch: int = UNKNOWN_EPOCH) -> ErrorCode | None:
        """The error for a request to the leader."""
        if current_leader_epoch in (UNKNOWN_EPOCH, self.leader_epoch) and isinstance(self.role, Leading):
            return None
        error = self.replica_error(current_leader_epoch)
        if error is None and not isinstance(self.role, Leading):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def is_in_sync_fetch(self, fetch: FollowerFetch, current_leader_epoch: int) -> bool:
        """True if a fetch comes from a replica in the maximal ISR that knows the leader epoch, so that `follower_error`
        has none for it."""
        role = self.role
        if not isinstance(role, Leading) or current_leader_epoch != self.leader_epoch:
            return False
        node_id = fetch.node_id
        if node_id not in role.maximal_isr or node_id not in role.followers:
            return False
        broker = self.brokers(node_id)
        return broker is None or not -1 < fetch.broker_epoch < broker.epoch

    def follower_error(self, node_id: int, broker_epoch: int, current_leader_epoch: int) -> ErrorCode | None:
        """The error for a fetch of another replica. To be called before the log is read."""
        error = self.leader_error(current_leader_epoch)
        if error is not None:
            return error
        assert isinstance(self.role, Leading)
        if node_id not in self.role.followers:
            # It may know an assignment that this broker has not applied yet: it retries.
            if current_leader_epoch != UNKNOWN_EPOCH:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._is_stale(node_id, broker_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None

    def is_forgotten(self, active_since_ms: int, *, may_be_fenced: bool) -> bool:
        """True if the partition may have moved on without this replica's knowledge. A leader is certain while it has no
        followers, or one of them fetched after `active_since_ms`; a follower while it is in the ISR and its broker is
        not fenced.
        """
        role = self.role
        if isinstance(role, Following):
            return may_be_fenced or not role.in_sync
        if not may_be_fenced or not isinstance(role, Leading) or not role.followers:
            return False
        return all(
            max(progress.last_fetch_ms, NEVER_MS if self.last_fetch_ms is None else self.last_fetch_ms(node_id))
            < active_since_ms
            for node_id, progress in role.followers.items()
        )

    def append_error(self, acks: int) -> ErrorCode | None:
        """The error for a produce before it is appended."""
        role = self.role
        if not isinstance(role, Leading):
            return self.leader_error()
        if acks == ACKS_ALL and len(role.isr) < self.settings.min_insync_replicas and len(role.isr) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return None

    def enough_replicas(self, required_offset: int) -> tuple[bool, ErrorCode | None]:
        """True if an acks=all produce that ends at `required_offset` can be answered, and its error."""
        if not isinstance(self.role, Leading):
            return True, self.leader_error()
        if self.high_watermark < required_offset:
            return False, None
        return True, self.ack_error()

    def ack_error(self) -> ErrorCode | None:
        """The error for an appended produce that the high watermark has reached."""
        role = self.role
        if not isinstance(role, Leading) or len(role.maximal_isr) >= self.settings.min_insync_replicas:
            return None
        if len(role.maximal_isr) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return None

    def in_sync_followers(self, offset: int, now_ms: int) -> list[tuple[int, int, int]]:
        """Leader only: (node id, log end offset, ms since it was caught up) of each in-sync follower from which
        `offset` can be read.
        """
        role = self.role
        if not isinstance(role, Leading):
            return []
        return [
            (node_id, progress.log_end_offset, now_ms - progress.last_caught_up_ms)
            for node_id, progress in role.followers.items()
            if node_id in role.isr and progress.log_start_offset <= offset <= progress.log_end_offset
        ]

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest log start offset of the live replicas; the leader's own is `log_start_offset`. Leader only."""
        if isinstance(self.role, Leading):
            for node_id, progress in self.role.followers.items():
                broker = self.brokers(node_id)
                if broker is not None and not broker.fenced:
                    log_start_offset = min(log_start_offset, progress.log_start_offset)
        return log_start_offset

    # -- news from the metadata log

    def partition_changed(self, image: PartitionImage, log_end_offset: int, now_ms: int) -> Effects:
        """A new state of the partition, in the order of the metadata log. States older than the last answer of the
        controller are ignored.
        """
        if image.partition_epoch < self.partition_epoch or image.leader_epoch < self.leader_epoch:
            return ()
        if isinstance(self.role, Offline):
            self._note(image)
            return ()
        if image.leader == self.node_id:
            return self._become_leader(image, log_end_offset, now_ms)
        return self._become_follower(image, log_end_offset)

    def _note(self, image: PartitionImage) -> None:
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas

    def _become_leader(self, image: PartitionImage, log_end_offset: int, now_ms: int) -> Effects:
        role = self.role
        isr = frozenset(image.isr)
        if isinstance(role, Leading) and image.leader_epoch == self.leader_epoch:
            if image.partition_epoch == self.partition_epoch:
                # Known from the controller's answer. A later proposal is still pending.
                return ()
            # A pending change is part of this state or was refused: it named the previous partition epoch.
            followers = {
                node_id: role.followers.get(node_id) or Progress()
                for node_id in image.replicas
                if node_id != self.node_id
            }
            self.role = Leading(role.epoch_start_offset, isr, isr, followers)
            self._note(image)
            return self._advance(now_ms)
        self._note(image)
        self.log_end_offset = log_end_offset
        # A member of the ISR has replica.lag.time.max.ms to fetch; others count only after they have fetched.
        followers = {
            node_id: Progress(last_caught_up_ms=now_ms if node_id in isr else NEVER_MS)
            for node_id in image.replicas
            if node_id != self.node_id
        }
        self.role = Leading(log_end_offset, isr, isr, followers)
        return (LeadershipTaken(image.leader_epoch, log_end_offset), *self._advance(now_ms))

    def _become_follower(self, image: PartitionImage, log_end_offset: int) -> Effects:
        role = self.role
        lost: Effects = (
            (LeadershipLost(ErrorCode.NOT_LEADER_OR_FOLLOWER),) if isinstance(role, Leading) else ()
        )
        same = (
            isinstance(role, Following)
            and role.leader_id == image.leader
            and image.leader_epoch == self.leader_epoch
        )
        self._note(image)
        in_sync = self.node_id in image.isr
        if same and isinstance(role, Following):
            role.in_sync = in_sync
            return ()
        self.role = Following(image.leader, in_sync)
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
        return (*lost, Follow(image.leader, image.leader_epoch))

    def go_offline(self) -> Effects:
        """The log failed. Only a restart of the broker brings it back."""
        role = self.role
        self.role = Offline()
        if isinstance(role, Leading):
            return (LeadershipLost(ErrorCode.KAFKA_STORAGE_ERROR),)
        return (Follow(NO_LEADER, self.leader_epoch),) if isinstance(role, Following) else ()

    def leave(self) -> None:
        """The partition was deleted or moved to other brokers: nothing is written or read here from now on."""
        self.role = Following(NO_LEADER)

    # -- leading

    def appended(self, log_end_offset: int, now_ms: int) -> Effects:
        """The leader's own log has grown."""
        role = self.role
        if isinstance(role, Leading) and self.last_fetch_ms is not None:
            # A caught-up follower that fetched without naming this partition was still caught up at that fetch.
            for node_id, progress in role.followers.items():
                if progress.log_end_offset == self.log_end_offset:
                    progress.last_caught_up_ms = max(progress.last_caught_up_ms, self.last_fetch_ms(node_id))
        self.log_end_offset = log_end_offset
        return self._advance(now_ms)

    def follower_fetched(self, fetch: FollowerFetch, leader_log_end_offset: int, now_ms: int) -> Effects:
        """A follower fetched. `leader_log_end_offset` is the leader's before the read, so that later appends do not
        make the follower look late. Not to be called for a fetch that is answered with a diverging epoch.
        """
        role = self.role
        node_id, broker_epoch, fetch_offset, log_start_offset = fetch
        if not isinstance(role, Leading):
            return ()
        progress, broker = role.followers.get(node_id), self.brokers(node_id)
        if progress is None or (broker is not None and -1 < broker_epoch < broker.epoch):
            return ()
        if fetch_offset >= leader_log_end_offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, now_ms)
        elif fetch_offset >= progress.leader_log_end_offset:
            # Under steady load it never reaches the leader's end, but has all that the leader had at its last fetch.
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        moved = fetch_offset != progress.log_end_offset
        progress.log_end_offset = fetch_offset
        progress.log_start_offset = log_start_offset
        progress.broker_epoch = broker_epoch
        progress.last_fetch_ms = now_ms
        progress.leader_log_end_offset = max(progress.leader_log_end_offset, leader_log_end_offset)
        if node_id in role.maximal_isr:
            return self._advance(now_ms) if moved else ()
        effects = self._expand(role, node_id, progress, now_ms)
        return effects + self._advance(now_ms) if moved else effects

    def tick(self, now_ms: int) -> Effects:
        """To be called every replica.lag.time.max.ms / 2, and when brokers are fenced: proposes an ISR without the
        lagging replicas."""
        role = self.role
        if not isinstance(role, Leading):
            return ()
        effects: Effects = ()
        if role.pending is None:
            lagging = {
                node_id
                for node_id, progress in role.followers.items()
                if node_id in role.isr and not self._is_caught_up(progress, now_ms)
            }
            if lagging:
                # The lagging replicas count until the controller has agreed: maximal_isr stays.
                effects = (self._propose(role, role.isr - lagging, sorted(lagging), now_ms),)
        # A replica outside the ISR that the high watermark waited for may lag too much by now.
        return effects + self._advance(now_ms)

    def isr_change_answered(
        self, proposal: IsrChangeWanted, answer: CommittedIsr | ErrorCode, now_ms: int
    ) -> Effects:
        """The controller's answer. After an error that is not about the change the proposal is returned: the caller
        sends it again after a backoff.
        """
        role = self.role
        if not isinstance(role, Leading) or role.pending != proposal:
            # The metadata log was faster than the answer.
            return ()
        if isinstance(answer, CommittedIsr):
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return ()
            self.partition_epoch = answer.partition_epoch
            role.isr = role.maximal_isr = frozenset(answer.isr)
            role.pending = None
            return self._advance(now_ms)
        if answer in _REFUSED:
            role.pending = None
            role.maximal_isr = role.isr
            for node_id in proposal.members - role.isr:
                if node_id in role.followers:
                    role.followers[node_id].not_before_ms = now_ms + REFUSED_BACKOFF_MS
                    role.followers[node_id].is_ineligible = answer is ErrorCode.INELIGIBLE_REPLICA
            return self._advance(now_ms)
        return () if answer in _STALE else (proposal,)

    def _is_stale(self, node_id: int, broker_epoch: int) -> bool:
        """True if a fetch is from before the broker's last restart (KIP-903)."""
        broker = self.brokers(node_id)
        return broker is not None and -1 < broker_epoch < broker.epoch

    def _may_join(self, node_id: int, progress: Progress) -> bool:
        broker = self.brokers(node_id)
        return (
            broker is not None
            and broker.active
            and progress.broker_epoch is not None
            and progress.broker_epoch in (-1, broker.epoch)
        )

    def _is_caught_up(self, progress: Progress, now_ms: int) -> bool:
        return (
            progress.log_end_offset == self.log_end_offset
            or now_ms - progress.last_caught_up_ms <= self.settings.replica_lag_time_max_ms
        )

    def _expand(self, role: Leading, node_id: int, progress: Progress, now_ms: int) -> Effects:
        if (
            role.pending is not None
            or now_ms < progress.not_before_ms
            or progress.log_end_offset < self.high_watermark
            # Between a new leader's high watermark and the start of its epoch there may be committed records: a replica
            # without them must not become leader.
            or progress.log_end_offset < role.epoch_start_offset
            or not self._may_join(node_id, progress)
        ):
            return ()
        progress.is_ineligible = False
        role.maximal_isr = role.isr | {node_id}
        return (self._propose(role, role.maximal_isr, [node_id], now_ms),)

    def _propose(
        self, role: Leading, members: frozenset[int], because_of: list[int], now_ms: int
    ) -> IsrChangeWanted:
        isr = []
        for node_id in sorted(members):
            if node_id == self.node_id:
                own = self.brokers(node_id)
                epoch = -1 if own is None else own.epoch
            else:
                reported = role.followers[node_id].broker_epoch
                epoch = -1 if reported is None else reported
            isr.append((node_id, epoch))
        known = [(node_id, role.followers[node_id]) for node_id in because_of]
        role.pending = IsrChangeWanted(
            tuple(isr),
            self.leader_epoch,
            self.partition_epoch,
            because_of=tuple((node_id, it.log_end_offset, it.behind_ms(now_ms)) for node_id, it in known),
        )
        return role.pending

    def _advance(self, now_ms: int) -> Effects:
        """Advance the high watermark to the smallest log end offset of the maximal ISR and of the replicas that are
        about to join it: without those, the leader of a small ISR could stay ahead of them for ever.
        """
        role = self.role
        if not isinstance(role, Leading):
            return ()
        reached = self.log_end_offset
        high_watermark = self.high_watermark
        if reached <= high_watermark:
            return ()
        size = len(role.isr)
        if self.settings.hold_below_min_isr and size < self.settings.min_insync_replicas and size < self.min_isr:
            return ()
        maximal_isr = role.maximal_isr
        for node_id, progress in role.followers.items():
            if progress.log_end_offset < reached and (
                node_id in maximal_isr
                or (
                    not progress.is_ineligible
                    and self._is_caught_up(progress, now_ms)
                    and self._may_join(node_id, progress)
                )
            ):
                reached = progress.log_end_offset
                if reached <= high_watermark:
                    return ()
        self.high_watermark = reached
        return (HighWatermarkAdvanced(reached),)

    # -- following

    def replicated(self, log_end_offset: int, leader_high_watermark: int) -> Effects:
        """The leader's response was appended (or was empty): the high watermark is the leader's, up to the own log
        end."""
        self.log_end_offset = log_end_offset
        return self._follow_to(min(leader_high_watermark, log_end_offset))

    def truncated(self, log_end_offset: int) -> None:
        """The log was truncated. The removed records were never committed, unless an unclean election lost them."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def log_start_advanced(self, log_start_offset: int) -> Effects:
        """The leader's log start offset advanced: deleted records were committed."""
        return self._follow_to(min(log_start_offset, self.log_end_offset))

    def _follow_to(self, offset: int) -> Effects:
        # A new leader may know a lower high watermark than the old one: committed records stay committed.
        if isinstance(self.role, Following) and offset > self.high_watermark:
            self.high_watermark = offset
            return (HighWatermarkAdvanced(offset),)
        return ()

    def describe(self) -> str:
        """One line: role, epochs, offsets, ISR and proposed ISR."""
        role = self.role
        epochs = f"epoch {self.leader_epoch}/{self.partition_epoch}"
        text = f"{epochs} hw {self.high_watermark} end {self.log_end_offset}"
        if isinstance(role, Leading):
            followers = " ".join(f"{node_id}@{p.log_end_offset}" for node_id, p in role.followers.items())
            pending = "" if role.pending is None else f" -> {sorted(role.pending.members)}"
            return f"leading {text} isr {sorted(role.isr)}{pending} followers {followers or 'none'}"
        return f"offline {text}" if isinstance(role, Offline) else f"following {role.leader_id} {text}"
