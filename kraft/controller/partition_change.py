"""`PartitionChange`: the rules by which one partition may change, and the record of the change.

A caller (a broker left, an ISR was proposed, an election was requested) sets the targets it cares about;
`build` derives leader, epochs, eligible leader replicas and the end of a reassignment from them. A pure
function of the partition, the targets and the rules; all it knows of a broker is whether it may lead.

Sources: KIP-631, KIP-704 (recovery after an unclean election), KIP-858 (directories), KIP-966 (ELR), KIP-455
(reassignment).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from barnabas.kraft.metadata.features import DIRECTORIES_SINCE, EPOCH_BUMP_ON_ISR_SHRINK_UNTIL
from barnabas.kraft.metadata.image import (
    LEADER_RECOVERING,
    LEADER_RECOVERY_NO_CHANGE,
    NO_LEADER,
    NO_LEADER_CHANGE,
    PartitionImage,
)
from barnabas.protocol.messages.metadata_log import PartitionChangeRecord

Replicas = tuple[int, ...]


class Election(Enum):
    """Kinds of elections."""

    PREFERRED = "preferred"
    """Move to the first replica if it may lead, else keep the partition online."""
    ONLINE = "online"
    """Keep the leader while it may lead, else take the next one that holds every committed record."""
    UNCLEAN = "unclean"
    """Like ONLINE, but lose records rather than stay offline."""


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """State of the cluster that the change of a partition depends on."""

    may_lead: Callable[[int], bool]
    """True if a replica's broker is active and its directory works."""
    has_room: Callable[[int], bool]
    """True if a replica's log directory has room. One without room leads only if no other may."""
    default_directory: Callable[[int], bytes]
    """The directory of a new replica on a broker, as far as it is known."""
    min_insync_replicas: int
    elr_enabled: bool
    metadata_version: int


@dataclass(slots=True)
class PartitionChange:
    """A wanted change. Targets start as what the partition has."""

    topic_id: bytes
    partition_id: int
    partition: PartitionImage
    rules: PartitionRules
    election: Election = Election.ONLINE
    isr: Replicas = field(init=False)
    replicas: Replicas = field(init=False)
    removing_replicas: Replicas = field(init=False)
    adding_replicas: Replicas = field(init=False)
    leader_recovery_state: int = field(init=False)
    unclean_restarts: Replicas = ()
    """Brokers that came back after an unclean stop: their logs may lack records."""
    emptied: Replicas = ()
    """Brokers among them that came back without the directory of their replica: it holds nothing."""
    _elr: Replicas = field(init=False)
    _last_known: Replicas = field(init=False)

    def __post_init__(self) -> None:
        partition = self.partition
        self.isr = partition.isr
        self.replicas = partition.replicas
        self.removing_replicas = partition.removing_replicas
        self.adding_replicas = partition.adding_replicas
        self.leader_recovery_state = partition.leader_recovery_state
        self._elr = partition.elr
        self._last_known = partition.last_known_elr

    def build(self) -> PartitionChangeRecord | None:
        """The record that makes the change, None if there is nothing to change."""
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.partition_id)
        self._finish_reassignment()
        self._gather_elr()
        self._gather_last_known()
        self._elect(record)
        self._bump_epoch_if_replicas_left(record)
        self._record_elr(record)
        self._record_isr(record)
        self._record_last_known_leader(record)
        self._record_assignment(record)
        if self.leader_recovery_state != self.partition.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        return None if _is_empty(record) else record

    def _finish_reassignment(self) -> None:
        """A reassignment ends once every replica that is to stay is in the ISR."""
        if not (self.removing_replicas or self.adding_replicas):
            return
        staying = tuple(it for it in self.replicas if it not in self.removing_replicas)
        isr = tuple(it for it in self.isr if it not in self.removing_replicas)
        if not staying or not isr or any(it not in isr for it in staying):
            return
        self.replicas, self.isr = staying, isr
        self.removing_replicas = self.adding_replicas = ()

    def _gather_elr(self) -> None:
        """While the ISR is below min.insync.replicas nothing is acknowledged, so a replica that leaves it then still
        holds every committed record and stays eligible, unless it restarted uncleanly."""
        if not self.rules.elr_enabled:
            return
        if len(self.isr) >= self.rules.min_insync_replicas:
            self._elr = ()
            return
        candidates = sorted({*self.partition.elr, *self.partition.isr})
        self._elr = tuple(
            it for it in candidates if it not in self.isr and it not in self.unclean_restarts and it in self.replicas
        )

    def _gather_last_known(self) -> None:
        """If all replicas restarted uncleanly, the last one that was known to hold every committed record counts as
        the last known leader: no other replica can hold more."""
        if self.isr or self._elr:
            return
        for replica in self.unclean_restarts:
            if replica in self.partition.elr and replica not in self.emptied:
                self._last_known = (replica,)

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, unclean = self._choose_leader()
        if leader == self.partition.leader:
            return
        record.leader = leader
        if leader in self._elr:
            self.isr = tuple(it for it in self.replicas if it == leader or self._may_join(it))
            are_enough = len(self.isr) >= self.rules.min_insync_replicas
            self._elr = () if are_enough else tuple(it for it in self._elr if it not in self.isr)
        elif unclean:
            # No other replica is known to match this leader's log: the ISR is the leader alone, and records
            # that only others held are lost.
            record.isr = [leader]
            if self.partition.leader_recovery_state != LEADER_RECOVERING:
                record.leader_recovery_state = LEADER_RECOVERING

    def _choose_leader(self) -> tuple[int, bool]:
        """(leader or NO_LEADER, whether committed records may be missing in it)."""
        order = [self.partition.leader, *self.replicas]
        if self.election is Election.PREFERRED:
            order.insert(0, self.replicas[0])
        able = [it for it in order if self._holds_all_committed(it) and self.rules.may_lead(it)]
        if able:
            # A replica that joins the ISR by this change is no reason to replace a leader that may stay.
            before = (*self.partition.isr, *self.partition.elr)
            with_room = (it for it in able if self.rules.has_room(it) and (it in before or it == able[0]))
            return next(with_room, able[0]), False
        last_known = self._last_known_leader()
        if last_known is not None:
            return last_known, True
        if self.election is Election.UNCLEAN:
            for candidate in self.replicas:
                if self.rules.may_lead(candidate):
                    return candidate, True
        return NO_LEADER, False

    def _may_join(self, replica: int) -> bool:
        """True for an eligible replica that can follow a leader now. It has every committed record, as in the ISR, so
        it need not be proposed for it."""
        return replica in self._elr and self.rules.may_lead(replica) and self.rules.has_room(replica)

    def _holds_all_committed(self, replica: int) -> bool:
        return replica in (self.isr or self._elr)

    def _last_known_leader(self) -> int | None:
        """If ISR and ELR are empty, every replica restarted uncleanly; the last leader or eligible replica is elected
        as soon as it is back. Whether it lost records in its restart cannot be known (KIP-966, balanced
        recovery)."""
        known = self._last_known
        if not self.rules.elr_enabled or self.isr or self._elr or len(known) != 1:
            return None
        return known[0] if known[0] in self.replicas and self.rules.may_lead(known[0]) else None

    def _bump_epoch_if_replicas_left(self, record: PartitionChangeRecord) -> None:
        """A replica that left the assignment must not be able to fetch on under the old epoch."""
        if record.leader == NO_LEADER_CHANGE and any(it not in self.replicas for it in self.partition.replicas):
            record.leader = self.partition.leader

    def _record_elr(self, record: PartitionChangeRecord) -> None:
        elected_uncleanly = record.isr is not None
        if elected_uncleanly or not self.rules.elr_enabled:
            self._elr = ()
        if self._elr != self.partition.elr:
            record.eligible_leader_replicas = list(self._elr)

    def _record_isr(self, record: PartitionChangeRecord) -> None:
        # Without ELR the last member stays in the ISR of an offline partition, to record which replica may
        # lead.
        may_be_recorded = bool(self.isr) or self.rules.elr_enabled
        if record.isr is None and may_be_recorded and self.isr != self.partition.isr:
            record.isr = list(self.isr)
        if (
            record.isr is not None
            and record.leader == NO_LEADER_CHANGE
            and self.rules.metadata_version <= EPOCH_BUMP_ON_ISR_SHRINK_UNTIL
            and any(it not in record.isr for it in self.partition.isr)
        ):
            record.leader = self.partition.leader

    def _record_last_known_leader(self, record: PartitionChangeRecord) -> None:
        """Remembered when the ISR becomes empty, forgotten when there is a leader again."""
        if not self.rules.elr_enabled:
            return
        known = self._last_known
        leader = self.partition.leader if record.leader == NO_LEADER_CHANGE else record.leader
        if record.isr == []:
            last_leader = self.partition.leader
            if last_leader == NO_LEADER and len(self.partition.isr) == 1:
                last_leader = self.partition.isr[0]
            if last_leader != NO_LEADER and known != (last_leader,):
                record.last_known_elr = [last_leader]
        elif leader != NO_LEADER and self.partition.last_known_elr:
            record.last_known_elr = []
        elif leader == NO_LEADER and known != self.partition.last_known_elr:
            record.last_known_elr = list(known)

    def _record_assignment(self, record: PartitionChangeRecord) -> None:
        if self.replicas != self.partition.replicas:
            known = dict(zip(self.partition.replicas, self.partition.directories, strict=True))
            directories = [known.get(it) or self.rules.default_directory(it) for it in self.replicas]
            record.replicas = list(self.replicas)
            if self.rules.metadata_version >= DIRECTORIES_SINCE and tuple(directories) != self.partition.directories:
                record.directories = directories
        if self.removing_replicas != self.partition.removing_replicas:
            record.removing_replicas = list(self.removing_replicas)
        if self.adding_replicas != self.partition.adding_replicas:
            record.adding_replicas = list(self.adding_replicas)


def _is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.leader == NO_LEADER_CHANGE
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == LEADER_RECOVERY_NO_CHANGE
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
