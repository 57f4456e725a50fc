"""Views of the nodes, over the protocol and past all faults: replicas, leaders, coordinators.

A look at a broker is three questions over one connection: Metadata (leader, epoch and ISR as *it* knows them),
ListOffsets as a debugger (replica -2: the end of its own log, independent of the leader), and Fetch without room for
bytes, as a consumer that may read from followers (KIP-392: its own high watermark). No records travel. Internal topics
are left out: they have so many partitions. So is a partition that the broker does not serve now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel, ChannelError
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.tls.channel import TlsChannelSecurity
from barnabas.runtime.tls.reload import TlsHolder
from barnabas.runtime.world import DialFailed, World
from loss_budget import Membership
from operations import Place
from worlds.cluster import ReplicaView

DEBUGGER = -2
LATEST = -1
FETCH_VERSION = 12
"""The last one that names topics; from 11 on followers answer consumers."""
PATIENCE_MS = 700.0
READY_LOOK_SECONDS = 0.1
_KEY_TYPES = {"group": 0, "transaction": 1, "share": 2}
_METADATA_TOPIC = "__cluster_metadata"

Address = tuple[str, int]


class Quorum(NamedTuple):
    """The quorum, as an active controller knows it."""

    leader: int
    epoch: int
    high_watermark: int


class Onlooker:
    """Asks nodes by name. Nodes that do not answer in time are left out; nothing here fails because of them."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        brokers: Mapping[str, tuple[int, Address]],
        controllers: Mapping[str, tuple[int, Address]],
        security: ChannelSecurity | None = None,
    ) -> None:
        """Id and address of each node, without a proxy between."""
        self._world = world
        self._channels = {
            name: Channel(world, nursery, host, port, client_id="onlooker", security=security)
            for name, (_id, (host, port)) in [*brokers.items(), *controllers.items()]
        }
        self._ids = {name: id_ for name, (id_, _address) in brokers.items()}
        self._names = {id_: name for name, (id_, _address) in [*brokers.items(), *controllers.items()]}
        self.brokers = list(brokers)
        self.controllers = list(controllers)

    def name_of(self, node_id: int) -> str | None:
        return self._names.get(node_id)

    async def reaches(self, node: str) -> bool:
        """True if the node listens now."""
        channel = self._channels[node]
        try:
            connection = await self._world.network.dial(channel.host, channel.port)
        except DialFailed:
            return False
        connection.close()
        return True

    async def ask(self, node: str, request: Message, version: int | None = None) -> Any:
        """The node's answer; None if there is none in time."""
        try:
            return await self._channels[node].call(request, timeout_ms=PATIENCE_MS, version=version)
        except ChannelError:
            return None

    async def views(self, nodes: Sequence[str] | None = None) -> list[ReplicaView]:
        """The views of `nodes`, or of all brokers, in the order of nodes, topics and partitions."""
        names = self.brokers if nodes is None else list(nodes)
        found: dict[str, list[ReplicaView]] = {}

        async def look(name: str) -> None:
            found[name] = await self._views_of(name)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(look, name)
        return [view for name in names for view in found[name]]

    async def _views_of(self, node: str) -> list[ReplicaView]:
        metadata: MetadataResponse | None = await self.ask(
            node, MetadataRequest(topics=None, allow_auto_topic_creation=False)
        )
        if metadata is None:
            return []
        own_id = self._ids[node]
        placed = {
            Place(topic.name or "", partition.partition_index): partition
            for topic in metadata.topics
            if not topic.is_internal
            for partition in topic.partitions
            if own_id in partition.replica_nodes
        }
        ends = await self._log_ends(node, sorted(placed))
        watermarks = await self._high_watermarks(node, ends)
        return [
            ReplicaView(
                node,
                place,
                watermarks[place],
                ends[place],
                placed[place].leader_epoch,
                placed[place].leader_id,
                tuple(placed[place].isr_nodes),
            )
            for place in sorted(watermarks)
        ]

    async def _log_ends(self, node: str, places: Sequence[Place]) -> dict[Place, int]:
        """End offsets of the node's own logs."""
        if not places:
            return {}
        request = ListOffsetsRequest(
            replica_id=DEBUGGER,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes],
                )
                for topic, indexes in _by_topic(places).items()
            ],
        )
        answer = await self.ask(node, request)
        if answer is None:
            return {}
        return {
            Place(topic.name, each.partition_index): each.offset
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code
        }

    async def _high_watermarks(self, node: str, ends: Mapping[Place, int]) -> dict[Place, int]:
        """Asked at the logs' ends, where there is nothing to read."""
        if not ends:
            return {}
        request = FetchRequest(
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=ends[Place(topic, index)]) for index in indexes
                    ],
                )
                for topic, indexes in _by_topic(sorted(ends)).items()
            ],
        )
        answer = await self.ask(node, request, FETCH_VERSION)
        if answer is None:
            return {}
        return {
            Place(topic.topic, each.partition_index): each.high_watermark
            for topic in answer.responses
            for each in topic.partitions
            if not each.error_code
        }

    async def memberships(self, nodes: Sequence[str]) -> list[Membership]:
        """The members of partitions, as each of `nodes` that answers and has them knows them."""
        found: dict[str, list[Membership]] = {}

        async def look(name: str) -> None:
            found[name] = await self._memberships_of(name)

        async with trio.open_nursery() as nursery:
            for name in nodes:
                nursery.start_soon(look, name)
        return [each for name in nodes for each in found[name]]

    async def _memberships_of(self, node: str) -> list[Membership]:
        own_id, found = self._ids[node], []
        cursor: Cursor | None = None
        while True:
            answer: DescribeTopicPartitionsResponse | None = await self.ask(
                node, DescribeTopicPartitionsRequest(cursor=cursor)
            )
            if answer is None:
                return []
            found += [
                Membership(
                    node,
                    Place(topic.name or "", each.partition_index),
                    self._named(each.replica_nodes),
                    self._named(each.isr_nodes),
                    self._named(each.eligible_leader_replicas or ()),
                )
                for topic in answer.topics
                for each in topic.partitions
                if own_id in each.replica_nodes
            ]
            if answer.next_cursor is None:
                return found
            cursor = Cursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )

    def _named(self, node_ids: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._names.get(node_id, f"broker-{node_id}") for node_id in node_ids)

    async def leader_of(self, place: Place) -> str | None:
        """By the newest epoch that any broker knows: one that was cut off still names the leader of before."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=place.topic)], allow_auto_topic_creation=False)
        leaders = [
            (each.leader_epoch, each.leader_id)
            for answer in await self._all(self.brokers, request)
            for topic in answer.topics
            for each in topic.partitions
            if each.partition_index == place.partition
        ]
        return self.name_of(max(leaders)[1]) if leaders else None

    async def describe_quorum(self, controller: str) -> ResponsePartitionData | None:
        """The quorum with its voters and observers; None if that controller does not lead it, or does not answer."""
        answer = await self.ask(controller, _describe_quorum())
        for topic in answer.topics if answer is not None and not answer.error_code else ():
            for each in topic.partitions:
                if not each.error_code:
                    found: ResponsePartitionData = each
                    return found
        return None

    async def quorum(self) -> Quorum | None:
        """The quorum, as the active controller of the newest epoch knows it."""
        found = [
            Quorum(each.leader_id, each.leader_epoch, each.high_watermark)
            for answer in await self._all(self.controllers, _describe_quorum())
            if not answer.error_code
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code and each.leader_id >= 0
        ]
        return max(found, key=lambda each: each.epoch, default=None)

    async def quorum_claims(self) -> dict[str, tuple[int, str]]:
        """By controller that answers: the epoch that it knows, and who leads in it ("": it knows nobody)."""
        claims: dict[str, tuple[int, str]] = {}
        for name in self.controllers:
            answer = await self.ask(name, _describe_quorum())
            for topic in answer.topics if answer is not None else ():
                for each in topic.partitions:
                    claims[name] = (each.leader_epoch, self.name_of(each.leader_id) or "")
        return claims

    async def active_controller(self) -> str | None:
        quorum = await self.quorum()
        return None if quorum is None else self.name_of(quorum.leader)

    async def coordinator_of(self, kind: Literal["group", "transaction", "share"], id_: str) -> str | None:
        answer = await self._first(
            self.brokers, FindCoordinatorRequest(key_type=_KEY_TYPES[kind], coordinator_keys=[id_])
        )
        for each in answer.coordinators if answer is not None else ():
            if each.error_code == ErrorCode.NONE:
                return self.name_of(each.node_id)
        return None

    async def wait_ready(self, timeout_seconds: float) -> None:
        """Waits until every broker knows every broker and a leader for each partition, and a controller is active.
        Raises ClusterError."""
        missing = "nobody was asked"
        with trio.move_on_after(timeout_seconds):
            while missing := await self._missing():
                await trio.sleep(READY_LOOK_SECONDS)
            return
        raise ClusterError(f"not ready after {timeout_seconds:.0f} s: {missing}")

    async def _missing(self) -> str:
        for name in self.brokers:
            alive = await self.ask(name, DescribeClusterRequest(endpoint_type=1))
            if alive is None:
                return f"{name} does not answer"
            seen = [each.broker_id for each in alive.brokers]
            unseen = [each for each in self.brokers if self._ids[each] not in seen]
            if unseen:
                return f"{name} does not see {unseen[0]} yet"
            metadata = await self.ask(name, MetadataRequest(topics=None, allow_auto_topic_creation=False))
            for topic in metadata.topics if metadata is not None else ():
                for partition in topic.partitions:
                    if partition.leader_id < 0:
                        return f"nobody leads {topic.name}-{partition.partition_index}"
        return "" if await self.quorum() is not None else "there is no active controller"

    async def _first(self, nodes: Sequence[str], request: Message) -> Any:
        for node in nodes:
            answer = await self.ask(node, request)
            if answer is not None:
                return answer
        return None

    async def _all(self, nodes: Sequence[str], request: Message) -> list[Any]:
        """The answers there are, in the order of the nodes."""
        found: dict[str, Any] = {}

        async def one(node: str) -> None:
            found[node] = await self.ask(node, request)

        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(one, node)
        return [found[node] for node in nodes if found[node] is not None]

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


@asynccontextmanager
async def onlooker(
    world: World,
    brokers: Mapping[str, tuple[int, Address]],
    controllers: Mapping[str, tuple[int, Address]],
    holder: TlsHolder | None = None,
) -> AsyncIterator[Onlooker]:
    """One that is gone with the block. `holder`: with it, connections are TLS."""
    async with trio.open_nursery() as nursery:
        security = None
        if holder is not None:
            security = TlsChannelSecurity(holder)
            nursery.start_soon(holder.run)
        looker = Onlooker(world, nursery, brokers, controllers, security)
        try:
            yield looker
        finally:
            looker.close()
            nursery.cancel_scope.cancel()


def _describe_quorum() -> DescribeQuorumRequest:
    log = RequestTopicData(topic_name=_METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])
    return DescribeQuorumRequest(topics=[log])


def _by_topic(places: Sequence[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place.partition)
    return found
