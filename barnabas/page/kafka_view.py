"""View of a cluster by Kafka's protocol: discovers nodes, and shows those without an HTTP listener.

So the page works with any cluster, Apache Kafka's too: brokers, quorum, leaders, ISRs, leader epochs, and offsets of
leaders. Nodes of Barnabas are looked for at their default HTTP ports, which provide more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from barnabas.client.admin import Admin, OffsetSpec
from barnabas.client.admin.brokers import ClusterDescription, QuorumInfo
from barnabas.client.admin.topic_values import TopicPartitionInfo
from barnabas.client.cluster import Cluster, ClusterSettings, NoBrokerAvailable, TopicPartition
from barnabas.page.changes import ClusterView, PartitionView, changes
from barnabas.page.node_state import (
    MOST_NODES,
    BrokerState,
    MetadataState,
    NodeName,
    NodeState,
    PartitionState,
)
from barnabas.page.watch import Address, Watch
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.world import World
from barnabas.why.node_addresses import NodeAddress, NodeListener, candidates, probe

INTERVAL_SECONDS = 1.0
DISCOVERY_SECONDS = 10.0
"""Interval of the search for new nodes and HTTP listeners."""
ANSWER_SECONDS = 3.0
MOST_TOPICS = 200
"""Limit of topics listed."""
SILENT_MS = 3_000
"""A voter without a fetch for so long is shown as unreachable."""

GOOD_FOR_MS = 4_000
"""Validity of a state reported by other nodes, which is polled once a second with several requests."""
OFFSETS_SECONDS = 1.0
"""Time limit for the offsets of one leader, so that a dead one delays no other."""
SETTINGS = ClusterSettings(request_timeout_ms=2_000, retry_backoff_ms=50, retry_backoff_max_ms=500)
NO_PAGE = "by Kafka's own protocol"
NO_FETCH = "it has not fetched from the quorum's leader for seconds"


class KafkaView:
    """View of the cluster of the bootstrap servers."""

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        security: ChannelSecurity | None = None,
        token: HttpToken | None = None,
    ) -> None:
        """`token` is for the HTTP listeners of the nodes."""
        self._world = world
        self._bootstrap = bootstrap
        self._security = security
        self._token = token
        self._found: dict[str, Address] = {}
        """Nodes with an HTTP listener."""
        self._discovered_ms: int | None = None
        self._topics: dict[str, int] | None = None
        """Number of partitions by topic, as of the last discovery."""
        self._described: Described = {}
        self._offsets: Offsets = {}
        """The last answers of the leaders."""
        self._last: ClusterView | None = None

    async def run(self, watch: Watch) -> None:
        """Polls until cancelled."""
        self._last = None
        async with self._admin() as admin, trio.open_nursery() as nursery:
            nursery.start_soon(self._poll_offsets, admin)
            next_at = trio.current_time()
            while True:
                await self._poll(admin, watch, watch.feed.topics)
                next_at = max(next_at + INTERVAL_SECONDS, trio.current_time() + INTERVAL_SECONDS / 5)
                await trio.sleep_until(next_at)

    async def poll_once(self, watch: Watch, topic: str) -> None:
        async with self._admin() as admin:
            await self._poll(admin, watch, [topic])
            if not self._all_have_http(watch):
                self._offsets |= await _offsets(admin, self._described)
                await self._poll(admin, watch, [topic])

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Admin]:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(
                self._world,
                nursery,
                self._bootstrap,
                client_id="barnabas-page",
                settings=SETTINGS,
                security=self._security,
            )
            yield Admin.over(cluster, default_api_timeout_ms=int(ANSWER_SECONDS * 1000))
            cluster.close()
            nursery.cancel_scope.cancel()

    async def _poll(self, admin: Admin, watch: Watch, topics: Sequence[str]) -> None:
        """One poll, limited to some seconds."""
        if self._discovered_ms is not None and not self._is_due(watch) and self._all_have_http(watch):
            return
        with trio.move_on_after(ANSWER_SECONDS):
            try:
                cluster = await admin.describe_cluster(include_fenced_brokers=True)
                quorum = await _quorum(admin)
                if self._discovered_ms is None or self._is_due(watch):
                    await self._discover(watch, cluster, quorum)
                    self._discovered_ms, self._topics = watch.now_ms(), None
                if not self._all_have_http(watch):
                    await self._publish(admin, watch, cluster, quorum, topics)
            except (KafkaError, NoBrokerAvailable):
                return  # the last answers expire and are shown as old

    def _is_due(self, watch: Watch) -> bool:
        return self._discovered_ms is None or watch.now_ms() - self._discovered_ms > DISCOVERY_SECONDS * 1000

    def _all_have_http(self, watch: Watch) -> bool:
        return bool(watch.sights) and all(name in self._found for name in watch.sights)

    # Discovery

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
                    nursery.start_soon(self._probe, listener, candidates(listener, listeners, self._token))
        watch.set_addresses(list(self._found.values()))

    async def _probe(self, listener: NodeListener, addresses: Sequence[NodeAddress]) -> None:
        address = await probe(self._world.network, listener, addresses)
        if address is not None:
            node = NodeName.of(listener.role, listener.id)
            self._found[node.name] = Address(node, address.host, address.port, address.token)

    # Nodes without an HTTP listener

    async def _publish(
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
        self._publish_changes(watch, cluster, quorum)
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
                    source=NO_PAGE,
                )
                watch.sight_of(node).answered(state, topic or None, now_ms, GOOD_FOR_MS)
        fenced = {broker.node_id: BrokerState(0, broker.is_fenced) for broker in cluster.nodes}
        for voter in quorum.voters if quorum is not None else ():
            node = NodeName.of("controller", voter.replica_id)
            if quorum is None or node.name in self._found:
                continue
            leads = voter.replica_id == quorum.leader_id
            if not leads and _is_silent(voter.last_fetch_timestamp_ms, watch):
                watch.sight_of(node).not_answered(NO_FETCH, refused=False)
                continue
            state = NodeState(
                id=voter.replica_id,
                role="controller",
                state="leader" if leads else "follower",
                metadata=_metadata(quorum, voter.replica_id),
                brokers=fenced if leads else {},
                source=NO_PAGE,
            )
            watch.sight_of(node).answered(state, None, now_ms, GOOD_FOR_MS)

    async def _poll_offsets(self, admin: Admin) -> None:
        """Polls the offsets of leaders until cancelled."""
        while True:
            self._offsets = self._offsets | await _offsets(admin, self._described)
            await trio.sleep(INTERVAL_SECONDS / 2)

    def _publish_changes(self, watch: Watch, cluster: ClusterDescription, quorum: QuorumInfo | None) -> None:
        """Publishes differences since the last poll, unless the nodes export decisions."""
        view = ClusterView(
            {
                (topic, each.partition): PartitionView(each.leader, each.leader_epoch, tuple(each.isr))
                for topic, partitions in self._described.items()
                for each in partitions
            },
            {broker.node_id: broker.is_fenced for broker in cluster.nodes},
            None if quorum is None else quorum.leader_id,
            None if quorum is None else quorum.leader_epoch,
        )
        last, self._last = self._last, view
        if last is None or self._found:
            return
        at_ms = watch.world.wall_clock.now_ms()
        for each in changes(last, view):
            watch.feed.mark(each.kind.value, each.subject, each.text, at_ms=at_ms)


def _is_silent(last_fetch_ms: int | None, watch: Watch) -> bool:
    return last_fetch_ms is not None and watch.world.wall_clock.now_ms() - last_fetch_ms > SILENT_MS


async def _quorum(admin: Admin) -> QuorumInfo | None:
    """None if the cluster does not support DescribeQuorum."""
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
"""(log start offset, high watermark) by topic and partition."""


async def _offsets(admin: Admin, described: Described) -> Offsets:
    """Offsets of the partitions whose leaders answer in time."""
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
            return  # its last answers stay
        for each in led:
            if each in first and each in last:
                found[each.topic, each.partition] = first[each].offset, last[each].offset


def _partition(topic: str, info: TopicPartitionInfo, broker: int, offsets: Offsets) -> PartitionState:
    """The partition as `broker` would report it. Only leaders have offsets; the log end is the high watermark."""
    leads = info.leader == broker
    start, end = offsets.get((topic, info.partition), (None, None)) if leads else (None, None)
    return PartitionState(
        index=info.partition,
        leader=-1 if info.leader is None else info.leader,
        leader_epoch=info.leader_epoch,
        replicas=info.replicas,
        isr=info.isr,
        is_leader=leads,
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end,
    )
