"""`barnabas demo`: a cluster loses a leader and its active controller under load, and no acked record.

Everything happens on this machine, in a directory of its own that is removed at the end.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.session import with_cluster
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.client.producer import Delivery
    from barnabas.cluster.local import LocalCluster

TOPIC = "demo"
PARTITIONS = 3
RECORDS_PER_SECOND = 500
ACT_SECONDS = 4.0
"""How long the load goes on after each thing that happens."""


@dataclass(slots=True)
class _Load:
    """What was sent and what was acked, by value."""

    deliveries: list[tuple[bytes, Delivery]] = field(default_factory=list)
    acked: dict[bytes, None] = field(default_factory=dict)
    unknown: int = 0
    """No ack came; the record may be there or not."""
    last_ack_at: dict[int, float] = field(default_factory=dict)
    """By partition."""
    longest_gap: float = 0.0

    def note_ack(self, value: bytes, partition: int) -> None:
        now = time.monotonic()
        self.longest_gap = max(self.longest_gap, now - self.last_ack_at.get(partition, now))
        self.last_ack_at[partition] = now
        self.acked[value] = None

    def take_gap(self) -> float:
        """The longest time that any partition went without an ack since the last call, in seconds."""
        gap, self.longest_gap = self.longest_gap, 0.0
        return gap


def demo(
    base_port: Annotated[
        int | None, typer.Option("--base-port", metavar="N", help="As of `cluster up`; free ports unless set.")
    ] = None,
) -> None:
    """Show a cluster lose its leader and its controller under load, and no acked record."""
    from barnabas.cluster.local import LocalCluster
    from barnabas.cluster.ports import free_base_port

    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as data:
        cluster = LocalCluster(data, base_port or free_base_port())
        try:
            began = time.monotonic()
            cluster.up()
            cluster.wait_ready()
            typer.echo(f"six nodes are up and take writes after {time.monotonic() - began:.1f} s")
            load, read_back = with_cluster(cluster.bootstrap_servers, Path(data), lambda client: _play(client, cluster))
        finally:
            cluster.down()
    lost = [value for value in load.acked if value not in read_back]
    typer.echo(
        f"{len(load.acked)} records were acked, {load.unknown} have an unknown fate; "
        f"read back {len(read_back)}; lost {len(lost)}"
    )
    if lost:
        raise ClusterError(f"acked records are gone, the first is {lost[0]!r}")


async def _play(client: Cluster, cluster: LocalCluster) -> tuple[_Load, dict[bytes, None]]:
    import trio

    from barnabas.client.admin import Admin
    from barnabas.client.producer import open_producer

    await Admin(client).create_topic(TOPIC, PARTITIONS, 3)
    load = _Load()
    stop = trio.Event()
    async with open_producer(client) as producer, trio.open_nursery() as nursery:

        async def send() -> None:
            number = 0
            while not stop.is_set():
                value = b"record %d" % number
                delivery = await producer.send(TOPIC, value, partition=number % PARTITIONS)
                nursery.start_soon(_await_ack, load, value, delivery)
                number += 1
                await trio.sleep(1 / RECORDS_PER_SECOND)

        nursery.start_soon(send)
        await trio.sleep(ACT_SECONDS / 2)
        load.take_gap()
        await trio.to_thread.run_sync(_lose_leader, cluster)
        await trio.sleep(ACT_SECONDS)
        typer.echo(f"  longest time that a partition went without an ack: {load.take_gap() * 1000:.0f} ms")
        await trio.to_thread.run_sync(_lose_controller, cluster)
        await trio.sleep(ACT_SECONDS)
        typer.echo(f"  longest time that a partition went without an ack: {load.take_gap() * 1000:.0f} ms")
        stop.set()
    return load, await _read_back(client)


async def _await_ack(load: _Load, value: bytes, delivery: Delivery) -> None:
    from barnabas.client.producer import DeliveryFailed

    try:
        acked = await delivery.ack()
        load.note_ack(value, acked.partition)
    except DeliveryFailed:
        load.unknown += 1


def _lose_leader(cluster: LocalCluster) -> None:
    """Kills whoever leads the first partition, and brings the node back."""
    leader = next(each.leader for each in cluster.status().partitions if each.topic == TOPIC)
    typer.echo(f"kill -9 broker-{leader}, leader of {TOPIC}-0, while {RECORDS_PER_SECOND} records/s are written")
    cluster.kill(f"broker-{leader}")
    time.sleep(ACT_SECONDS)
    cluster.start(f"broker-{leader}")


def _lose_controller(cluster: LocalCluster) -> None:
    quorum = cluster.status().quorum
    if quorum is None:
        raise ClusterError("there is no active controller")
    typer.echo(f"kill -9 controller-{quorum.leader}, the active one")
    cluster.kill(f"controller-{quorum.leader}")


async def _read_back(client: Cluster) -> dict[bytes, None]:
    """The values of all records, up to the ends as they are now."""
    from barnabas.client.cluster import TopicPartition
    from barnabas.client.consumer import EARLIEST, LATEST, open_consumer

    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    values: dict[bytes, None] = {}
    async with open_consumer(client) as consumer:
        ends = await consumer.offsets_at(dict.fromkeys(partitions, LATEST))
        consumer.assign(await consumer.offsets_at(dict.fromkeys(partitions, EARLIEST)))
        while any(consumer.position(each) < ends[each] for each in partitions):
            for record in await consumer.poll(1000):
                values[record.value or b""] = None
    return values
