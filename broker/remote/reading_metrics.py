"""Metrics of remote reads, under Kafka's names (`RemoteStorageMetrics`)."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.remote.reading import RemoteReading
from barnabas.runtime.families import Family

_TOPIC = "kafka_server_brokertopicmetrics_"
_MANAGER = "kafka_log_remote_remotelogmanager_"


def reading_families(reading: RemoteReading) -> Iterator[Family]:
    counts, states, queue = reading.reads.counts, reading.states, reading.reads.queue
    for name, text, by_topic in (
        ("remotefetchbytes", "Bytes read from remote segments for consumers.", counts.bytes_read),
        ("remotefetchrequests", "Reads of remote segments for consumers.", counts.requests),
        ("remotefetcherrors", "Failed reads of remote segments for consumers.", counts.errors),
        ("buildremotelogauxstaterequests", "States of logs asked for by followers.", states.builds),
        ("buildremotelogauxstateerrors", "States of logs that followers could not get.", states.failures),
    ):
        samples = [((topic,), count) for topic, count in sorted(by_topic.items())]
        yield Family("counter", _TOPIC + name, text, ("topic",), samples)
    yield Family.of("gauge", _MANAGER + "remotelogreadertaskqueuesize", "Remote reads that wait.", queue.waiting)
    text = "Share of the readers of remote segments that have nothing to do."
    yield Family.of("gauge", _MANAGER + "remotelogreaderavgidlepercent", text, queue.idle_share)
    text = "Fetches that were answered before all of their remote reads had ended."
    yield Family.of("counter", "kafka_server_delayedremotefetchmetrics_expires", text, counts.expired_fetches)
    text = "Requests for offsets by time that were answered before all remote look-ups had ended."
    yield Family.of("counter", "kafka_server_delayedremotelistoffsetsmetrics_expires", text, counts.expired_lookups)
    text = "Bytes of indexes of remote segments in memory."
    yield Family.of("gauge", "barnabas_remote_index_cache_bytes", text, reading.indexes.size_bytes)
