"""Metrics of tiered storage on one broker, under Kafka's names (`RemoteStorageMetrics`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from barnabas.broker.remote.tended import Tended
from barnabas.broker.remote.traffic import PartitionGauges, RemoteTraffic
from barnabas.runtime.families import Family

_PREFIX = "kafka_server_brokertopicmetrics_"
_COMPACTION = "barnabas_remote_compaction_"
"""Kafka compacts nothing that is remote."""

Gauge = Callable[[PartitionGauges], int]

_GAUGES: tuple[tuple[str, str, Gauge], ...] = (
    ("remotecopylagbytes", "Bytes of closed segments that are not remote yet.", lambda it: it.copy_lag_bytes),
    ("remotecopylagsegments", "Closed segments that are not remote yet.", lambda it: it.copy_lag_segments),
    ("remotedeletelagbytes", "Bytes of remote segments that are to be deleted.", lambda it: it.delete_lag_bytes),
    ("remotedeletelagsegments", "Remote segments that are to be deleted.", lambda it: it.delete_lag_segments),
    ("remotelogmetadatacount", "Remote segments that the metadata knows.", lambda it: it.known_segments),
    ("remotelogsizebytes", "Bytes of readable remote segments.", lambda it: it.remote_bytes),
    ("remotelogsizecomputationtime", "Milliseconds of the last decision about expiry.", lambda it: it.computation_ms),
)


def remote_families(traffic: RemoteTraffic, tended: Iterable[Tended], idle_share: float) -> Iterator[Family]:
    """Counters and gauges of led partitions, by topic. `idle_share`: the part of the copiers that has nothing to do."""
    for name, text, counts in (
        ("remotecopybytes", "Bytes copied to the remote store.", traffic.copied_bytes),
        ("remotecopyrequests", "Attempts to copy a segment.", traffic.copies),
        ("remotecopyerrors", "Failed attempts to copy a segment.", traffic.failed_copies),
        ("remotedeleterequests", "Attempts to delete a remote segment.", traffic.deletions),
        ("remotedeleteerrors", "Failed attempts to delete a remote segment.", traffic.failed_deletions),
    ):
        samples = [((topic,), count) for topic, count in sorted(counts.items())]
        yield Family("counter", _PREFIX + name, text, ("topic",), samples)
    by_topic: dict[str, Counter[str]] = {name: Counter() for name, _, _ in _GAUGES}
    for each in tended:
        if each.partition.is_leader:
            for name, _, value in _GAUGES:
                by_topic[name][each.key.topic] += value(each.gauges)
    for name, text, _ in _GAUGES:
        samples = [((topic,), count) for topic, count in sorted(by_topic[name].items())]
        yield Family("gauge", _PREFIX + name, text, ("topic",), samples)
    yield from _compaction_families(traffic, tended)
    name = "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent"
    yield Family.of("gauge", name, "Share of the copiers that have nothing to do.", idle_share)
    text = "Milliseconds for which copies waited for remote.log.manager.copy.max.bytes.per.second."
    yield Family.of("counter", "kafka_server_remotelogmanager_remote_copy_throttle_time", text, traffic.throttled_ms)


def _compaction_families(traffic: RemoteTraffic, tended: Iterable[Tended]) -> Iterator[Family]:
    """The same for what is compacted in the store."""
    seconds = {topic: spent_ms / 1000 for topic, spent_ms in traffic.pass_ms.items()}
    for name, text, counts in (
        ("passes", "Completed passes of compaction over remote segments.", traffic.passes),
        ("errors", "Passes that an error ended.", traffic.failed_passes),
        ("replaced_bytes", "Bytes of remote segments before compaction.", traffic.replaced_bytes),
        ("stored_bytes", "Bytes of the segments that replaced them.", traffic.replacing_bytes),
        ("seconds", "Seconds spent on passes.", seconds),
    ):
        samples = [((topic,), count) for topic, count in sorted(counts.items())]
        yield Family("counter", _COMPACTION + name, text, ("topic",), samples)
    dirtiest: dict[str, float] = {}
    for each in tended:
        if each.partition.is_leader and each.partition.log.config.compacts:
            topic = each.key.topic
            dirtiest[topic] = max(dirtiest.get(topic, 0.0), 100 * each.gauges.dirty_share)
    text = "The largest part of a partition's remote bytes that was copied since its last pass, in percent."
    samples = [((topic,), percent) for topic, percent in sorted(dirtiest.items())]
    yield Family("gauge", _COMPACTION + "max_dirty_percent", text, ("topic",), samples)
