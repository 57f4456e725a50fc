"""Checks that a simulated cluster comes to rest when all faults are over: whole, all replicas equal, taking records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import trio

from barnabas import Admin, NewTopic
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.client.producer import Acked, Outcome, Producer, ProducerOptions
from barnabas.cluster.errors import ClusterError
from barnabas.kraft.metadata.image import NO_LEADER
from barnabas.protocol.errors import KafkaError
from simulation.cluster import SimCluster
from simulation.invariants.compaction import COMPACTED_TOPICS
from simulation.invariants.places import PartitionKey

CONVERGENCE_SECONDS = 60.0
"""Maximum time for a healed cluster."""
PROBED, PROBED_PARTITIONS = "probed", 2
"""A topic that only probes write to."""
PROVER = "prover"
"""The host of the client that sends a record into every partition."""


def administrator(cluster: SimCluster, host: str) -> Admin:
    """An administrator of probes."""
    return Admin(
        world=cluster.world(host),
        bootstrap_servers=cluster.login_servers,
        request_timeout_ms=3_000,
        retry_backoff_ms=50,
        socket_connection_setup_timeout_ms=1_000,
        **cluster.login,
    )


def producer_options(cluster: SimCluster, delivery_timeout_ms: int) -> ProducerOptions:
    """Options of the producers of probes."""
    options: ProducerOptions = {
        "bootstrap_servers": cluster.login_servers,
        "linger_ms": 5,
        "request_timeout_ms": 3_000,
        "retry_backoff_ms": 50,
        "socket_connection_setup_timeout_ms": 1_000,
        "delivery_timeout_ms": delivery_timeout_ms,
    }
    options.update(cast(ProducerOptions, cluster.login))
    return options


async def within(
    cluster: SimCluster, promise: str, what_is_missing: Callable[[], str], seconds: float = CONVERGENCE_SECONDS
) -> bool:
    """Reports the promise as broken unless nothing is missing within that time."""
    try:
        took = await cluster.cluster.wait_until(what_is_missing, seconds)
    except ClusterError as error:
        cluster.findings.report(f"{promise}: {error}; {_views(cluster)}")
        return False
    cluster.universe.trace(f"{promise} after {took:.3f} s")
    return True


async def check_rest(cluster: SimCluster, *, shared_groups: bool) -> None:
    """To be called when every client has ended. `shared_groups`: hostile clients may leave transactions open in the
    groups' topic."""
    watch, promises = cluster.watch, cluster.watch.partitions
    keys = [key for key in promises.keys if not key.topic.startswith("__")]
    for problem in await not_acked(cluster, keys):
        cluster.findings.report(f"all faults are over, yet {problem}")
    if not await within(cluster, "the replicas become equal", lambda: _not_equal(cluster)):
        return
    await _check_shares(cluster)
    for key in promises.keys:
        watch.check_replicas(key, _replicas(cluster, key))
        promises.check_ended(key, may_be_open=shared_groups and key.topic == GROUP_TOPIC)


async def _check_shares(cluster: SimCluster) -> None:
    """Members have ended: what they had is available again, at the latest when the locks are over."""
    shares = cluster.watch.shares
    brokers = [node.broker for node in cluster.cluster.brokers if node.broker is not None]
    if await within(cluster, "no record stays acquired", lambda: shares.not_at_rest(brokers)):
        shares.check_agreement(brokers)


async def not_acked(cluster: SimCluster, keys: Iterable[PartitionKey]) -> list[str]:
    """Sends one record into each of these partitions; returns what was not acknowledged."""
    outcomes: dict[PartitionKey, Outcome | KafkaError] = {}

    async def send(producer: Producer, key: PartitionKey) -> None:
        try:
            # A compacted topic takes no record without a key.
            name = b"-1" if key.topic in COMPACTED_TOPICS else None
            future = await producer.enqueue(key.topic, b"still alive", key=name, partition=key.partition)
            outcomes[key] = await future.outcome()
        except KafkaError as error:
            outcomes[key] = error

    options = producer_options(cluster, 30_000)
    async with Producer(world=cluster.world(PROVER), **options) as producer, trio.open_nursery() as nursery:
        for key in keys:
            nursery.start_soon(send, producer, key)
    return [
        f"{key}: a record was not acked: {outcome}"
        for key, outcome in outcomes.items()
        if not isinstance(outcome, Acked)
    ]


async def make_probed_topic(cluster: SimCluster) -> None:
    replicas = min(3, len(cluster.brokers))
    async with administrator(cluster, PROVER) as admin:
        await admin.create_topics(NewTopic(PROBED, PROBED_PARTITIONS, replicas), raise_errors=False)


def not_whole(cluster: SimCluster) -> str:
    """Reason why not everybody is up and unfenced, every partition led, and every replica in its ISR; empty if so."""
    missing = cluster.cluster.not_ready()
    if missing:
        return missing
    for topic in cluster.watch.quorum.image.topics.by_name.values():
        for index, partition in topic.partitions.items():
            if partition.leader == NO_LEADER or set(partition.isr) != set(partition.replicas):
                members = f"ISR {partition.isr} of {partition.replicas}"
                return f"{topic.name}-{index} has leader {partition.leader}, {members}"
    return ""


def _not_equal(cluster: SimCluster) -> str:
    """Reason why a replica's log does not end where the high watermark is, on all of them."""
    missing = not_whole(cluster)
    if missing:
        return missing
    promises = cluster.watch.partitions
    for key in promises.keys:
        end = promises.ghost(key).end_offset
        for node_id in _replicas(cluster, key):
            log = promises.log(key, node_id)
            if log is None or log.log_end_offset != end or log.high_watermark != end:
                return f"{key} on {node_id}: {log}, committed is up to {end}"
    return ""


def _replicas(cluster: SimCluster, key: PartitionKey) -> Sequence[int]:
    image = cluster.watch.quorum.image.topics.partition(*key)
    return () if image is None else image.replicas


def _views(cluster: SimCluster) -> str:
    """Every replica that is not led by the book, as its broker sees it."""
    views = []
    for node in cluster.cluster.brokers:
        for partition in node.broker.partitions if node.broker is not None else ():
            image = cluster.watch.quorum.image.topics.partition(partition.topic, partition.index)
            if image is None or len(image.isr) < len(image.replicas):
                views.append(f"broker {node.node.id}: {partition}, {partition.follower.describe()}")
    return "; ".join(views)
