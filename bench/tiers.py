"""Loads on tiered topics, on any cluster that speaks the Kafka protocol and has tiered storage.

`tiers.copy` is the rate at which closed segments of a full topic go to the remote store; `tiers.read` the rate of one
consumer of librdkafka that reads them from there; `tiers.tail.quiet` the 99th percentile of the time from `produce` of
one record to its consumer, 200 records a second, and `tiers.tail` the same while two consumers read old records.

Usage: tiers.py --bootstrap H:P,… [--pids CMD] [--out F] [--only REGEX] [--mib N] …
"""

from __future__ import annotations

import argparse
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from group_members import Cluster, Load, Measured, fill, measure_all, settings, unique, wait_until
from measuring import Results, percentile

from barnabas.client.admin import OffsetSpec
from barnabas.sync import Admin

PARTITIONS = 3
VALUE_BYTES = 1_000
SEGMENT_BYTES = 8 << 20
TAIL_PER_SECOND = 200
READERS = 2
PATIENCE_S = 180.0
TIERED = {
    "min.insync.replicas": "2",
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    # Everything that is remote leaves the disks of the brokers, so that old records are read from the store.
    "local.retention.bytes": "1",
}


class Tiers:
    """The cluster, and a topic whose closed segments are remote."""

    def __init__(self, cluster: Cluster, admin: Admin, size_bytes: int) -> None:
        self.cluster = cluster
        self._admin = admin
        self._size_bytes = size_bytes

    @contextmanager
    def topic(self, **more: str) -> Iterator[str]:
        name, admin = unique("bt"), self.cluster.admin
        new = NewTopic(name, PARTITIONS, 3, config={**TIERED, **more})
        admin.create_topics([new], operation_timeout=60, request_timeout=60)[name].result()
        self.cluster.wait_in_sync(name, PARTITIONS)
        try:
            yield name
        finally:
            admin.delete_topics([name], operation_timeout=60, request_timeout=60)[name].result()

    def fill(self, topic: str) -> None:
        """Random values, so that nothing along the way can make them smaller."""
        count, value = self._size_bytes // VALUE_BYTES, os.urandom(VALUE_BYTES)
        fill(self.cluster.bootstrap, topic, count, value, PARTITIONS)

    def begin_copies(self, topic: str) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (("remote.log.copy.disable", "false"), ("local.retention.bytes", "1"))
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        self.cluster.admin.incremental_alter_configs([resource])[resource].result()

    def copied(self, topic: str) -> int:
        """Records that are in the store, over all partitions."""
        return sum(end + 1 for end in self._offsets(topic, OffsetSpec.latest_tiered()).values() if end >= 0)

    def closed(self, topic: str) -> int:
        """Records of segments that will be copied, at least: the last of a partition stays open."""
        in_a_segment = SEGMENT_BYTES // VALUE_BYTES
        ends = self._offsets(topic, OffsetSpec.latest()).values()
        return sum(max(0, end - in_a_segment) for end in ends)

    def only_remote(self, topic: str) -> dict[int, int]:
        """The end of what no broker has on its disk, by partition."""
        return self._offsets(topic, OffsetSpec.earliest_local())

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        found = self._admin.list_offsets({(topic, index): spec for index in range(PARTITIONS)})
        return {partition.partition: each.offset for partition, each in found.items()}

    @contextmanager
    def old_records(self) -> Iterator[tuple[str, dict[int, int]]]:
        """A topic, and the end of what is only remote in each partition."""
        with self.topic() as topic:
            self.fill(topic)
            closed = self.closed(topic)
            wait_until(lambda: sum(self.only_remote(topic).values()) >= closed, "segments are remote", PATIENCE_S)
            yield topic, self.only_remote(topic)


def copy(tiers: Tiers) -> Measured:
    """MB in a second, from the end of the writes on."""
    with tiers.topic(**{"remote.log.copy.disable": "true", "local.retention.bytes": "-2"}) as topic:
        tiers.fill(topic)
        closed = tiers.closed(topic)
        meter = tiers.cluster.meter()
        with meter:
            began = time.monotonic()
            tiers.begin_copies(topic)
            ended = wait_until(lambda: tiers.copied(topic) >= closed, "segments are copied", PATIENCE_S)
        size = tiers.copied(topic) * VALUE_BYTES
        return size / 1e6 / (ended - began), {"ops": size / 1e6, **meter.fields}


def read(tiers: Tiers) -> Measured:
    """MB in a second."""
    with tiers.old_records() as (topic, ends):
        meter = tiers.cluster.meter()
        with meter:
            began = time.monotonic()
            size = sum(len(value) for value in old_values(tiers.cluster, topic, ends, threading.Event()))
            took = time.monotonic() - began
        return size / 1e6 / took, {"ops": size / 1e6, **meter.fields}


def old_values(cluster: Cluster, topic: str, ends: dict[int, int], stopped: threading.Event) -> Iterator[bytes]:
    """Values of all records that are only remote, once."""
    consumer = Consumer(
        settings(
            cluster.bootstrap,
            **{
                "group.id": unique("bg"),
                "enable.auto.commit": False,
                # By default a consumer that is slower than its brokers pauses for a second.
                "fetch.queue.backoff.ms": 5,
            },
        )
    )
    try:
        left = {index: end for index, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, index, 0) for index in left])
        while left and not stopped.is_set():
            for message in consumer.consume(1_000, 1.0):
                if message.error():
                    raise KafkaException(message.error())
                index = message.partition()
                if message.offset() >= ends[index] - 1 and left.pop(index, None) is not None:
                    consumer.pause([TopicPartition(topic, index)])
                yield message.value()
    finally:
        consumer.close()


def quiet_tail(tiers: Tiers, seconds: float) -> Measured:
    """The 99th percentile in milliseconds."""
    with tiers.topic() as topic, tiers.cluster.meter() as meter:
        latencies = Tail(tiers.cluster, topic).run(seconds)
    return percentile(latencies, 0.99) * 1000, {**_shape(latencies), **meter.fields}


def tail_beside_readers(tiers: Tiers, seconds: float) -> Measured:
    """The 99th percentile in milliseconds, while READERS consumers read old records of another topic."""
    with tiers.topic() as topic, tiers.old_records() as (old, ends):
        stopped, sizes = threading.Event(), [0] * READERS
        errors: list[Exception] = []

        def keep_reading(place: int) -> None:
            try:
                while not stopped.is_set():
                    for value in old_values(tiers.cluster, old, ends, stopped):
                        sizes[place] += len(value)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=keep_reading, args=(place,)) for place in range(READERS)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: all(sizes) or bool(errors), "old records are read")
            sizes[:] = [0] * READERS
            meter = tiers.cluster.meter()
            with meter:
                latencies = Tail(tiers.cluster, topic).run(seconds)
                size = sum(sizes)
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]
    more = {"old_mb_per_s": round(size / 1e6 / meter.fields["wall_s"], 1), **_shape(latencies)}
    return percentile(latencies, 0.99) * 1000, {**more, **meter.fields}


def _shape(latencies: list[float]) -> dict[str, float]:
    return {"ops": len(latencies), "p50_ms": round(percentile(latencies, 0.5) * 1000, 2)}


class Tail:
    """A producer with acks=all and a consumer of the newest records."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(settings(cluster.bootstrap, **{"acks": "all", "linger.ms": 0}))
        self._consumer = Consumer(
            settings(
                cluster.bootstrap,
                **{"group.id": unique("bg"), "enable.auto.commit": False, "fetch.wait.max.ms": 100},
            )
        )
        self._latencies: list[float] = []

    def run(self, seconds: float) -> list[float]:
        """Seconds from `produce` to the consumer, of each record. Raises TimeoutError if one does not arrive."""
        count = int(TAIL_PER_SECOND * seconds)
        self._consumer.assign([TopicPartition(self._topic, index, 0) for index in range(PARTITIONS)])
        receiver = threading.Thread(target=self._receive, args=(count,))
        receiver.start()
        began = time.monotonic()
        for number in range(count):
            due = began + number / TAIL_PER_SECOND
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(min(left, 0.001))
            self._producer.produce(self._topic, repr(time.monotonic()).encode(), partition=number % PARTITIONS)
        self._producer.flush(PATIENCE_S)
        receiver.join(PATIENCE_S)
        if len(self._latencies) < count:
            raise TimeoutError(f"{len(self._latencies)} of {count} records arrived within {PATIENCE_S:.0f} s")
        return self._latencies

    def _receive(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self._latencies) < count and time.monotonic() < deadline:
            # `consume` waits until it has as many as were asked for.
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                self._latencies.append(time.monotonic() - float(message.value()))
        with suppress(KafkaException):
            self._consumer.close()


def loads(tiers: Tiers, seconds: float) -> Iterable[Load]:
    yield Load("tiers.copy", "MB/s", partial(copy, tiers))
    yield Load("tiers.read", "MB/s", partial(read, tiers))
    yield Load("tiers.tail.quiet", "p99 ms", partial(quiet_tail, tiers, seconds))
    yield Load("tiers.tail", "p99 ms", partial(tail_beside_readers, tiers, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--label", default="cluster")
    parser.add_argument("--pids", help="prints lines 'role pid': for the servers' CPU")
    parser.add_argument("--out", help="file to which results are added")
    parser.add_argument("--only", default="", help="regular expression on the names")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--mib", type=int, default=500, help="size of the old records")
    parser.add_argument("--list", action="store_true", help="only name the measurements")
    options = parser.parse_args()
    options.kill = options.restart = None
    with Admin(bootstrap_servers=options.bootstrap) as admin:
        tiers = Tiers(Cluster(options), admin, options.mib << 20)
        chosen = [load for load in loads(tiers, options.seconds) if re.search(options.only, load.name)]
        if options.list:
            print("\n".join(load.name for load in chosen))
            return
        measure_all(chosen, Results(options.out, options.label), options.repeat)


if __name__ == "__main__":
    main()
