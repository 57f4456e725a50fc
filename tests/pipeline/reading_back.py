"""Reads a whole topic with the client of Barnabas."""

from __future__ import annotations

import time

from barnabas import TopicPartition, sync
from barnabas.client.offset_lookup import LATEST, Isolation
from barnabas.pipeline.blocking_cluster import BlockingCluster

END_TIMEOUT_S = 20
"""Well below the 60 s after which the coordinator itself aborts a transaction that nobody ended."""


def read_all(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[bytes]:
    """The values by partition. AssertionError if a transaction stays open, or if the end is not reached in half a
    minute."""
    await_ended(bootstrap, topic, partitions)
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


def await_ended(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until no transaction is open, so that consumers of committed records see the log end.

    EndTxn is answered when the decision is durable; the coordinator writes the markers after that. AssertionError if a
    transaction is open for as long as nobody would wait.
    """
    ends = {(topic, index): LATEST for index in range(partitions)}
    deadline = time.monotonic() + END_TIMEOUT_S
    with BlockingCluster(bootstrap) as cluster:
        while True:
            stable = cluster.list_offsets(ends, Isolation.READ_COMMITTED)
            latest = cluster.list_offsets(ends, Isolation.READ_UNCOMMITTED)
            open_at = {place: stable[place].offset for place in ends if stable[place].offset != latest[place].offset}
            if not open_at:
                return
            assert time.monotonic() < deadline, f"a transaction stays open, last stable offsets {open_at}"
            time.sleep(0.02)
