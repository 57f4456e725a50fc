"""The promises of partition replication, checked as high watermarks, leaders, ISRs and logs change.

- What lies below any high watermark is committed: the same bytes on every replica that has it, for ever.
- Every member of the ISR and every eligible leader replica holds all that is committed (KIP-966), wherever the
  metadata quorum says that it is a member; so nothing is lost while one of them lives (RE-10).
- A replica never cuts what it shares with the committed log, under any leader (KIP-101, KIP-279).
- A leader's high watermark is at most the least log end of its maximal ISR, and never falls in its epoch.
- One leader in a leader epoch. Leader-epoch histories rise, and agree below the high watermark.
- Where a topic is compacted, a replica may lack what a later record of the same key has made void, and nothing else.
- Only a leader calls something committed first: no follower's high watermark is above what a leader of its epoch, or of
  an earlier one, has had.

A deleted topic is no longer checked, nor is a new one of its name: brokers learn of both at different times.

A power cut or a lost disk makes a broker *lossy*: it may have less than it reported. It counts again as a
member once it has registered again, which must have taken it out of ISR and ELR if it lacks anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from barnabas.broker.internal_topics import SHARE_TOPIC
from barnabas.cluster.hostile.aims import JUDGED_PREFIX, OWN_PREFIX
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import MetadataImage, PartitionImage
from barnabas.protocol.records.record import Record, decode_records
from simulation.findings import Findings
from simulation.ghosts import GhostLog, LogReader, epochs_from
from simulation.invariants.compaction import COMPACTED_TOPICS, is_rest, missing
from simulation.invariants.membership import MembershipPromises
from simulation.invariants.places import LeaderView, PartitionKey, ReplicaLog
from simulation.invariants.producers import ProducerPromises


@dataclass(slots=True)
class _Replica:
    """State of one replica in one life of its broker."""

    log: ReplicaLog
    reader: LogReader
    verified: int
    """Below, its log was compared with the ghost."""
    stable: int = 0
    """Its last stable offset, as last seen."""


@dataclass(slots=True)
class _Partition:
    ghost: GhostLog = field(default_factory=GhostLog)
    replicas: dict[int, _Replica] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    """The leader in each epoch."""
    watermarks: dict[tuple[int, int], int] = field(default_factory=dict)
    """The highest one of each (leader, epoch)."""
    returned: dict[int, int] = field(default_factory=dict)
    """Members that lost something and registered again, and the partition epoch from which on that is known."""
    producers: ProducerPromises = field(default_factory=ProducerPromises)
    """State of producers, by the ghost."""
    trusted: dict[int, int] = field(default_factory=dict)
    """End of the committed log that each replica was seen to have; it must never have less unless it is lossy."""


_NOBODY = _Partition()
"""Has no replicas, and never will."""


class PartitionPromises:
    """One per universe."""

    def __init__(
        self,
        findings: Findings,
        content: Callable[[int, str], bytearray | None],
        image: Callable[[], MetadataImage],
        min_isr: Callable[[PartitionKey], int],
    ) -> None:
        """`content`: the bytes of a node's file; `image`: the committed metadata."""
        self._findings = findings
        self._content = content
        self._image = image
        self._partitions: dict[PartitionKey, _Partition] = {}
        self.first_sequence = 0
        """First sequence that producers of the run may use besides 0."""
        self._deleted: set[str] = set()
        """Names of topics."""
        self.lossy: dict[int, int] = {}
        """Brokers that lost something, and the broker epoch they had then."""
        self._membership = MembershipPromises(findings, min_isr, self.lossy, self._host_of)

    def _host_of(self, broker_id: int) -> str | None:
        broker = self._image().cluster.brokers.get(broker_id)
        return None if broker is None else broker.host

    def is_nobodys(self, topic: str) -> bool:
        """Nothing is promised of deleted topics, nor of those of hostile clients, who may elect whom they like."""
        return topic in self._deleted or topic.startswith((OWN_PREFIX, JUDGED_PREFIX))

    def ghost(self, key: PartitionKey) -> GhostLog:
        """The committed log of a partition."""
        return self._of(key).ghost

    def committed_up_to(self, key: PartitionKey) -> tuple[int, int | None]:
        """(end of the committed log, first offset of the oldest transaction without a marker in it)"""
        partition = self._of(key)
        return partition.ghost.end_offset, partition.producers.first_open

    @property
    def keys(self) -> Sequence[PartitionKey]:
        return sorted(self._partitions)

    def log(self, key: PartitionKey, node_id: int) -> ReplicaLog | None:
        """The log as that broker opened it last."""
        replica = self._of(key).replicas.get(node_id)
        return None if replica is None else replica.log

    def committed_records(self, key: PartitionKey) -> list[Record]:
        return [record for batch in self._of(key).ghost.batches for record in decode_records(batch.data)]

    # ---- what happens

    def broker_lost_something(self, node_id: int) -> None:
        """Its power was cut, or its disk is gone."""
        broker = self._image().cluster.brokers.get(node_id)
        self.lossy[node_id] = -1 if broker is None else broker.epoch
        for key, partition in self._partitions.items():
            partition.trusted.pop(node_id, None)
            partition.replicas.pop(node_id, None)
            image = self._image().topics.partition(*key)
            if image is not None and node_id in image.replicas:
                self._membership.lost_something(key, image)

    def logs_of(self, node_id: int) -> Iterator[tuple[PartitionKey, ReplicaLog]]:
        """The logs that a broker has open, or had when it died."""
        for key, partition in self._partitions.items():
            replica = partition.replicas.get(node_id)
            if replica is not None:
                yield key, replica.log

    def opened(self, key: PartitionKey, node_id: int, log: ReplicaLog) -> None:
        """A broker has opened a log, and recovered it if need was."""
        if self.is_nobodys(key.topic):
            return
        partition = self._of(key)
        reader = LogReader(log, lambda path: self._content(node_id, path))
        partition.replicas[node_id] = _Replica(log, reader, log.local_log_start_offset)
        self._check_kept(key, partition, node_id, "after recovery")
        self._verify(key, partition, node_id, partition.trusted.get(node_id, 0))

    def high_watermark_moved(self, key: PartitionKey, node_id: int, log: ReplicaLog) -> None:
        """A replica's high watermark may have moved."""
        partition = self._partitions.get(key, _NOBODY)
        replica = partition.replicas.get(node_id)
        if replica is None or replica.log is not log:
            return
        stable = log.last_stable_offset
        self._findings.check(
            replica.stable <= stable <= log.high_watermark,
            lambda: (
                f"{key}: the last stable offset of replica {node_id} was {replica.stable}, and is {stable}, "
                f"high watermark {log.high_watermark}"
            ),
        )
        replica.stable = stable
        if log.high_watermark <= replica.verified:
            return
        before = partition.ghost.end_offset
        self._verify(key, partition, node_id, log.high_watermark)
        if partition.ghost.end_offset > before:
            self._check_members(key, partition, self._members(key), "when it was committed")

    def truncated(self, key: PartitionKey, node_id: int, log: ReplicaLog) -> None:
        """A replica has cut its log."""
        partition = self._partitions.get(key, _NOBODY)
        replica = partition.replicas.get(node_id)
        if replica is None or replica.log is not log:
            return
        replica.reader.forget()
        replica.stable = 0
        replica.verified = max(min(replica.verified, log.log_end_offset), log.local_log_start_offset)
        self._check_kept(key, partition, node_id, "after it was truncated")
        self._check_epochs(key, partition, node_id)

    def leads(self, key: PartitionKey, view: LeaderView) -> None:
        """A replica acts as leader."""
        if self.is_nobodys(key.topic):
            return
        self._membership.leads(key, view)
        partition, findings, epoch = self._of(key), self._findings, view.leader_epoch
        leader = partition.leaders.setdefault(epoch, view.node_id)
        findings.check(leader == view.node_id, lambda: f"{key}: {leader} and {view.node_id} both lead in epoch {epoch}")
        highest = partition.watermarks.get((view.node_id, epoch), -1)
        if view.high_watermark == highest:
            return
        findings.check(
            view.high_watermark > highest,
            lambda: f"{key}: the high watermark of leader {view.node_id} fell from {highest} to {view.high_watermark}",
        )
        partition.watermarks[view.node_id, epoch] = view.high_watermark
        for member in sorted(view.maximal_isr):
            replica = partition.replicas.get(member)
            if replica is None or member in self.lossy:
                continue
            if view.partition_epoch < partition.returned.get(member, -1):
                continue  # the leader relies on what it had, and does not know yet that it is lost
            end = replica.log.log_end_offset
            if view.high_watermark > end:
                findings.report(
                    f"{key}: leader {view.node_id} commits up to {view.high_watermark}, {member} ends at {end}"
                )

    def follows(self, key: PartitionKey, node_id: int, leader_epoch: int, high_watermark: int) -> None:
        """A follower has received this high watermark."""
        if self.is_nobodys(key.topic):
            return
        partition = self._partitions.get(key, _NOBODY)
        led = max((most for (_, epoch), most in partition.watermarks.items() if epoch <= leader_epoch), default=0)
        self._findings.check(
            high_watermark <= led,
            lambda: (
                f"{key}: follower {node_id} in epoch {leader_epoch} has the high watermark {high_watermark}, "
                f"its leaders have come to {led}"
            ),
        )

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """The committed metadata changed."""
        for broker_id, broker in delta.changed_brokers.items():
            if broker is not None and self.lossy.get(broker_id, broker.epoch) != broker.epoch:
                # It has registered again: from now on the metadata must be right about it.
                del self.lossy[broker_id]
                self._returned(delta.after, broker_id)
                self._check_all(delta.after, broker_id)
        for deleted in delta.deleted_topics.values():
            self._deleted.add(deleted.name)
            for key in [key for key in self._partitions if key.topic == deleted.name]:
                del self._partitions[key]
                self._membership.deleted(key)
        for topic in delta.changed_topics.values():
            if self.is_nobodys(topic.name):
                continue
            for index, image in topic.changed_partitions.items():
                self._partition_changed(PartitionKey(topic.name, index), topic.previous(index), image)

    def acked(self, key: PartitionKey, offset: int, value: bytes) -> None:
        """A client got an ack (acks=all) for its record at `offset`."""
        if self.is_nobodys(key.topic):
            return
        found = self._record(key, offset)
        self._findings.check(
            found is not None and found.value == value,
            lambda: f"{key}: {value!r} was acked at {offset}, where {found and found.value!r} is committed",
        )

    def read_committed(self, key: PartitionKey, node_id: int, upper_offset: int) -> None:
        """A replica gives a reader of committed records what lies below this offset."""
        if self.is_nobodys(key.topic):
            return
        first_open = self._of(key).producers.first_open
        self._findings.check(
            first_open is None or upper_offset <= first_open,
            lambda: (
                f"{key}: {node_id} gives readers of committed records what lies below {upper_offset}, and a transaction"
                f" that began at {first_open} has no marker yet"
            ),
        )

    def check_ended(self, key: PartitionKey, *, may_be_open: bool = False) -> None:
        """At the end, when all is quiet: every transaction has its marker. `may_be_open`: a client writes there that
        ends no transaction, and whose timeout is long."""
        if may_be_open or self.is_nobodys(key.topic):
            return
        for still_open in self._of(key).producers.open_ones():
            self._findings.report(f"{key}: {still_open}")

    def consumed(self, key: PartitionKey, offset: int, value: bytes | None) -> None:
        """A client was given this record; a tombstone as one with an empty value."""
        if self.is_nobodys(key.topic):
            return
        found = self._record(key, offset)
        self._findings.check(
            found is not None and (found.value or b"") == (value or b""),
            lambda: f"{key}: a consumer was given {value!r} at {offset}, where {found and found.value!r} is committed",
        )

    # ---- at the end, when all is quiet

    def check_replicas_equal(self, key: PartitionKey, node_ids: Iterable[int]) -> None:
        """Every replica holds the committed log, from its start to its end, and nothing else (RE-21)."""
        partition = self._of(key)
        for node_id in node_ids:
            replica = partition.replicas[node_id]
            replica.reader.forget()
            replica.verified = replica.log.local_log_start_offset
            self._verify(key, partition, node_id, partition.ghost.end_offset)
            end = replica.log.log_end_offset
            if end != partition.ghost.end_offset:
                self._findings.report(
                    f"{key}: {node_id} ends at {end}, committed is up to {partition.ghost.end_offset}"
                )
            if key.topic in COMPACTED_TOPICS and replica.log.local_log_start_offset == replica.log.log_start_offset:
                replica.reader.forget()
                left = replica.reader.batches(replica.log.log_start_offset, end)
                for record in missing(partition.ghost.batches, left):
                    self._findings.report(f"{key}: {node_id} lacks {record}, which holds for its key")

    # ---- inside

    def _of(self, key: PartitionKey) -> _Partition:
        partition = self._partitions.get(key)
        if partition is None:
            producers = ProducerPromises(self.first_sequence)
            partition = self._partitions[key] = _Partition(producers=producers)
        return partition

    def _record(self, key: PartitionKey, offset: int) -> Record | None:
        batch = self._of(key).ghost.at(offset)
        if batch is None:
            return None
        return next((record for record in decode_records(batch.data) if record.offset == offset), None)

    def _members(self, key: PartitionKey) -> tuple[int, ...]:
        """The brokers that must hold all that is committed, by the newest metadata."""
        image = self._image().topics.partition(key.topic, key.partition)
        return () if image is None else (*image.isr, *image.elr)

    def _verify(self, key: PartitionKey, partition: _Partition, node_id: int, up_to: int) -> None:
        """Compare a replica's log with the ghost, and let the ghost grow by what its high watermark covers."""
        replica = partition.replicas[node_id]
        # What was deleted from its beginning was committed: only that is deleted.
        deleted = min(replica.log.local_log_start_offset, partition.ghost.end_offset)
        if key.topic == SHARE_TOPIC:
            # Its records are deleted all the time, and a follower learns late of that.
            deleted = max(each.log.log_start_offset for each in partition.replicas.values())
        end = max(replica.verified, deleted)
        if end >= up_to:
            return
        compacted = key.topic in COMPACTED_TOPICS
        if compacted:
            replica.reader.forget_if_rolled()
        known = len(partition.ghost.batches)
        for batch in replica.reader.batches(end, up_to):
            wrong = partition.ghost.take(batch, is_rest if compacted else None)
            if wrong is None and batch.base_offset > end and not compacted:
                wrong = f"goes on with {batch} where {end} is next"
            if wrong is not None:
                self._findings.report(f"{key}: replica {node_id} {wrong}")
                return
            end = batch.next_offset
        for batch in partition.ghost.batches[known:]:
            broken = partition.producers.take(batch)
            if broken is not None:
                self._findings.report(f"{key}: {broken}")
        if compacted:
            end = max(end, min(up_to, replica.log.log_end_offset))
        self._findings.check(
            end >= up_to, lambda: f"{key}: replica {node_id} should have all below {up_to}, and has it below {end}"
        )
        replica.verified = end
        partition.trusted[node_id] = max(end, partition.trusted.get(node_id, 0))
        self._check_epochs(key, partition, node_id)

    def _check_epochs(self, key: PartitionKey, partition: _Partition, node_id: int) -> None:
        replica = partition.replicas[node_id]
        entries = replica.log.epochs.entries()
        rising = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
        self._findings.check(rising, lambda: f"{key}: the epochs of replica {node_id} do not rise: {entries}")
        if key.topic in COMPACTED_TOPICS:
            return  # who copied what was left of an epoch does not know where it began
        start = replica.log.log_start_offset
        if key.topic == SHARE_TOPIC:
            # Records before the oldest snapshot that is needed are deleted, maybe before the start is written down.
            start = max([start, *(offset for _, offset in entries[:1])])
        if start >= replica.verified:
            return  # nothing is left that they are about
        below = epochs_from([entry for entry in entries if entry[1] < replica.verified], start)
        ghost = epochs_from(partition.ghost.epochs_below(replica.verified), start)
        self._findings.check(
            below == ghost, lambda: f"{key}: replica {node_id} has the epochs {below}, what is committed has {ghost}"
        )

    def _check_kept(self, key: PartitionKey, partition: _Partition, node_id: int, when: str) -> None:
        end = partition.replicas[node_id].log.log_end_offset
        trusted = partition.trusted.get(node_id, 0)
        self._findings.check(
            end >= trusted, lambda: f"{key}: replica {node_id} had all below {trusted}, and ends at {end} {when}"
        )

    def _check_members(self, key: PartitionKey, partition: _Partition, members: Iterable[int], when: str) -> None:
        ghost_end = partition.ghost.end_offset
        for node_id in members:
            replica = partition.replicas.get(node_id)
            if node_id in self.lossy or ghost_end == 0:
                continue
            end = 0 if replica is None else replica.log.log_end_offset
            if end < ghost_end:
                self._findings.report(
                    f"{key}: {node_id} is in ISR or ELR and ends at {end}, below the committed {ghost_end}, {when}"
                )
            elif replica is not None:
                self._verify(key, partition, node_id, ghost_end)

    def _check_all(self, image: MetadataImage, broker_id: int) -> None:
        for key, partition in self._partitions.items():
            of_topic = image.topics.partition(key.topic, key.partition)
            if of_topic is not None and broker_id in (*of_topic.isr, *of_topic.elr):
                self._check_members(key, partition, (broker_id,), "after it registered")

    def _returned(self, image: MetadataImage, broker_id: int) -> None:
        for key, partition in self._partitions.items():
            of_topic = image.topics.partition(key.topic, key.partition)
            if of_topic is not None:
                partition.returned[broker_id] = of_topic.partition_epoch

    def _partition_changed(self, key: PartitionKey, before: PartitionImage | None, image: PartitionImage) -> None:
        self._membership.changed(key, before, image)
        if before is None:
            return
        self._check_members(key, self._of(key), (*image.isr, *image.elr), "when the metadata changed")
