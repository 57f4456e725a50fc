"""Ties the probes to the promises: whose log it is, and which numbers the promises want of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.cluster.simulated import SimulatedCluster, current_node
from barnabas.cluster.simulation.findings import Findings
from barnabas.cluster.simulation.invariants.groups import GroupPromises
from barnabas.cluster.simulation.invariants.partitions import LeaderView, PartitionKey, PartitionPromises
from barnabas.cluster.simulation.invariants.quorum import QuorumPromises, ReplicaView
from barnabas.cluster.simulation.invariants.transactions import TransactionPromises
from barnabas.cluster.simulation.probes import observed
from broker.replication.partition import Partition
from broker.replication.replica import Leading
from kraft.metadata.delta import MetadataDelta
from kraft.metadata.image import MetadataImage
from kraft.metadata.loader import MetadataLoader
from kraft.metadata_replica import MetadataReplica
from kraft.raft.ready import Ready
from runtime.simulated import Universe
from runtime.simulated.inode import Inode
from storage.log import PartitionLog


class Watch:
    """All promises of one universe. An `Observer` of the probes."""

    def __init__(self, universe: Universe, findings: Findings, cluster: SimulatedCluster) -> None:
        self._universe = universe
        self._findings = findings
        self._names = {node.node.id: name for name, node in cluster.nodes.items()}
        self._steps: dict[int, tuple[object, ...]] = {}
        self._places: dict[tuple[str, str, int], tuple[PartitionKey, int]] = {}
        self._led: dict[tuple[str, int, int], tuple[int, int]] = {}
        """Of each replica that leads: its epoch and its high watermark, as they were last."""
        voters = len(cluster.controllers)
        self.quorum = QuorumPromises(findings, self._content, self._metadata_changed, voters)
        self.partitions = PartitionPromises(findings, self._content, lambda: self.quorum.image)
        self.groups = GroupPromises(findings)
        self.transactions = TransactionPromises(findings)

    def _content(self, node_id: int, path: str) -> bytearray | None:
        entry = self._universe.disk(self._names[node_id]).find(path)
        return entry.cached if isinstance(entry, Inode) else None

    def _place(self, log: PartitionLog) -> tuple[PartitionKey, int]:
        """Whose log it is. Paths begin with the node's name: `/broker-1/data/…`."""
        known = (log.directory, log.topic, log.partition)
        place = self._places.get(known)
        if place is None:
            node_id = int(log.directory.split("/", 2)[1].rpartition("-")[2])
            place = self._places[known] = (PartitionKey(log.topic, log.partition), node_id)
        return place

    def broker_lost_something(self, node_id: int, *, whole_disk: bool) -> None:
        self.partitions.broker_lost_something(node_id)
        if whole_disk:
            self.quorum.disk_lost(node_id)

    def _metadata_changed(self, delta: MetadataDelta) -> None:
        self.partitions.metadata_changed(delta)

    # ---- Observer

    def replica_stepped(self, replica: MetadataReplica, ready: Ready) -> None:
        core, log = replica.core, replica.log.partition_log
        voted = getattr(core.role, "voted", None)
        seen = (
            core.local_id,
            core.is_voter,
            core.is_leader,
            core.epoch,
            core.leader_id,
            None if voted is None else voted.id,
            core.high_watermark,
            core.synced_end_offset,
            log,
        )
        # Most steps change nothing that a promise is about.
        state = (*seen, log.log_end_offset)
        if ready.truncate_to is None and self._steps.get(core.local_id) == state:
            return
        self._steps[core.local_id] = state
        self.quorum.stepped(ReplicaView(*seen), ready.truncate_to)

    def metadata_applied(self, loader: MetadataLoader, image: MetadataImage) -> None:
        if loader is not self.quorum.loader:
            self.quorum.applied(current_node.get(), image)

    def log_opened(self, log: PartitionLog, *, recovered: bool) -> None:
        self.partitions.opened(*self._place(log), log)
        if recovered:
            self._findings.count("log recoveries")

    def high_watermark_set(self, log: PartitionLog) -> None:
        self.partitions.high_watermark_moved(*self._place(log), log)

    def log_truncated(self, log: PartitionLog, *, records: int) -> None:
        if records > 0:
            self._findings.count("log truncations")
        self.partitions.truncated(*self._place(log), log)

    def partition_changed(self, partition: Partition) -> None:
        replica = partition.replica
        role = replica.role
        if isinstance(role, Leading):
            # Most changes change nothing that a promise is about.
            place = (partition.topic, partition.index, replica.node_id)
            seen = (replica.leader_epoch, replica.high_watermark)
            if self._led.get(place) == seen:
                return
            self._led[place] = seen
            self.partitions.leads(
                PartitionKey(partition.topic, partition.index),
                LeaderView(
                    replica.node_id,
                    replica.leader_epoch,
                    replica.partition_epoch,
                    replica.high_watermark,
                    role.maximal_isr,
                ),
            )


class NodeLog(logging.Handler):
    """Notes what nodes log at ERROR together with an exception, and keeps their last words."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(logging.WARNING)
        self._universe = universe
        self.lines: list[str] = []
        self.errors: list[tuple[str, str, BaseException | None]] = []
        """(node, message, exception)"""

    def emit(self, record: logging.LogRecord) -> None:
        node = current_node.get()
        message = f"{self._universe.time.now:10.3f} {node:15} {record.levelname:7} {record.name}: {record.getMessage()}"
        self.lines.append(message)
        if record.levelno >= logging.ERROR and record.exc_info:
            self.errors.append((node, message, record.exc_info[1]))


@contextmanager
def watching(watch: Watch, node_log: NodeLog, level: int = logging.WARNING) -> Iterator[None]:
    """Everything that happens in this process is the universe's, for the length of the block."""
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
