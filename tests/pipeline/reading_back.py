"""Reads a whole topic with the client of Barnabas."""

from __future__ import annotations

import time

from barnabas import TopicPartition, sync
from barnabas.client.offset_lookup import LATEST, Isolation
from barnabas.pipeline.blocking_cluster import BlockingCluster


def read_all(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[bytes]:
    """The values by partition. AssertionError if the end is not reached in half a minute, as with a transaction that
    stays open."""
    places = [TopicPartition(topic, index) for index in range(partitions)]
    values: list[bytes] = []
    with sync.Consumer(bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest") as reader:
        reader.assign(places)
        ends = reader.end_offsets(places)
        deadline = time.monotonic() + 30
        while any(reader.position(place) < ends[place] for place in places):
            assert time.monotonic() < deadline, "the end was not reached"
            values += [record.value for record in reader.poll(timeout_ms=200)]
    return values


def all_ended(bootstrap: str, topic: str, partitions: int) -> bool:
    """Whether no transaction is open, so that consumers of committed records see the log end."""
    ends = {(topic, index): LATEST for index in range(partitions)}
    with BlockingCluster(bootstrap) as cluster:
        stable = cluster.list_offsets(ends, Isolation.READ_COMMITTED)
        latest = cluster.list_offsets(ends, Isolation.READ_UNCOMMITTED)
    return [found.offset for found in stable.values()] == [found.offset for found in latest.values()]
