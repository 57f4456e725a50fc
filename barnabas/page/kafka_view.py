"""What Kafka's own protocol tells of a cluster: who is there, and how nodes are that tell nothing over HTTP.

So any cluster can be shown, Apache Kafka's too: brokers, quorum, leaders, ISRs, leader epochs, and leaders' offsets.
Barnabas's own nodes are looked for at the ports where they are by default, and tell more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from barnabas.client.admin import Admin, OffsetSpec
from barnabas.client.admin.brokers import ClusterDescription, QuorumInfo
from barnabas.client.admin.topic_values import TopicPartitionInfo
from barnabas.client.cluster import Cluster, ClusterSettings, NoBrokerAvailable, TopicPartition
from barnabas.page.changes import Led, Look, changes
from barnabas.page.node_state import (
    MOST_NODES,
    BrokerState,
    MetadataState,
    NodeName,
    NodeState,
    PartitionState,
)
from barnabas.page.watch import Address, Watch
from barnabas.why.node_addresses import NodeAddress, NodeListener, candidates, probe
from protocol.errors import KafkaError
from runtime.world import World

INTERVAL_SECONDS = 1.0
DISCOVERY_SECONDS = 10.0
"""How often new nodes, and new pages of nodes, are looked for."""
ANSWER_SECONDS = 3.0
MOST_TOPICS = 200
"""More are not listed."""
SILENT_MS = 3_000
"""A voter that has not fetched for so long is shown as unreachable."""

GOOD_FOR_MS = 4_000
"""What others tell of a node is asked for once a second, in several questions, and may be late."""
OFFSETS_SECONDS = 1.0
"""How long a leader may take to tell its offsets: one that has gone holds up nobody."""
SETTINGS = ClusterSettings(request_timeout_ms=2_000, retry_backoff_ms=50, retry_backoff_max_ms=500)
NO_PAGE = "by Kafka's own protocol"


class KafkaView:
    """Of one cluster, by some of its brokers."""

    def __init__(self, world: World, bootstrap: Sequence[tuple[str, int]]) -> None:
        self._world = world
        self._bootstrap = bootstrap
        self._found: dict[str, Address] = {}
        """Nodes that have pages."""
        self._discovered_ms: int | None = None
        self._topics: dict[str, int] | None = None
        """Partitions by topic, since they were looked for."""
        self._described: Described = {}
        self._offsets: Offsets = {}
        """As leaders told them last."""
        self._last: Look | None = None

    async def run(self, watch: Watch) -> None:
        """Until cancelled: looks again and again."""
        self._last = None
        async with self._admin() as admin, trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_for_offsets, admin)
            next_at = trio.current_time()
            while True:
                await self._look(admin, watch, watch.feed.topics)
                next_at = max(next_at + INTERVAL_SECONDS, trio.current_time() + INTERVAL_SECONDS / 5)
                await trio.sleep_until(next_at)

    async def look_once(self, watch: Watch, topic: str) -> None:
        async with self._admin() as admin:
            await self._look(admin, watch, [topic])
            if not self._all_have_pages(watch):
                self._offsets |= await _offsets(admin, self._described)
                await self._look(admin, watch, [topic])

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Admin]:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(self._world, nursery, self._bootstrap, client_id="barnabas-page", settings=SETTINGS)
            yield Admin.over(cluster, default_api_timeout_ms=int(ANSWER_SECONDS * 1000))
            cluster.close()
            nursery.cancel_scope.cancel()

    async def _look(self, admin: Admin, watch: Watch, topics: Sequence[str]) -> None:
        """One look; ends within some seconds, whatever the cluster does."""
        if self._discovered_ms is not None and not self._is_due(watch) and self._all_have_pages(watch):
            return
        with trio.move_on_after(ANSWER_SECONDS):
            try:
                cluster = await admin.describe_cluster(include_fenced_brokers=True)
                quorum = await _quorum(admin)
                if self._discovered_ms is None or self._is_due(watch):
                    await self._discover(watch, cluster, quorum)
                    self._discovered_ms, self._topics = watch.now_ms(), None
                if not self._all_have_pages(watch):
                    await self._tell(admin, watch, cluster, quorum, topics)
            except (KafkaError, NoBrokerAvailable):
                return  # what was told before grows old, and is shown so

    def _is_due(self, watch: Watch) -> bool:
        return self._discovered_ms is None or watch.now_ms() - self._discovered_ms > DISCOVERY_SECONDS * 1000

    def _all_have_pages(self, watch: Watch) -> bool:
        return bool(watch.sights) and all(name in self._found for name in watch.sights)

    # Who is there, and who has a page

    async def _discover(self, watch: Watch, cluster: ClusterDescription, quorum: QuorumInfo | None) -> None:
        places = {NodeName.of("broker", node.node_id): (node.host, node.port) for node in cluster.nodes}
        for voter in quorum.voters if quorum is not None else ():
            endpoints = quorum.nodes.get(voter.replica_id, ()) if quorum is not None else ()
            at = (endpoints[0].host, endpoints[0].port) if endpoints else ("", 0)
            places[NodeName.of("controller", voter.replica_id)] = at
        listeners = [NodeListener(node.role, node.id, *at) for node, at in list(places.items())[:MOST_NODES]]
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                watch.sight_of(NodeName.of(listener.role, listener.id))
                if listener.name not in self._found:
                    nursery.start_soon(self._probe, listener, candidates(listener, listeners))
        watch.look_at(list(self._found.values()))

    async def _probe(self, listener: NodeListener, addresses: Sequence[NodeAddress]) -> None:
        address = await probe(self._world.network, listener, addresses)
        if address is not None:
            node = NodeName.of(listener.role, listener.id)
            self._found[node.name] = Address(node, address.host, address.port)

    # How those are that have none

    async def _tell(
        self,
        admin: Admin,
        watch: Watch,
        cluster: ClusterDescription,
        quorum: QuorumInfo | None,
        topics: Sequence[str],
    ) -> None:
        now_ms = watch.now_ms()
        if self._topics is None:
            names = list(await admin.list_topics())[:MOST_TOPICS]
            self._topics = {name: len(each) for name, each in (await _describe(admin, names)).items()}
        counts = self._topics
        described = self._described = await _describe(admin, topics)
        self._tell_changes(watch, cluster, quorum)
        for broker in cluster.nodes:
            node = NodeName.of("broker", broker.node_id)
            if node.name in self._found:
                continue
            for topic in topics or ("",):
                state = NodeState(
                    id=broker.node_id,
                    role="broker",
                    state="fenced" if broker.is_fenced else "running",
                    metadata=_metadata(quorum, broker.node_id),
                    topics=counts,
                    partitions=[
                        _partition(topic, each, broker.node_id, self._offsets) for each in described.get(topic, ())
                    ],
                    told=NO_PAGE,
                )
                watch.sight_of(node).heard(state, topic or None, now_ms, GOOD_FOR_MS)
        fenced = {broker.node_id: BrokerState(0, broker.is_fenced) for broker in cluster.nodes}
        for voter in quorum.voters if quorum is not None else ():
            node = NodeName.of("controller", voter.replica_id)
            if quorum is None or node.name in self._found:
                continue
            leads = voter.replica_id == quorum.leader_id
            if not leads and _is_silent(voter.last_fetch_timestamp_ms, watch):
                watch.sight_of(node).not_heard("the quorum's leader has not heard of it for seconds", refused=False)
                continue
            state = NodeState(
                id=voter.replica_id,
                role="controller",
                state="leader" if leads else "follower",
                metadata=_metadata(quorum, voter.replica_id),
                brokers=fenced if leads else {},
                told=NO_PAGE,
            )
            watch.sight_of(node).heard(state, None, now_ms, GOOD_FOR_MS)

    async def _ask_for_offsets(self, admin: Admin) -> None:
        """Again and again, beside everything else."""
        while True:
            self._offsets = self._offsets | await _offsets(admin, self._described)
            await trio.sleep(INTERVAL_SECONDS / 2)

    def _tell_changes(self, watch: Watch, cluster: ClusterDescription, quorum: QuorumInfo | None) -> None:
        """What is different since the last look; of nodes that tell their decisions themselves, nothing."""
        look = Look(
            {
                (topic, each.partition): Led(each.leader, each.leader_epoch, tuple(each.isr))
                for topic, partitions in self._described.items()
                for each in partitions
            },
            {broker.node_id: broker.is_fenced for broker in cluster.nodes},
            None if quorum is None else quorum.leader_id,
            None if quorum is None else quorum.leader_epoch,
        )
        last, self._last = self._last, look
        if last is None or self._found:
            return
        at_ms = watch.world.wall_clock.now_ms()
        for each in changes(last, look):
            watch.feed.mark(each.kind.value, each.subject, each.text, at_ms=at_ms)


def _is_silent(last_fetch_ms: int | None, watch: Watch) -> bool:
    return last_fetch_ms is not None and watch.world.wall_clock.now_ms() - last_fetch_ms > SILENT_MS


async def _quorum(admin: Admin) -> QuorumInfo | None:
    """None from a cluster that tells nothing of it."""
    try:
        return await admin.describe_metadata_quorum()
    except KafkaError:
        return None


def _metadata(quorum: QuorumInfo | None, node_id: int) -> MetadataState:
    if quorum is None:
        return MetadataState()
    ends = {each.replica_id: each.log_end_offset for each in (*quorum.voters, *quorum.observers)}
    end = ends.get(node_id)
    return MetadataState(quorum.leader_id, quorum.leader_epoch, quorum.high_watermark, end, end)


Described = dict[str, Sequence[TopicPartitionInfo]]
"""Partitions by topic."""


async def _describe(admin: Admin, topics: Sequence[str]) -> Described:
    found: Described = {}
    if topics:
        for name, described in (await admin.describe_topics(topics)).succeeded.items():
            found[name] = described.partitions
    return found


Offsets = dict[tuple[str, int], tuple[int, int]]
"""By topic and partition, where the log begins, and what of it is committed."""


async def _offsets(admin: Admin, described: Described) -> Offsets:
    """Of those partitions whose leaders tell them in time."""
    led: dict[int, list[TopicPartition]] = {}
    for topic, partitions in described.items():
        for each in partitions:
            if each.leader is not None:
                led.setdefault(each.leader, []).append(TopicPartition(topic, each.partition))
    found: Offsets = {}
    async with trio.open_nursery() as nursery:
        for mine in led.values():
            nursery.start_soon(_offsets_of_one_leader, admin, mine, found)
    return found


async def _offsets_of_one_leader(admin: Admin, led: Sequence[TopicPartition], found: Offsets) -> None:
    with trio.move_on_after(OFFSETS_SECONDS):
        try:
            first = (await admin.list_offsets(dict.fromkeys(led, OffsetSpec.earliest()))).succeeded
            last = (await admin.list_offsets(dict.fromkeys(led, OffsetSpec.latest()))).succeeded
        except (KafkaError, NoBrokerAvailable):
            return  # those that it told before stay
        for each in led:
            if each in first and each in last:
                found[each.topic, each.partition] = first[each].offset, last[each].offset


def _partition(topic: str, told: TopicPartitionInfo, broker: int, offsets: Offsets) -> PartitionState:
    """As `broker` could tell it: only a leader's offsets are known, and of its log only what is committed."""
    leads = told.leader == broker
    start, end = offsets.get((topic, told.partition), (None, None)) if leads else (None, None)
    return PartitionState(
        index=told.partition,
        leader=-1 if told.leader is None else told.leader,
        leader_epoch=told.leader_epoch,
        replicas=told.replicas,
        isr=told.isr,
        is_leader=leads,
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end,
    )
