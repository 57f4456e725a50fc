"""Metrics of a broker, named as Kafka's. Gathered when somebody asks; what has to be counted as it happens is counted
in plain numbers (`broker/traffic.py`) by whoever does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from broker.coordinator_metrics import group_families, lag_families, transaction_families
from broker.group_lag import GroupLag, GroupLags
from broker.lifecycle import BrokerState
from broker.replication.partition import Partition
from broker.services import BrokerServices
from kraft.metadata_replica import MetadataReplica
from kraft.raft_metrics import raft_families
from runtime.dispatch import Dispatcher
from runtime.metrics import (
    BusyClock,
    Family,
    busy_families,
    metrics_page,
    process_families,
    request_families,
    server_families,
    space_families,
)
from runtime.observatory import Page
from runtime.server import Server

BROKER_STATES = {
    BrokerState.STARTING: 1,
    BrokerState.RUNNING: 3,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: 6,
    BrokerState.SHUTTING_DOWN: 7,
}
"""Kafka's numbers."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a broker is asked for."""

    services: BrokerServices
    replica: MetadataReplica
    dispatcher: Dispatcher
    server: Server


class BrokerMetrics:
    """What `/metrics` of a broker tells: first `look`, then `gather`."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._group_lags = GroupLags(sources.services)
        self._lags: Sequence[GroupLag] = ()
        self._busy = BusyClock(sources.services.world)

    async def look(self) -> None:
        """Ask for what others know."""
        self._lags = await self._group_lags.look()

    def gather(self) -> Iterator[Family]:
        sources = self._sources
        broker = sources.services
        partitions = list(broker.partitions)
        lags, self._lags = self._lags, ()
        yield from _replica_manager(broker, partitions)
        yield from _traffic(broker, partitions)
        yield from _logs(partitions)
        yield from _cleaner(broker, partitions)
        yield from _waiting(broker, partitions)
        yield from group_families(broker)
        yield from lag_families(lags, broker.world.wall_clock.now_ms())
        yield from transaction_families(broker)
        if broker.telemetry is not None:
            yield from broker.telemetry.families(broker.world.monotonic.now_ms())
        yield from _broker(broker, sources.server)
        yield from raft_families(sources.replica)
        yield from request_families(sources.dispatcher.counters)
        yield from server_families(sources.server)
        yield from busy_families(self._busy)
        yield from process_families(broker.world)
        yield from space_families(broker.world.disk, [it.path for it in broker.store.directories.online])

    @property
    def page(self) -> Page:
        return metrics_page(self.gather, self.look)


def _replica_manager(broker: BrokerServices, partitions: Iterable[Partition]) -> Iterator[Family]:
    counts: Counter[str] = Counter()
    shrinks = expands = max_lag = 0
    for partition in partitions:
        producers = partition.log.producers
        counts["produceridcount"] += 0 if producers is None else len(producers.entries)
        max_lag = max(max_lag, broker.fetchers.lag(partition) or 0)
        counts["partitioncount"] += 1
        counts["offlinereplicacount"] += partition.is_offline
        shrinks += partition.traffic.isr_shrinks
        expands += partition.traffic.isr_expands
        if not partition.is_leader:
            continue
        replica = partition.replica
        in_sync, min_isr = len(replica.isr), replica.min_isr
        counts["leadercount"] += 1
        placed = broker.metadata.partition(partition.topic, partition.index)
        counts["reassigningpartitions"] += placed is not None and placed.is_reassigning
        counts["underreplicatedpartitions"] += in_sync < len(replica.replicas)
        counts["underminisrpartitioncount"] += in_sync < min_isr
        counts["atminisrpartitioncount"] += in_sync == min_isr
    for name, told in (
        ("partitioncount", "Replicas on this broker."),
        ("leadercount", "Partitions that it leads."),
        ("offlinereplicacount", "Replicas whose disk failed."),
        ("underreplicatedpartitions", "Led here, and not all replicas are in sync."),
        ("underminisrpartitioncount", "Led here, with fewer in sync than min.insync.replicas."),
        ("atminisrpartitioncount", "Led here, with no more in sync than min.insync.replicas."),
        ("reassigningpartitions", "Led here, and being moved."),
        ("produceridcount", "Producers that the logs on this broker know, each in each partition."),
    ):
        yield Family.of("gauge", f"kafka_server_replicamanager_{name}", told, counts[name])
    told = "Replicas that left in-sync replicas of partitions that are led here."
    yield Family.of("counter", "kafka_server_replicamanager_isrshrinks", told, shrinks)
    told = "Replicas that came back into them."
    yield Family.of("counter", "kafka_server_replicamanager_isrexpands", told, expands)
    told = "Records that the follower here which is furthest behind its leader does not have."
    yield Family("gauge", "kafka_server_replicafetchermanager_maxlag", told, ("clientId",), [(("Replica",), max_lag)])


def _traffic(broker: BrokerServices, partitions: Iterable[Partition]) -> Iterator[Family]:
    messages: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for partition in partitions:
        messages[partition.topic] += partition.traffic.messages_in
        size[partition.topic] += partition.traffic.bytes_in
    prefix = "kafka_server_brokertopicmetrics_"
    for name, told, counts in (
        ("messagesin", "Records that were written here, by topic.", messages),
        ("bytesin", "Bytes of batches that were written here, by topic.", size),
    ):
        yield Family("counter", prefix + name, told, ("topic",), [((topic,), each) for topic, each in counts.items()])
    out = broker.bytes_out
    yield Family.of("counter", prefix + "bytesout", "Bytes that consumers were given.", out.to_consumers)
    told = "Bytes that followers were given."
    yield Family.of("counter", prefix + "replicationbytesout", told, out.to_followers)
    told = "Records that were written in another compression than they came in, because their topic has one of its own."
    yield Family.of("counter", prefix + "producemessageconversions", told, broker.conversions.records)
    name, told = "kafka_network_requestmetrics_messageconversionstimems", "Milliseconds that this took, for each batch."
    yield Family("histogram", name, told, ("request",), [(("Produce",), broker.conversions.spread)])


LogValue = Callable[[Partition], int]


def _logs(partitions: Iterable[Partition]) -> Iterator[Family]:
    labelled = [((each.topic, str(each.index)), each) for each in partitions]
    values: tuple[tuple[str, str, LogValue], ...] = (
        ("kafka_log_log_size", "Bytes of the log.", lambda each: each.log.size_bytes),
        ("kafka_log_log_logstartoffset", "Where it begins.", lambda each: each.log.log_start_offset),
        ("kafka_log_log_logendoffset", "Where it ends.", lambda each: each.log.log_end_offset),
        ("kafka_cluster_partition_highwatermark", "What is committed.", lambda each: each.replica.high_watermark),
    )
    for name, told, value in values:
        yield Family("gauge", name, told, ("topic", "partition"), [(key, value(each)) for key, each in labelled])
    held = [(key, each.log.high_watermark - each.log.last_stable_offset) for key, each in labelled if each.is_leader]
    name, told = "kafka_cluster_partition_laststableoffsetlag", "Offsets that open transactions hold readers back by."
    yield Family("gauge", name, told, ("topic", "partition"), [(key, by) for key, by in held if by > 0])
    led = [(key, len(each.replica.isr)) for key, each in labelled if each.is_leader]
    told = "Replicas in sync, of partitions that are led here."
    yield Family("gauge", "kafka_cluster_partition_insyncreplicascount", told, ("topic", "partition"), led)


def _cleaner(broker: BrokerServices, partitions: Iterable[Partition]) -> Iterator[Family]:
    work = broker.cleaner_work
    uncleanable = Counter(
        partition.log.directory.rpartition("/")[0] for partition in partitions if partition.log.cleaning.problem
    )
    name, told = "kafka_log_logcleanermanager_uncleanable_partitions_count", "Logs whose compaction was given up."
    directories = [(directory.path,) for directory in broker.store.directories.online]
    yield Family("gauge", name, told, ("logDirectory",), [(each, uncleanable[each[0]]) for each in directories])
    prefix = "kafka_log_logcleaner_"
    for name, told, value in (
        ("cleanings", "Compactions of a log that were done.", work.cleanings),
        ("cleaning_failures", "Compactions that failed.", work.failures),
        ("cleaned_bytes", "Bytes that were compacted.", work.bytes_before),
        ("recopied_bytes", "Bytes that were left of them.", work.bytes_after),
        ("cleaning_seconds", "How long that took.", work.seconds),
    ):
        yield Family.of("counter", prefix + name, told, value)
    told = "How full the map of keys was at last, in percent."
    yield Family.of("gauge", prefix + "max_buffer_utilization_percent", told, 100 * work.map_utilization)


def _waiting(broker: BrokerServices, partitions: Iterable[Partition]) -> Iterator[Family]:
    produces = sum(partition.waiting_acks for partition in partitions)
    waiting = {"Produce": produces, "Fetch": broker.fetches.delayed, "DeleteRecords": broker.deletions.delayed}
    name, told = "kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait for something to happen."
    yield Family("gauge", name, told, ("delayedOperation",), [((kind,), each) for kind, each in waiting.items()])


def _broker(broker: BrokerServices, server: Server) -> Iterator[Family]:
    state = BROKER_STATES[broker.lifecycle.state]
    told = "1 starting, 3 running, 6 asks to shut down, 7 shuts down."
    yield Family.of("gauge", "kafka_server_kafkaserver_brokerstate", told, state)
    told = "1 while the controllers may have fenced this broker."
    yield Family.of("gauge", "kafka_server_kafkaserver_fenced", told, int(broker.lifecycle.may_be_fenced()))
    name, told = "kafka_server_brokermetadatametrics_last_applied_record_offset", "How far it has the metadata log."
    yield Family.of("gauge", name, told, broker.metadata.image.offset)
    told = "Connections that are open."
    yield Family.of("gauge", "kafka_server_socketservermetrics_connection_count", told, server.connections)
