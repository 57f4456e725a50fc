"""Metrics of the share partitions that a broker leads, under Kafka's names (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.shares.led_partitions import LedSharePartitions
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.runtime.families import Family

_LABELS = ("group", "topic", "partition")
_TYPES = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)


def share_partition_families(partitions: LedSharePartitions) -> Iterator[Family]:
    events = partitions.events
    prefix = "kafka_server_sharegroupmetrics_"
    acknowledged = [((kind.name.capitalize(),), events.acknowledged[kind]) for kind in _TYPES]
    text = "Acknowledged records."
    yield Family("counter", prefix + "recordacknowledgements", text, ("ackType",), acknowledged)
    text = "Records that were copied to dead-letter topics."
    yield Family.of("counter", "barnabas_sharegroup_deadletters", text, events.dead_letters)
    text = "Failed attempts to write dead letters."
    yield Family.of("counter", "barnabas_sharegroup_deadletterfailures", text, events.dead_letter_failures)
    text = "Milliseconds until the state of a share partition was read."
    yield Family.of("histogram", prefix + "partitionloadtimems", text, events.loads)
    labelled = [
        ((led.key.group_id, led.partition.topic, str(led.key.partition)), led, led.core)
        for led in partitions
        if led.core is not None
    ]
    prefix = "kafka_server_sharepartitionmetrics_"
    samples = [(labels, led.lock_timeouts) for labels, led, _ in labelled]
    text = "Records whose acquisition lock expired."
    yield Family("counter", prefix + "acquisitionlocktimeout", text, _LABELS, samples)
    samples = [(labels, core.in_flight) for labels, _, core in labelled]
    yield Family("gauge", prefix + "inflightmessagecount", "Records in flight.", _LABELS, samples)
    samples = [(labels, core.batches_in_flight) for labels, _, core in labelled]
    yield Family("gauge", prefix + "inflightbatchcount", "Batches in flight.", _LABELS, samples)
