"""A client's view of the cluster: its metadata, kept fresh, and calls to its brokers.

Metadata is requested when it is missing, proven wrong or older than metadata.max.age.ms; leaders and nodes that other
responses mention are taken over, too. Nothing here knows what is produced or fetched; callers decide which errors mean
that the metadata is stale.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import trio

from barnabas.client.cluster_settings import ClusterSettings
from barnabas.client.connections import IDLE_LOOKS, Caller, NodeConnection, in_turn
from barnabas.client.metadata import (
    NO_LEADER,
    STALE_METADATA,
    Leadership,
    Metadata,
    Node,
    PartitionInfo,
    TopicPartition,
    TopicView,
    by_topic,
    nodes_of,
    partitions_of,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import Message
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.channel import ChannelError, NotSent
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.world import World

__all__ = [
    "NO_LEADER",
    "STALE_METADATA",
    "Backoff",
    "Cluster",
    "ClusterSettings",
    "Leadership",
    "NoBrokerAvailable",
    "Node",
    "PartitionInfo",
    "TopicPartition",
    "TopicView",
    "by_topic",
]

log = logging.getLogger(__name__)

SAME_NODE_LIMIT = 5
SAME_NODE_PAUSE_MS = 10_000
"""After this many metadata requests in a row to one node, with pauses shorter than this, other nodes are preferred."""


class NoBrokerAvailable(Exception):
    """No known broker answered; the request was certainly not processed. The text gives a reason for each broker."""


class Cluster:
    """One client's view of one cluster. All methods may be used by many tasks at once, and may be cancelled: then it is
    unknown whether a call was processed, and all other calls go on."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        bootstrap: Sequence[tuple[str, int]],
        *,
        client_id: str = "barnabas",
        settings: ClusterSettings | None = None,
        security: ChannelSecurity | None = None,
    ) -> None:
        """`nursery` runs the connections; cancelling it ends them."""
        self.world = world
        self.settings = settings or ClusterSettings()
        self.metadata = Metadata()
        self.nodes = self.metadata.nodes
        self.topics = self.metadata.topics
        self._nursery = nursery
        self._caller = Caller(world, nursery, client_id, self.settings, security)
        self.meters = self._caller.meters
        self.connected_once = self._caller.connected_once
        self._connections: dict[tuple[int, str], NodeConnection] = {}
        # As in Kafka: the broker behind a bootstrap address is unknown, so the address gets a negative node id.
        self._bootstrap = [
            NodeConnection(self._caller, Node(-1 - index, host, port)) for index, (host, port) in enumerate(bootstrap)
        ]
        self._refreshing = trio.Lock()
        self._refreshes = 0
        self._refreshed = False
        self._refreshed_ms = self.now_ms()
        """Time of the last response about all topics."""
        self._failing_since_ms: int | None = None
        self._failure = ""
        """Reason why no broker answered the last `call_any`; empty if one did."""
        self._wanted: dict[str, None] = {}
        """Topics of the next refresh, unless it covers all of them."""
        self._not_the_one: NodeConnection | None = None
        self._last_used: NodeConnection | None = None
        """The connection of the last `call_connected`."""
        self._answered_by: NodeConnection | None = None
        """The node that answered the last `call_any`."""
        self._refreshed_from: NodeConnection | None = None
        self._refreshed_from_count = 0
        """Number of metadata requests in a row that it has answered."""
        self._refreshed_from_ms = 0
        self._all_wanted = False
        nursery.start_soon(self._close_idle_connections)
        nursery.start_soon(self._refresh_old_metadata)

    def backoff(self) -> Backoff:
        return Backoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms, self.world.chance)

    async def open_nursery(self) -> trio.Nursery:
        """A nursery for the tasks of a producer or a consumer, until it is cancelled or the cluster is closed."""
        nursery: trio.Nursery = await self._nursery.start(_hold_nursery)
        return nursery

    def now_ms(self) -> int:
        """For deadlines only; records are stamped by the wall clock."""
        return self.world.monotonic.now_ms()

    # What is known

    @property
    def cluster_id(self) -> str | None:
        return self.metadata.cluster_id

    @property
    def controller_id(self) -> int | None:
        """A broker to send controller requests to. With KRaft it is any broker, which forwards them."""
        return self.metadata.controller_id

    def leadership(self, partition: TopicPartition) -> Leadership | None:
        """The leader as far as it is known; None if the partition or its leader is unknown."""
        return self.metadata.leadership(partition)

    def topic_id(self, topic: str) -> bytes:
        return self.metadata.topic_id(topic)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.metadata.topic_name(topic_id)

    def features(self) -> Mapping[str, int]:
        """The cluster's finalized features and their levels, from the newest epoch that any connection reported when it
        was opened (KIP-584); empty if none did."""
        known = [connection.channel.features for connection in self._every_connection()]
        return max(known, key=lambda features: features.epoch).levels if known else {}

    def learn_leader(self, partition: TopicPartition, node_id: int, epoch: int) -> bool:
        """Take over a leader from a response (KIP-951); False if it is not newer than what is known, or an unknown
        node."""
        return self.metadata.learn_leader(partition, node_id, epoch)

    def learn_nodes(self, endpoints: Iterable[Any]) -> None:
        """Take over the addresses of brokers: objects with node_id, host, port and rack."""
        self._moved(self.metadata.learn_nodes(endpoints))

    def last_failure(self) -> str:
        """The end of an error message: why no broker answers, with addresses; empty if one has answered last."""
        if self._failure:
            return f"; {self._failure}"
        if self._answered_by is not None:
            return ""
        return "; no answer from " + ", ".join(f"{each.node.host}:{each.node.port}" for each in self._bootstrap)

    # Metadata

    async def partitions_count(self, topic: str, timeout_ms: int) -> int:
        """Number of partitions of `topic`. KafkaError if it is not known in time, or is refused."""
        deadline_ms = self.now_ms() + timeout_ms
        backoff = self.backoff()
        asked = False
        while True:
            view = self.topics.get(topic)
            if view is not None and view.leaders:
                view.used = True
                return len(view.leaders)
            if asked and view is not None:
                if view.error is not ErrorCode.NONE and not view.error.retriable:
                    raise KafkaError(view.error, f"topic {topic}")
                if self.now_ms() >= deadline_ms:
                    code = view.error if view.error is not ErrorCode.NONE else ErrorCode.REQUEST_TIMED_OUT
                    raise KafkaError(code, f"topic {topic}: no metadata within {timeout_ms} ms{self.last_failure()}")
                await trio.sleep(min(backoff.next_ms(), max(1, deadline_ms - self.now_ms())) / 1000)
            with trio.move_on_after(max(1, deadline_ms - self.now_ms()) / 1000):
                await self.refresh([topic])
            asked = True

    async def partitions_for(self, topic: str, timeout_ms: int) -> list[PartitionInfo]:
        """The partitions of `topic`, by number. Raises as `partitions_count`."""
        await self.partitions_count(topic, timeout_ms)
        return self.metadata.partitions(topic)

    async def list_topics(self, timeout_ms: int) -> dict[str, list[PartitionInfo]]:
        """All topics that this client may see, including internal ones. KafkaError with REQUEST_TIMED_OUT if no broker
        answers in time."""
        deadline_ms = self.now_ms() + timeout_ms
        backoff = self.backoff()
        while (left_ms := deadline_ms - self.now_ms()) > 0:
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            try:
                response: MetadataResponse = await self.call_any(
                    request, min(left_ms, self.settings.request_timeout_ms)
                )
            except (NoBrokerAvailable, ChannelError) as error:
                log.debug("listing topics failed: %s", error)
                await trio.sleep(min(backoff.next_ms(), max(1, deadline_ms - self.now_ms())) / 1000)
                continue
            nodes = nodes_of(response)
            found = [topic for topic in response.topics if topic.name and topic.error_code == ErrorCode.NONE]
            return {topic.name or "": list(partitions_of(topic, nodes).values()) for topic in found}
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no list of topics within {timeout_ms} ms{self.last_failure()}")

    async def refresh(self, topics: Iterable[str] = ()) -> bool:
        """Request the metadata of `topics`, or without any, of all topics in use; False if no broker answered.

        Callers that come while a refresh is under way share the next one. KafkaError only for errors that a retry
        cannot change: AuthenticationException, UnsupportedVersionException.
        """
        self._want(topics)
        wanted = self._refreshes + (2 if self._refreshing.locked() else 1)
        async with self._refreshing:
            if self._refreshes >= wanted:
                return self._refreshed
            self._refreshed = await self._ask_for_metadata()
            self._refreshes += 1
            return self._refreshed

    def _want(self, topics: Iterable[str]) -> None:
        some = False
        for topic in topics:
            self.metadata.want(topic)
            self._wanted[topic] = None
            some = True
        self._all_wanted = self._all_wanted or not some

    async def _ask_for_metadata(self) -> bool:
        wanted, self._wanted = self._wanted, {}
        everything, self._all_wanted = self._all_wanted, False
        self._rebootstrap_if_due()
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in (self.topics if everything else wanted)],
            allow_auto_topic_creation=self.settings.allow_auto_create_topics,
        )
        try:
            answered = await self._absorb_answer_to(request)
        except BaseException:
            # The topics stay wanted: others wait for the next refresh of them.
            self._wanted = wanted | self._wanted
            self._all_wanted = self._all_wanted or everything
            raise
        if answered:
            self._failing_since_ms = None
            if everything:
                self._refreshed_ms = self.now_ms()
        elif self._failing_since_ms is None:
            self._failing_since_ms = self.now_ms()
        return answered

    async def _absorb_answer_to(self, request: MetadataRequest) -> bool:
        for _ in range(2):
            try:
                response: MetadataResponse = await self.call_any(request, last=self._node_to_ask_last())
            except (NoBrokerAvailable, ChannelError) as error:
                log.debug("metadata request failed: %s", error)
                return False
            if error_code(response.error_code) is ErrorCode.REBOOTSTRAP_REQUIRED and self._may_rebootstrap:
                self._rebootstrap("a broker answered REBOOTSTRAP_REQUIRED")
                continue
            if not response.brokers:
                log.debug("metadata response without brokers, not even the one that sent it")
                return False
            self._moved(self.metadata.absorb(response))
            return True
        return False

    async def _refresh_old_metadata(self) -> None:
        """Refresh all metadata when it is older than metadata.max.age.ms, so that new brokers and partitions are found;
        topics that are no longer used are dropped first."""
        settings = self.settings
        max_age_ms = max(settings.metadata_max_age_ms, settings.retry_backoff_ms)
        while True:
            await trio.sleep(max(1, self._refreshed_ms + max_age_ms - self.now_ms()) / 1000)
            if self.now_ms() - self._refreshed_ms < max_age_ms:
                continue
            if not self.topics and not self.nodes:
                self._refreshed_ms = self.now_ms()
                continue
            if settings.metadata_max_idle_ms is not None:
                self.metadata.forget_unused(self.now_ms(), settings.metadata_max_idle_ms)
            backoff = self.backoff()
            while not await self._refreshed_at_last():
                await trio.sleep(backoff.next_ms() / 1000)

    async def _refreshed_at_last(self) -> bool:
        try:
            return await self.refresh()
        except KafkaError as error:
            log.warning("metadata refresh failed: %s", error)
            return False

    # Rebootstrapping

    @property
    def _may_rebootstrap(self) -> bool:
        return self.settings.metadata_recovery_strategy == "rebootstrap"

    def _rebootstrap_if_due(self) -> None:
        since_ms = self._failing_since_ms
        trigger_ms = self.settings.metadata_recovery_rebootstrap_trigger_ms
        if since_ms is not None and self._may_rebootstrap and self.now_ms() - since_ms > trigger_ms:
            self._rebootstrap(f"no metadata for {trigger_ms} ms")

    def _rebootstrap(self, reason: str) -> None:
        """Forget all brokers but the bootstrap servers (KIP-1102)."""
        log.info("returning to the bootstrap servers: %s", reason)
        self.metadata.forget_nodes()
        self._failing_since_ms = self.now_ms()
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    # Calls

    async def call(
        self, node_id: int, request: Message, timeout_ms: int = 0, *, at_most: int | None = None, line: str = ""
    ) -> Any:
        """Call one broker. Raises as `Channel.call`; NotSent also if the broker is unknown; KafkaError for errors that
        a retry cannot change: UnsupportedVersionException if the broker is too old (or too new) for the request,
        AuthenticationException if it rejects the client's identity.

        `timeout_ms` 0 means request.timeout.ms; `at_most` is the highest request version allowed. Each `line` is a
        separate connection: a broker answers in order, so requests that may wait there for long must not share one.
        """
        node = self.nodes.get(node_id)
        if node is None:
            raise NotSent(f"broker {node_id} is unknown")
        timeout_ms = timeout_ms or self.settings.request_timeout_ms
        return await self._connection(node, line).call(request, timeout_ms, at_most)

    def ask(
        self,
        node_id: int,
        request: Message,
        on_response: Callable[[Any], object],
        timeout_ms: int,
        at_most: int | None = None,
    ) -> None:
        """Send a request to a ready broker (`free_from_ms`) without yielding. `on_response` is called once with the
        response, or with the ChannelError that `call` would raise; it must not raise. Raises NotSent, and KafkaError as
        `call`; then `on_response` is not called.
        """
        connection = self._connections.get((node_id, ""))
        if connection is None:
            raise NotSent(f"broker {node_id} is not connected")
        connection.ask(request, on_response, timeout_ms, at_most)

    async def send_one_way(self, node_id: int, request: Message, timeout_ms: int = 0) -> None:
        """Send one broker a request that has no response. Raises as `call`."""
        node = self.nodes.get(node_id)
        if node is None:
            raise NotSent(f"broker {node_id} is unknown")
        await self._connection(node).send_one_way(request, timeout_ms or self.settings.request_timeout_ms)

    def free_from_ms(self, node_id: int) -> int | None:
        """Earliest time at which the broker takes an `ask`, later than now if it throttles; None without a
        connection."""
        connection = self._connections.get((node_id, ""))
        return None if connection is None else connection.free_from_ms

    async def connect(self, node_id: int, timeout_ms: int = 0, *, line: str = "") -> None:
        """Open a connection to one broker. Raises as `call`."""
        node = self.nodes.get(node_id)
        if node is None:
            raise NotSent(f"broker {node_id} is unknown")
        await self._connection(node, line).connect(timeout_ms or self.settings.request_timeout_ms)

    def _node_to_ask_last(self) -> NodeConnection | None:
        """The node that has answered too many metadata requests in a row, if any: it may be cut off from the others and
        stay outdated for ever."""
        now_ms = self.now_ms()
        if self._answered_by is not self._refreshed_from or now_ms - self._refreshed_from_ms > SAME_NODE_PAUSE_MS:
            self._refreshed_from, self._refreshed_from_count = self._answered_by, 0
        self._refreshed_from_count += 1
        self._refreshed_from_ms = now_ms
        return self._refreshed_from if self._refreshed_from_count > SAME_NODE_LIMIT else None

    def prefer_others(self) -> None:
        """The node that answered the last `call_any` is not the right one: it is called last from now on."""
        self._not_the_one = self._answered_by

    async def call_any(self, request: Message, timeout_ms: int = 0, last: NodeConnection | None = None) -> Any:
        """Call any broker that can be reached, `last` only if no other can. NoBrokerAvailable if none can; ChannelError
        if one was reached and did not answer (it may have processed the request); KafkaError as `call`.
        """
        deadline_ms = self.now_ms() + (timeout_ms or self.settings.request_timeout_ms)
        reasons = []
        unsupported: KafkaError | None = None
        candidates, last = self._candidates(), last or self._not_the_one
        for connection in candidates if last is None else sorted(candidates, key=lambda each: each is last):
            left_ms = deadline_ms - self.now_ms()
            if left_ms <= 0:
                reasons.append("no time was left for other brokers")
                break
            try:
                if not connection.connected:
                    await connection.connect(left_ms)
                answer = await connection.call(request, timeout_ms or self.settings.request_timeout_ms)
                self._answered_by, self._failure = connection, ""
                return answer
            except NotSent as error:
                reasons.append(str(error))
            except ChannelError as error:
                self._failure = str(error)
                raise
            except KafkaError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                unsupported = error
        if unsupported is not None:
            raise unsupported
        self._failure = "; ".join(reasons) or "no broker is known"
        raise NoBrokerAvailable(self._failure)

    def offers(self, api: ApiKey) -> bool:
        """Whether a broker that is connected now serves this API."""
        return any(connection.connected and connection.offers(api) for connection in self._every_connection())

    async def call_connected(self, request: Message) -> Any:
        """Call a broker to which there is a connection, the same one as the last time if possible. NoBrokerAvailable if
        there is none; raises as `NodeConnection.call`.
        """
        connected = [connection for connection in self._every_connection() if connection.connected]
        if self._last_used not in connected:
            self._last_used = next(iter(in_turn(connected, 0)), None)
        if self._last_used is None:
            raise NoBrokerAvailable("no broker is connected")
        return await self._last_used.call(request, self.settings.request_timeout_ms)

    def _candidates(self) -> Iterator[NodeConnection]:
        """Connections to try, in this order: known brokers that may be dialled now (silent ones last), bootstrap
        servers, and last those that are still backing off."""
        known = self._in_turn([self._connection(node) for node in self.nodes.values()])
        known.sort(key=lambda connection: connection.silent)
        bootstrap = self._in_turn(self._bootstrap if self._may_rebootstrap or not known else [])
        backing_off = [connection for connection in [*known, *bootstrap] if connection.wait_ms()]
        yield from [connection for connection in known if not connection.wait_ms()]
        if known and bootstrap:
            log.debug("no known broker can be reached, trying the bootstrap servers")
        yield from [connection for connection in bootstrap if not connection.wait_ms()]
        yield from sorted(backing_off, key=NodeConnection.wait_ms)

    def _in_turn(self, connections: Sequence[NodeConnection]) -> list[NodeConnection]:
        start = self.world.chance.randrange(0, len(connections)) if len(connections) > 1 else 0
        return in_turn(connections, start)

    def _connection(self, node: Node, line: str = "") -> NodeConnection:
        connection = self._connections.get((node.node_id, line))
        if connection is None:
            connection = self._connections[node.node_id, line] = NodeConnection(self._caller, node)
        return connection

    def _moved(self, node_ids: Iterable[int]) -> None:
        for node_id in node_ids:
            for key in [key for key in self._connections if key[0] == node_id]:
                self._connections.pop(key).close()

    def _every_connection(self) -> list[NodeConnection]:
        return [*self._bootstrap, *self._connections.values()]

    async def _close_idle_connections(self) -> None:
        max_idle_ms = self.settings.connections_max_idle_ms
        if max_idle_ms < 0:
            return
        while True:
            await trio.sleep(max(1, max_idle_ms // IDLE_LOOKS) / 1000)
            for connection in self._bootstrap:
                if connection.looks_idle():
                    connection.rest()
            for key, connection in list(self._connections.items()):
                if connection.looks_idle():
                    # Nodes come and go, and connections of single lines even more so.
                    del self._connections[key]
                    connection.close()

    def close(self) -> None:
        for connection in self._every_connection():
            connection.close()


async def _hold_nursery(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as nursery:
        task_status.started(nursery)
        await trio.sleep_forever()
