"""Metrics of a broker, named as Kafka's. Gathered when somebody asks; what has to be counted as it happens is counted
by partitions (`Partition.traffic`), the dispatcher and `BrokerServices.bytes_out`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from broker.lifecycle import BrokerState
from broker.replication.partition import Partition
from broker.services import BrokerServices
from kraft.metadata_replica import MetadataReplica
from kraft.raft_metrics import raft_families
from runtime.dispatch import Dispatcher
from runtime.metrics import Family, Gather, process_families, request_families
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


def broker_metrics(sources: Sources) -> Gather:
    """What `/metrics` of a broker tells."""

    def gather() -> Iterator[Family]:
        broker = sources.services
        partitions = list(broker.partitions)
        yield from _replica_manager(partitions)
        yield from _traffic(broker, partitions)
        yield from _logs(partitions)
        yield from _waiting(broker, partitions)
        yield from _groups(broker)
        yield from _broker(broker, sources.server)
        yield from raft_families(sources.replica)
        yield from request_families(sources.dispatcher.counters)
        yield from process_families(broker.world)

    return gather


def _replica_manager(partitions: Iterable[Partition]) -> Iterator[Family]:
    counts: Counter[str] = Counter()
    shrinks = expands = 0
    for partition in partitions:
        counts["partitioncount"] += 1
        counts["offlinereplicacount"] += partition.is_offline
        shrinks += partition.traffic.isr_shrinks
        expands += partition.traffic.isr_expands
        if not partition.is_leader:
            continue
        replica = partition.replica
        in_sync, min_isr = len(replica.isr), replica.min_isr
        counts["leadercount"] += 1
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
    ):
        yield Family.of("gauge", f"kafka_server_replicamanager_{name}", told, counts[name])
    told = "Replicas that left in-sync replicas of partitions that are led here."
    yield Family.of("counter", "kafka_server_replicamanager_isrshrinks", told, shrinks)
    told = "Replicas that came back into them."
    yield Family.of("counter", "kafka_server_replicamanager_isrexpands", told, expands)


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
    led = [(key, len(each.replica.isr)) for key, each in labelled if each.is_leader]
    told = "Replicas in sync, of partitions that are led here."
    yield Family("gauge", "kafka_cluster_partition_insyncreplicascount", told, ("topic", "partition"), led)


def _waiting(broker: BrokerServices, partitions: Iterable[Partition]) -> Iterator[Family]:
    produces = sum(partition.waiting_acks for partition in partitions)
    waiting = {"Produce": produces, "Fetch": broker.fetches.delayed, "DeleteRecords": broker.deletions.delayed}
    name, told = "kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait for something to happen."
    yield Family("gauge", name, told, ("delayedOperation",), [((kind,), each) for kind, each in waiting.items()])


def _groups(broker: BrokerServices) -> Iterator[Family]:
    states: Counter[tuple[str, str]] = Counter()
    for shard in broker.groups.shards:
        for group in shard.machine.offsets.all_groups():
            states[group.type.value, group.state_name()] += 1
    name, told = "kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups that are coordinated here."
    yield Family("gauge", name, told, ("protocol", "state"), sorted(states.items()))


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
