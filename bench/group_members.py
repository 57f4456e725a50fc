"""Groups of consumers that a load starts, stops and kills, and the cluster they run on."""

from __future__ import annotations

import argparse
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from measuring import Meter, Results, read_pids

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 500
PARTITIONS = 60
"""Partitions of the topics that groups share: more than members."""
PATIENCE_S = 60.0
"""For members to agree, or a group to go on."""

Measured = tuple[float, dict[str, Any]]


class Load(NamedTuple):
    """One row of the table."""

    name: str
    unit: str
    measure: Callable[[], Measured]
    once: bool = False
    """Leaves something behind that a repetition would find."""


def measure_all(loads: Iterable[Load], results: Results, repeat: int) -> None:
    """One result for each run; a run that fails is a result, too."""
    for load in loads:
        for run in range(1, 1 + (1 if load.once else repeat)):
            try:
                value, more = load.measure()
                results.add(load.name, load.unit, run, value, **more)
            except Exception as error:
                results.add(load.name, load.unit, run, None, error=f"{type(error).__name__}: {error}"[:300])


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    common: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "broker.address.family": "v4",
        "log_level": 0,
        "error_cb": lambda _: None,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
    }
    return {**common, **more}


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> float:
    """Time at which the condition held. Raises TimeoutError."""
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {patience_s:.0f} s")
        time.sleep(0.002)
    return time.monotonic()


def fill(bootstrap: str, topic: str, count: int, value: bytes, partitions: int) -> None:
    """Write `count` records of the same value, on all partitions alike. RuntimeError if one is not confirmed."""
    more = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000, "acks": "all"}
    producer = Producer(settings(bootstrap, **more))
    failed: list[object] = []
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    partition=number // 100 % partitions,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120) or failed:
        raise RuntimeError(f"the topic cannot be filled: {failed[:1]}")


class Cluster:
    """The cluster under load, as clients and the shell see it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.bootstrap: str = options.bootstrap
        self.admin = AdminClient(settings(self.bootstrap))
        self._pids: str | None = options.pids
        self._kill: str | None = options.kill
        self._restart: str | None = options.restart

    @property
    def pids(self) -> list[int]:
        return read_pids(self._pids) if self._pids else []

    def meter(self) -> Meter:
        return Meter(self.pids)

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        name = unique("bk")
        new = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
        self.admin.create_topics([new], operation_timeout=60, request_timeout=60)[name].result()
        self.wait_in_sync(name, partitions)
        try:
            yield name
        finally:
            self.admin.delete_topics([name], operation_timeout=60, request_timeout=60)[name].result()

    def wait_in_sync(self, topic: str, partitions: int) -> None:
        def in_sync() -> bool:
            found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
            return len(found) == partitions and all(len(each.isrs) == 3 for each in found.values())

        wait_until(in_sync, f"all replicas of {topic} in sync", 120)

    def coordinator(self, group: str) -> int:
        """The broker's id."""
        # A client of its own: it keeps in mind where it has found a coordinator, even if that is dead now.
        admin = AdminClient(settings(self.bootstrap))
        described = admin.describe_consumer_groups([group], request_timeout=20)[group].result()
        return int(described.coordinator.id)

    @contextmanager
    def without_broker(self, broker_id: int) -> Iterator[float]:
        """Kill it, and start it again afterwards; gives when it was killed."""
        assert self._kill and self._restart
        at = time.monotonic()
        subprocess.run(self._kill.format(id=broker_id), shell=True, check=True, stdin=subprocess.DEVNULL)
        try:
            yield at
        finally:
            subprocess.run(self._restart.format(id=broker_id), shell=True, check=True, stdin=subprocess.DEVNULL)

    def member_settings(self, group: str, protocol: str) -> dict[str, Any]:
        more: dict[str, Any] = {"group.id": group, "enable.auto.commit": False, "group.protocol": protocol}
        if protocol == "classic":
            more["session.timeout.ms"] = SESSION_TIMEOUT_MS
            more["heartbeat.interval.ms"] = HEARTBEAT_INTERVAL_MS
        return settings(self.bootstrap, **more)


class Member:
    """One consumer, and which partitions it owns now."""

    def __init__(self, cluster: Cluster, group: str, protocol: str, topic: str) -> None:
        self.owned: set[int] = set()
        self._incremental = protocol == "consumer"
        self._topic = topic
        self.consumer = Consumer(cluster.member_settings(group, protocol))
        # Its connections and metadata are not what is measured.
        self.consumer.list_topics(topic, timeout=20)

    def subscribe(self) -> None:
        self.consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        mine = {each.partition for each in partitions}
        if self._incremental:
            self.consumer.incremental_assign(partitions)
            self.owned = self.owned | mine
        else:
            self.consumer.assign(partitions)
            self.owned = mine
        # Nothing is read. Questions after the coordinator would wait behind fetches that wait.
        self.consumer.pause(partitions)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned = self.owned - {each.partition for each in partitions}


class Group:
    """Members in this process, polled by one thread."""

    def __init__(self, cluster: Cluster, topic: str, protocol: str, size: int) -> None:
        self.id = unique("bg")
        self.members = [Member(cluster, self.id, protocol, topic) for _ in range(size)]
        self._stopped = threading.Event()
        self._poller = threading.Thread(target=self._poll)

    def __enter__(self) -> Group:
        self._poller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._poller.join()
        # Each would otherwise wait for the rebalances that the others before it began.
        closing = [threading.Thread(target=member.consumer.close, daemon=True) for member in self.members]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(20)

    def subscribe(self) -> None:
        for member in self.members:
            member.subscribe()

    def _poll(self) -> None:
        while not self._stopped.is_set():
            for member in self.members:
                member.consumer.poll(0)
            time.sleep(0.002)

    def owned(self) -> list[int]:
        return [partition for member in self.members for partition in member.owned]

    def wait_assigned(self) -> float:
        """Time at which each member had a partition, and every partition one owner."""

        def assigned() -> bool:
            owned = self.owned()
            return (
                len(owned) == PARTITIONS
                and len(set(owned)) == PARTITIONS
                and all(member.owned for member in self.members)
            )

        return wait_until(assigned, f"{len(self.members)} members with all partitions")
