"""Connects the probes with the promises."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from barnabas.broker.apis.share_fetch import _ShareFetch
from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.reads import FetchKind, ReadRequest, ReadResult
from barnabas.broker.replication.replica import Leading
from barnabas.broker.shares.acquisition import Wanted
from barnabas.broker.shares.sessions import TopicPartition
from barnabas.broker.shares.state import SharePartitionKey, ShareState, ShareStateChange
from barnabas.client.groups.participant import Participant
from barnabas.cluster.simulated import SimulatedCluster, current_node
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.ready import AppendQuorumRecords, InstallSnapshot, Ready, StartSnapshot
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.messages.share_fetch import PartitionData
from barnabas.protocol.sasl.scram import ScramIdentity
from barnabas.runtime.request import Request
from barnabas.runtime.server_connection import ServerConnection
from barnabas.runtime.simulated import Universe
from barnabas.runtime.simulated.inode import Inode
from barnabas.storage.log import PartitionLog
from barnabas.storage.remote.segment import RemoteSegment
from rights import Tried
from simulation.coverage import Coverage
from simulation.findings import Findings
from simulation.ghosts import LogReader
from simulation.invariants.compaction import COMPACTED_TOPICS
from simulation.invariants.groups import Coordinator, GroupPromises
from simulation.invariants.partitions import PartitionPromises
from simulation.invariants.places import LeaderView, PartitionKey
from simulation.invariants.quorum import QuorumPromises, ReplicaView, VotersChange
from simulation.invariants.rights import RightsPromises
from simulation.invariants.shares import Asked, SharePromises
from simulation.invariants.storage import StoragePromises
from simulation.invariants.tiers import TierPromises
from simulation.probes import observed

FEWEST_VOTERS = 3
"""A voter may lose its disk if there are so many."""


class Watch:
    """All promises of one universe. An `Observer` of the probes."""

    def __init__(self, universe: Universe, findings: Findings, cluster: SimulatedCluster, coverage: Coverage) -> None:
        self._universe = universe
        self._findings = findings
        self._names = {node.node.id: name for name, node in cluster.nodes.items()}
        self._steps: dict[int, tuple[object, ...]] = {}
        self._places: dict[tuple[str, str, int], tuple[PartitionKey, int]] = {}
        self._led: dict[tuple[str, int, int], tuple[int, int, int, frozenset[int] | None]] = {}
        """Last state of each replica, as far as promises need it."""
        self._min_isr_of_nodes = cluster.controllers[0].settings.min_insync_replicas
        self.coverage = coverage
        self.quorum = QuorumPromises(findings, self._content, self._metadata_changed)
        self.partitions = PartitionPromises(findings, self._content, lambda: self.quorum.image, self.min_isr)
        self.storage = StoragePromises(findings, self._content)
        self.groups = GroupPromises(findings)
        self.rights = RightsPromises(findings)
        self.shares = SharePromises(findings)
        self.tiers = TierPromises(findings, self.partitions, self._object, self._content)
        self._nodes = cluster.nodes

    def _content(self, node_id: int, path: str) -> bytearray | None:
        entry = self._universe.disk(self._names[node_id]).find(path)
        return entry.cached if isinstance(entry, Inode) else None

    def _object(self, key: str) -> bytes | None:
        """An object of the one store of the universe."""
        found = (bucket.find(key) for bucket in self._universe.buckets.values())
        return next((each for each in found if each is not None), None)

    def min_isr(self, key: PartitionKey) -> int:
        configs = self.quorum.image.configs
        for resource in ((TOPIC_RESOURCE, key.topic), (BROKER_RESOURCE, "")):
            text = configs.get(resource, {}).get("min.insync.replicas")
            if text is not None:
                return int(text)
        return self._min_isr_of_nodes

    def _place(self, log: PartitionLog) -> tuple[PartitionKey, int]:
        """The partition and node of a log."""
        known = (log.directory, log.topic, log.partition)
        place = self._places.get(known)
        if place is None:
            place = self._places[known] = (PartitionKey(log.topic, log.partition), _node_of(log.directory))
        return place

    def broker_lost_something(self, node_id: int, *, whole_disk: bool, flushed_too: bool = False) -> None:
        """Its power is about to be cut, its files were damaged (`flushed_too`), or its disk is gone."""
        if whole_disk or flushed_too:
            self.storage.disk_lost(node_id)
        else:
            for key, log in self.partitions.logs_of(node_id):
                self.storage.power_goes(key, node_id, log)
        self.partitions.broker_lost_something(node_id)
        if whole_disk:
            self.quorum.disk_lost(node_id)

    def lost_voters(self) -> list[ReplicaKey]:
        """Replicas whose disks are gone, and that some replica of the metadata log counts among the voters."""
        known = [key for replica in self.coverage.replicas.values() for key in replica.core.voters.keys]
        return sorted({key for key in known if self.quorum.is_lost(key)})

    def has_voters_to_lose(self) -> bool:
        """Every controller has a log with three voters at least, and all of these have their disks."""
        replicas = [self.coverage.replicas.get(node.node.id) for node in self._nodes.values()]
        sets = [replica.core.voters.keys for replica in replicas if replica is not None]
        is_known = len(sets) == len(replicas) and all(len(keys) >= FEWEST_VOTERS for keys in sets)
        return is_known and not self.lost_voters()

    def check_replicas(self, key: PartitionKey, node_ids: Sequence[int]) -> None:
        """At the end, when all is quiet and every node runs."""
        self.partitions.check_replicas_equal(key, node_ids)
        for node_id in node_ids:
            log = self.partitions.log(key, node_id)
            assert isinstance(log, PartitionLog)
            self.storage.check_indexes(key, node_id, log.segments)
            if log.config.is_tiered:
                self.tiers.check_rest(key, node_id, log)
            if key.topic not in COMPACTED_TOPICS and log.local_log_start_offset == log.log_start_offset:
                start, end = log.log_start_offset, log.log_end_offset
                batches = LogReader(log, partial(self._content, node_id)).batches(start, end)
                self.storage.check_aborted(key, node_id, batches, log.aborted_transactions(start, end))

    def _metadata_changed(self, delta: MetadataDelta) -> None:
        self.partitions.metadata_changed(delta)
        for topic in delta.changed_topics.values():
            if topic.name == GROUP_TOPIC:
                for index, image in topic.changed_partitions.items():
                    self.groups.leads(index, image.leader)

    # ---- Observer

    def replica_stepped(self, replica: MetadataReplica, ready: Ready) -> None:
        core, log = replica.core, replica.log.partition_log
        if not self._universe.is_alive(self._names[core.local_id]):
            # The node was killed, maybe in the middle of a step. The failure of its requests is one more step of what
            # is left of it, which has no effect, and its log in memory is not what a power cut left on its disk.
            return
        self.coverage.replicas[core.local_id] = replica
        voted = getattr(core.role, "voted", None)
        seen = (
            core.local_key,
            core.is_voter,
            core.is_leader,
            core.epoch,
            core.leader_id,
            None if voted is None else voted.id,
            core.high_watermark,
            core.synced_end_offset,
            log,
            core.voters.keys,
        )
        # Most steps change nothing that a promise is about.
        state = (*seen, log.log_end_offset)
        loads = any(isinstance(step, StartSnapshot | InstallSnapshot) for step in ready.snapshot_steps)
        if ready.truncate_to is None and not loads and self._steps.get(core.local_id) == state:
            return
        self._steps[core.local_id] = state
        self.quorum.stepped(ReplicaView(*seen, loads_snapshot=loads), ready.truncate_to)
        if ready.append_quorum_records is not None:
            self._judge_change(core, ready.append_quorum_records)

    def _judge_change(self, core: Raft, appended: AppendQuorumRecords) -> None:
        for record in appended.records:
            if record.voters is None:
                continue
            before = core.voter_history.before(record.offset)
            change = VotersChange(appended.epoch, record.offset, before[1].keys, before[0], record.voters.keys)
            self.quorum.voters_changed(change)

    def snapshot_published(self, path: str) -> None:
        self.quorum.snapshot_published(_node_of(path), path)

    def metadata_applied(self, loader: MetadataLoader, image: MetadataImage) -> None:
        if loader is not self.quorum.loader:
            self.quorum.applied(current_node.get(), image)

    def log_opened(self, log: PartitionLog, *, recovered: bool) -> None:
        place = self._place(log)
        self.storage.opened(*place, log)
        self.partitions.opened(*place, log)
        self.storage.check_indexes(*place, log.segments)
        if recovered:
            self._findings.count("log recoveries")

    def high_watermark_set(self, log: PartitionLog) -> None:
        self.partitions.high_watermark_moved(*self._place(log), log)

    def log_truncated(self, log: PartitionLog, *, records: int) -> None:
        if records > 0:
            self._findings.count("log truncations")
        place = self._place(log)
        self.partitions.truncated(*place, log)
        self.storage.check_indexes(*place, log.segments)

    def local_start_moved(self, log: PartitionLog, before: int) -> None:
        self.tiers.local_start_moved(*self._place(log), log, before)

    def began_behind_remote(self, log: PartitionLog) -> None:
        self.tiers.began_behind_remote(*self._place(log), log)

    def copy_begun(self, segment: RemoteSegment) -> None:
        self.tiers.copy_begins(segment)

    def partition_changed(self, partition: Partition) -> None:
        replica = partition.replica
        role = replica.role
        # Most changes change nothing that a promise is about.
        place = (partition.topic, partition.index, replica.node_id)
        maximal_isr = role.maximal_isr if isinstance(role, Leading) else None
        seen = (replica.leader_epoch, replica.partition_epoch, replica.high_watermark, maximal_isr)
        before = self._led.get(place)
        if before == seen:
            return
        self._led[place] = seen
        key = PartitionKey(partition.topic, partition.index)
        led_with = maximal_isr
        if before is not None and before[0] == replica.leader_epoch:
            # Its disk may have failed in the turn in which it moved its high watermark, as the leader of this epoch.
            led_with = maximal_isr or before[3]
        if led_with is not None:
            where = (replica.node_id, replica.leader_epoch, replica.partition_epoch)
            self.partitions.leads(key, LeaderView(*where, replica.high_watermark, led_with))
        if maximal_isr is None:
            self.partitions.follows(key, replica.node_id, replica.leader_epoch, replica.high_watermark)

    def partition_read(self, partition: Partition, request: ReadRequest, result: ReadResult) -> None:
        if request.kind is FetchKind.READ_COMMITTED and result.records is not None:
            key = PartitionKey(partition.topic, partition.index)
            self.partitions.read_committed(key, partition.replica.node_id, result.records.upper_offset)

    def request_begun(self, connection: ServerConnection) -> None:
        self._findings.check(
            not connection.closed,
            lambda: f"a request from {connection.peer_host} was begun after its connection was closed",
        )

    def rights_decided(self, request: Request, tried: Tried, *, allowed: bool) -> None:
        node = self._nodes.get(current_node.get())
        if node is not None and node.broker is not None:
            self.rights.decided(node.broker, request, tried, allowed=allowed)

    def user_identified(self, user: str, identity: ScramIdentity | None) -> None:
        node = self._nodes.get(current_node.get())
        if node is not None and node.broker is not None:
            self.rights.identified(node.broker, user, identity)

    def records_acquired(self, fetch: _ShareFetch, key: TopicPartition, wanted: Wanted, data: PartitionData) -> None:
        now_ms, lock_ms = fetch._ports.monotonic.now_ms(), fetch._configs.terms.lock_ms
        self.shares.acquired(fetch._led[key], (now_ms, now_ms + lock_ms), wanted, data.acquired_records)

    def renewal_asked(self, key: SharePartitionKey, ranges: Sequence[tuple[int, int]]) -> None:
        self.shares.renewal_asked(key, ranges)

    def share_write_asked(self, key: SharePartitionKey, change: ShareStateChange) -> Asked:
        return self.shares.write_asked(key, change)

    def share_written(self, key: SharePartitionKey, change: ShareStateChange, asked: Asked) -> None:
        self.shares.written(key, change, asked)

    def share_read(self, key: SharePartitionKey, leader_epoch: int, state: ShareState) -> None:
        self.shares.read(key, leader_epoch, state)

    def member_heard(self, participant: Participant) -> None:
        index = partition_for(participant.group_id, len(self.quorum.image.topics.by_name[GROUP_TOPIC].partitions))
        node_id, unheard_ms = participant.heard_by, participant.unheard_ms()
        assert node_id is not None
        if not self.groups.heard(current_node.get(), Coordinator(index, node_id), unheard_ms):
            self._findings.count("answers of deposed coordinators to members")


def _node_of(path: str) -> int:
    """Paths begin with the node's name: `/broker-1/data/…`."""
    return int(path.split("/", 2)[1].rpartition("-")[2])


class NodeLog(logging.Handler):
    """Notes what nodes of this thread log at ERROR together with an exception, and keeps their last words."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(logging.WARNING)
        self._universe = universe
        self._thread = threading.get_ident()
        self.lines: list[str] = []
        self.errors: list[tuple[str, str, BaseException | None]] = []
        """(node, message, exception)"""

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        node = current_node.get()
        message = f"{self._universe.time.now:10.3f} {node:15} {record.levelname:7} {record.name}: {record.getMessage()}"
        self.lines.append(message)
        if record.levelno >= logging.ERROR and record.exc_info:
            self.errors.append((node, message, record.exc_info[1]))


@contextmanager
def watching(watch: Watch, node_log: NodeLog, level: int = logging.WARNING) -> Iterator[None]:
    """Everything that happens in this thread is the universe's, for the length of the block."""
    root = logging.getLogger()
    before, handlers = root.level, root.handlers[:]
    root.handlers[:] = [node_log]
    root.setLevel(level)
    node_log.setLevel(level)
    try:
        with observed(watch):
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(before)
