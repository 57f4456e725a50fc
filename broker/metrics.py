"""Metrics of a broker, under Kafka's names. Collected when `/metrics` is read; events are counted as they happen, in
plain numbers (`broker/traffic.py`). There may be very many partitions: they are counted in steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from barnabas.broker.coordinator_metrics import lag_families
from barnabas.broker.fetch_session import PartitionKey
from barnabas.broker.group_lag import GroupLag, GroupLags
from barnabas.broker.lifecycle import BrokerLifecycle, BrokerState
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.replication.fetcher import Fetchers
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.replication.throttles import ReplicationThrottles
from barnabas.broker.shares.lags import ShareLag, ShareLags, share_lag_families
from barnabas.broker.traffic import BytesOut, CleanerWork, Conversions
from barnabas.runtime.families import Family, Labels
from barnabas.runtime.metrics import metrics_page
from barnabas.runtime.observatory import Page
from barnabas.runtime.server import Server
from barnabas.runtime.world import Clock
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog

BROKER_STATES = {
    BrokerState.STARTING: 1,
    BrokerState.RUNNING: 3,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: 6,
    BrokerState.SHUTTING_DOWN: 7,
}
"""Kafka's numbers."""

Families = Callable[[], Iterable[Family | None]]
"""Families of a part; None ends a step."""

LOGS_IN_A_STEP = 1_000
"""Partitions or logs that are counted before other tasks run."""

T = TypeVar("T")


class BrokerMetrics:
    """The page `/metrics`: `measure` group lags, then `gather` all families."""

    def __init__(
        self, families: Sequence[Families], group_lags: GroupLags, share_lags: ShareLags, wall_clock: Clock
    ) -> None:
        """`families` are gathered in this order; the lag of groups comes last."""
        self._families = families
        self._group_lags = group_lags
        self._share_lags = share_lags
        self._wall_clock = wall_clock
        self._lags: Sequence[GroupLag] = ()
        self._lags_of_shares: Sequence[ShareLag] = ()

    async def measure(self) -> None:
        """Ask other brokers for the ends of their partitions."""
        self._lags = await self._group_lags.measure()
        self._lags_of_shares = await self._share_lags.measure()

    def gather(self) -> Iterator[Family | None]:
        lags, self._lags = self._lags, ()
        lags_of_shares, self._lags_of_shares = self._lags_of_shares, ()
        for families in self._families:
            yield from families()
        yield from lag_families(lags, self._wall_clock.now_ms())
        yield from share_lag_families(lags_of_shares)

    @property
    def page(self) -> Page:
        return metrics_page(self.gather, self.measure)


@dataclass(slots=True)
class _ReplicaCounts:
    counts: Counter[str]
    shrinks: int = 0
    expands: int = 0
    max_lag: int = 0


def _in_steps(counted: Iterable[T], count: Callable[[T], None]) -> Iterator[None]:
    """Count each of these as they are now."""
    for done, each in enumerate(list(counted), 1):
        count(each)
        if done % LOGS_IN_A_STEP == 0:
            yield None


def replica_families(
    partitions: Partitions, fetchers: Fetchers, metadata: MetadataCache
) -> Iterator[Family | None]:
    found = _ReplicaCounts(Counter())
    yield from _in_steps(partitions, partial(_count_replica, found, fetchers, metadata))
    for name, text in (
        ("partitioncount", "Replicas on this broker."),
        ("leadercount", "Partitions that this broker leads."),
        ("offlinereplicacount", "Replicas whose disk failed."),
        ("underreplicatedpartitions", "Led partitions whose replicas are not all in sync."),
        ("underminisrpartitioncount", "Led partitions with fewer in-sync replicas than min.insync.replicas."),
        ("atminisrpartitioncount", "Led partitions with exactly min.insync.replicas in-sync replicas."),
        ("reassigningpartitions", "Led partitions that are being reassigned."),
        ("produceridcount", "Producer ids in the logs of this broker, counted for each partition."),
    ):
        yield Family.of("gauge", f"kafka_server_replicamanager_{name}", text, found.counts[name])
    text = "Replicas that left the in-sync replicas of partitions that this broker leads."
    yield Family.of("counter", "kafka_server_replicamanager_isrshrinks", text, found.shrinks)
    text = "Replicas that joined them."
    yield Family.of("counter", "kafka_server_replicamanager_isrexpands", text, found.expands)
    name, text = "kafka_server_replicafetchermanager_maxlag", "Largest lag in records of a follower on this broker."
    yield Family("gauge", name, text, ("clientId",), [(("Replica",), found.max_lag)])


def throttle_families(throttles: ReplicationThrottles, monotonic: Clock) -> Iterator[Family]:
    """Bytes a second of the replication that is limited (KIP-73, KIP-113)."""
    now_ms = monotonic.now_ms()
    for name, quota, text in (
        ("leaderreplication", throttles.leader.quota, "Bytes a second of throttled replicas that this broker sends."),
        ("followerreplication", throttles.follower.quota, "Bytes a second of throttled replicas that it fetches."),
        ("alterlogdirsreplication", throttles.log_dirs, "Bytes a second that move between its log directories."),
    ):
        yield Family.of("gauge", f"kafka_server_{name}_byte_rate", text, quota.rate(now_ms))


def _count_replica(found: _ReplicaCounts, fetchers: Fetchers, metadata: MetadataCache, partition: Partition) -> None:
    counts = found.counts
    producers = partition.log.producers
    counts["produceridcount"] += 0 if producers is None else len(producers.entries)
    found.max_lag = max(found.max_lag, fetchers.lag(partition) or 0)
    counts["partitioncount"] += 1
    counts["offlinereplicacount"] += partition.is_offline
    found.shrinks += partition.traffic.isr_shrinks
    found.expands += partition.traffic.isr_expands
    if not partition.is_leader:
        return
    replica = partition.replica
    in_sync, min_isr = len(replica.isr), replica.min_isr
    counts["leadercount"] += 1
    placed = metadata.partition(partition.topic, partition.index)
    counts["reassigningpartitions"] += placed is not None and placed.is_reassigning
    counts["underreplicatedpartitions"] += in_sync < len(replica.replicas)
    counts["underminisrpartitioncount"] += in_sync < min_isr
    counts["atminisrpartitioncount"] += in_sync == min_isr


def traffic_families(
    partitions: Partitions, out: BytesOut, produced: Conversions, fetched: Conversions
) -> Iterator[Family | None]:
    messages: Counter[str] = Counter()
    size: Counter[str] = Counter()

    def count(partition: Partition) -> None:
        messages[partition.topic] += partition.traffic.messages_in
        size[partition.topic] += partition.traffic.bytes_in

    yield from _in_steps(partitions, count)
    prefix = "kafka_server_brokertopicmetrics_"
    for name, text, counts in (
        ("messagesin", "Records produced to this broker, by topic.", messages),
        ("bytesin", "Bytes of batches produced to this broker, by topic.", size),
    ):
        yield Family("counter", prefix + name, text, ("topic",), [((topic,), each) for topic, each in counts.items()])
    yield Family.of("counter", prefix + "bytesout", "Bytes sent to consumers.", out.to_consumers)
    yield Family.of("counter", prefix + "replicationbytesout", "Bytes sent to followers.", out.to_followers)
    text = "Records that were recompressed for their topic's compression.type, or converted from an older format."
    yield Family.of("counter", prefix + "producemessageconversions", text, produced.records)
    text = "Records that were converted for consumers of an older format."
    yield Family.of("counter", prefix + "fetchmessageconversions", text, fetched.records)
    name, text = "kafka_network_requestmetrics_messageconversionstimems", "Milliseconds of conversion, by task."
    spreads = [(("Produce",), produced.spread), (("Fetch",), fetched.spread)]
    yield Family("histogram", name, text, ("request",), spreads)


LogValue = Callable[[Partition], int | None]
"""None: the partition has no sample."""


def log_families(partitions: Partitions) -> Iterator[Family]:
    values: tuple[tuple[str, str, LogValue], ...] = (
        ("kafka_log_log_size", "Size of the log in bytes.", lambda each: each.log.size_bytes),
        ("kafka_log_log_logstartoffset", "Log start offset.", lambda each: each.log.log_start_offset),
        ("kafka_log_log_logendoffset", "Log end offset.", lambda each: each.log.log_end_offset),
        ("kafka_cluster_partition_highwatermark", "High watermark.", lambda each: each.replica.high_watermark),
        (
            "kafka_cluster_partition_laststableoffsetlag",
            "Offsets by which open transactions hold read_committed consumers back.",
            _held_back,
        ),
        (
            "kafka_cluster_partition_insyncreplicascount",
            "In-sync replicas of partitions that this broker leads.",
            lambda each: len(each.replica.isr) if each.is_leader else None,
        ),
    )
    for name, text, value in values:
        # Not a list: the event loop runs while the samples are rendered.
        yield Family("gauge", name, text, ("topic", "partition"), _log_samples(partitions, value))


def _held_back(partition: Partition) -> int | None:
    held_back = partition.log.high_watermark - partition.log.last_stable_offset
    return held_back if partition.is_leader and held_back > 0 else None


def _log_samples(partitions: Partitions, value: LogValue) -> Iterator[tuple[Labels, float]]:
    for each in partitions:
        sample = value(each)
        if sample is not None:
            yield (each.topic, str(each.index)), sample


def cleaner_families(directories: LogDirectories, work: CleanerWork) -> Iterator[Family | None]:
    logs: Counter[str] = Counter()
    size: Counter[str] = Counter()

    def count(log: PartitionLog) -> None:
        if log.cleaning.problem:
            directory = log.directory.rpartition("/")[0]
            logs[directory] += 1
            size[directory] += log.size_bytes

    yield from _in_steps(directories.logs.values(), count)
    paths = [directory.path for directory in directories.online]
    prefix = "kafka_log_logcleanermanager_"
    for name, text, counts in (
        ("uncleanable_partitions_count", "Logs that can no longer be compacted.", logs),
        ("uncleanable_bytes", "Size of the logs that can no longer be compacted.", size),
    ):
        yield Family("gauge", prefix + name, text, ("logDirectory",), [((path,), counts[path]) for path in paths])
    text = "The largest dirty part of a compacted log, in percent."
    yield Family.of("gauge", prefix + "max_dirty_percent", text, 100 * work.backlog.dirty_ratio)
    prefix = "kafka_log_logcleaner_"
    for name, text, last in (
        ("max_buffer_utilization_percent", "Fill level of the last map of keys, in percent.", work.map_utilization),
        ("cleaner_recopy_percent", "Bytes that the last compaction kept, in percent.", work.last_recopied),
        ("max_clean_time_secs", "Duration of the last compaction.", work.last_seconds),
        ("max_compaction_delay_secs", "Longest time beyond max.compaction.lag.ms.", work.backlog.overdue_ms / 1000),
    ):
        yield Family.of("gauge", prefix + name, text, last)
    for name, text, value in (
        ("cleanings", "Completed compactions of a log.", work.cleanings),
        ("cleaning_failures", "Failed compactions.", work.failures),
        ("cleaned_bytes", "Bytes of segments before compaction.", work.bytes_before),
        ("recopied_bytes", "Bytes of segments after compaction.", work.bytes_after),
        ("cleaning_seconds", "Seconds spent on compaction.", work.seconds),
    ):
        yield Family.of("counter", prefix + name, text, value)


def waiting_families(
    partitions: Partitions, fetches: Purgatory[PartitionKey], deletions: Purgatory[PartitionKey]
) -> Iterator[Family | None]:
    produces: Counter[str] = Counter()

    def count(partition: Partition) -> None:
        produces[partition.topic] += partition.waiting_acks

    yield from _in_steps(partitions, count)
    waiting = {"Produce": produces.total(), "Fetch": fetches.delayed, "DeleteRecords": deletions.delayed}
    name, text = "kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait in purgatory."
    yield Family("gauge", name, text, ("delayedOperation",), [((kind,), each) for kind, each in waiting.items()])


def broker_families(
    lifecycle: BrokerLifecycle, metadata: MetadataCache, server: Server, host: str | None
) -> Iterator[Family]:
    if host is not None:
        text = "1, with the host that this broker shares with others as a label."
        yield Family("gauge", "barnabas_host_info", text, ("host",), [((host,), 1)])
    text = "1 starting, 3 running, 6 pending controlled shutdown, 7 shutting down."
    yield Family.of("gauge", "kafka_server_kafkaserver_brokerstate", text, BROKER_STATES[lifecycle.state])
    text = "1 while the controllers may have fenced this broker."
    yield Family.of("gauge", "kafka_server_kafkaserver_fenced", text, int(lifecycle.may_be_fenced()))
    name = "kafka_server_brokermetadatametrics_last_applied_record_offset"
    yield Family.of("gauge", name, "Last applied offset of the metadata log.", metadata.image.offset)
    text = "Open connections."
    yield Family.of("gauge", "kafka_server_socketservermetrics_connection_count", text, server.connections)
