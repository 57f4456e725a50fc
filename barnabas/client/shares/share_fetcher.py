"""The share sessions of one membership: one request at a time to each node, for fetches and acknowledgements.

A node is fetched from only while `poll` waits for records: locks begin when a broker acquires. Acknowledgements go with
the next fetch, or by themselves after `flush`. Fetched records wait, undecoded, for `poll`; they are dropped when
their session is lost or their locks have expired, because others get them then.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.metadata import STALE_METADATA, TopicPartition
from barnabas.client.shares.acknowledgements import TopicIdPartition
from barnabas.client.shares.acquired import AcquiredRecords
from barnabas.client.shares.deliveries import Deliveries
from barnabas.client.shares.meters import ShareMeters
from barnabas.client.shares.settings import ShareConsumerSettings
from barnabas.client.shares.share_session import Answer, Result, ShareSession
from barnabas.protocol.errors import ErrorCode, KafkaError, UnsupportedFieldError, error_code
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from barnabas.protocol.messages.share_fetch import PartitionData, ShareFetchRequest, ShareFetchResponse
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import Message
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.channel import ChannelError

log = logging.getLogger(__name__)

LINE = "share"
"""Connection of its own: a fetch waits at the broker, and the broker ends a session with its connection."""

PASSING = STALE_METADATA | {
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Errors of a fetch that the application does not see: another fetch follows."""


class Fetched(NamedTuple):
    """Records that wait for `poll`."""

    records: AcquiredRecords
    session: ShareSession
    generation: int
    arrived_ms: int


@dataclass(slots=True, eq=False)
class _Node:
    """One broker that leads partitions of this member, or did."""

    node_id: int
    session: ShareSession
    backoff: Backoff
    is_busy: bool = False
    must_flush: bool = False
    """Acknowledgements are sent without a fetch."""
    not_before_ms: int = 0
    """End of its throttling, or of a backoff."""
    closed: trio.Event | None = None
    """The session has to end; set when it has."""
    refused_until_ms: dict[TopicIdPartition, int] = field(default_factory=dict)
    """Partitions that cannot be fetched for a while."""


class ShareFetcher:
    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        settings: ShareConsumerSettings,
        member_id: str,
        deliveries: Deliveries,
        meters: ShareMeters,
    ) -> None:
        """The caller sets `on_result` and `on_news`."""
        self._cluster = cluster
        self._nursery = nursery
        self._settings = settings
        self._unpacking = settings.unpacking
        self._member_id = member_id
        self._deliveries = deliveries
        self._meters = meters
        self._nodes: dict[int, _Node] = {}
        self._assigned: tuple[TopicPartition, ...] = ()
        self._max_records = 0
        """Records that `poll` waits for; 0 while nobody polls."""
        self._turn = 0
        """In the acquire mode record_limit one node acquires at a time."""
        self._is_learning = False
        self.waiting: deque[Fetched] = deque()
        self.errors: deque[KafkaError] = deque()
        """Errors for `poll`."""
        self.on_result: Callable[[Result], None] = lambda result: None
        """Called for each result of acknowledgements."""
        self.on_news: Callable[[], None] = lambda: None
        """Called when records or errors have come."""

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch from these partitions."""
        self._assigned = tuple(partitions)

    def want(self, max_records: int) -> None:
        """Fetch from now on; 0: no more."""
        self._max_records = max_records
        if max_records:
            self._look()

    def flush(self) -> None:
        """Send the acknowledgements that wait now."""
        for node in self._nodes.values():
            if node.session.has_acknowledgements:
                node.must_flush = True
                self._start(node)

    def wake_at_ms(self) -> int | None:
        """When to call `want` again if nothing else happens."""
        return min((at_ms for node in self._nodes.values() for at_ms in node.refused_until_ms.values()), default=None)

    @property
    def sessions(self) -> list[ShareSession]:
        return [node.session for node in self._nodes.values()]

    def drop_lost(self) -> None:
        """Forget waiting records that others may have by now."""
        now_ms, lock_ms = self._cluster.now_ms(), self._deliveries.lock_ms
        while self.waiting:
            records, session, generation, arrived_ms = self.waiting[0]
            if session.generation == generation and not 0 < lock_ms <= now_ms - arrived_ms:
                return
            log.debug("records of %s were fetched too long ago", records.place.topic_partition)
            self.waiting.popleft()

    async def close(self) -> None:
        """Send what is decided, and end all sessions. The caller bounds the time."""
        self.want(0)
        self.waiting.clear()
        events = []
        for node in self._nodes.values():
            node.closed = trio.Event()
            events.append(node.closed)
            self._start(node)
        for event in events:
            await event.wait()

    # ---- leaders

    def _look(self) -> None:
        """Start all requests that are due."""
        wanted = self._by_node()
        for node_id in wanted:
            if node_id not in self._nodes:
                retry_ms = self._settings.default_api_timeout_ms
                session = ShareSession(self._settings.group_id, self._member_id, retry_ms)
                self._nodes[node_id] = _Node(node_id, session, self._cluster.backoff())
        for node in self._nodes.values():
            self._start(node)

    def _by_node(self) -> dict[int, list[TopicIdPartition]]:
        """Partitions to fetch, by their leaders."""
        by_node: dict[int, list[TopicIdPartition]] = {}
        is_complete = True
        for partition in self._assigned:
            leadership, topic_id = self._cluster.leadership(partition), self._cluster.topic_id(partition.topic)
            if leadership is None or topic_id == ZERO_UUID:
                is_complete = False
                continue
            by_node.setdefault(leadership.node_id, []).append(TopicIdPartition(topic_id, *partition))
        if not is_complete:
            self._learn_soon()
        return by_node

    def _learn_soon(self) -> None:
        if not self._is_learning:
            self._is_learning = True
            self._nursery.start_soon(self._learn)

    async def _learn(self) -> None:
        """Refresh the metadata, once: later looks begin it again."""
        try:
            await self._cluster.refresh(dict.fromkeys(partition.topic for partition in self._assigned))
            await trio.sleep(self._settings.retry_backoff_ms / 1000)
        except KafkaError as error:
            self._raise_later(error)
        finally:
            self._is_learning = False
        self.on_news()

    # ---- one node

    def _start(self, node: _Node) -> None:
        if not node.is_busy:
            node.is_busy = True
            self._nursery.start_soon(self._serve, node)

    async def _serve(self, node: _Node) -> None:
        """Send requests as long as there are any."""
        try:
            while True:
                wait_ms = node.not_before_ms - self._cluster.now_ms()
                if wait_ms > 0 and node.closed is None:
                    await trio.sleep(wait_ms / 1000)
                if not await self._serve_once(node):
                    return
        finally:
            node.is_busy = False

    async def _serve_once(self, node: _Node) -> bool:
        """Send one request; False if there is none to send."""
        session = node.session
        if not session.is_open and session.has_acknowledgements:
            session.lose(KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, f"the session with broker {node.node_id} ended"))
            self._report(node)
        if node.closed is not None:
            if session.is_open:
                await self._call(node, session.last())
                session.lose(KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the consumer is closed"))
                self._report(node)
            node.closed.set()
            return False
        wanted = self._wanted(node)
        must_flush = node.must_flush or session.renews or not wanted
        if session.has_acknowledgements and must_flush:
            node.must_flush = False
            await self._call(node, session.acknowledgements())
            return True
        node.must_flush = False
        if not wanted:
            return False
        await self._call(node, session.fetch(wanted, self._settings.fetch_terms(self._max_records)))
        self._turn += 1
        if not self._settings.keeps_batches_whole:
            self._look()
        return True

    def _wanted(self, node: _Node) -> list[TopicIdPartition]:
        """Partitions to fetch now."""
        if not self._max_records or self.waiting:
            return []
        now_ms = self._cluster.now_ms()
        node.refused_until_ms = {place: at_ms for place, at_ms in node.refused_until_ms.items() if at_ms > now_ms}
        by_node = self._by_node()
        if not self._settings.keeps_batches_whole and by_node:
            on_turn = list(by_node)[self._turn % len(by_node)]
            by_node = {on_turn: by_node[on_turn]}
        return [place for place in by_node.get(node.node_id, ()) if place not in node.refused_until_ms]

    async def _call(self, node: _Node, request: Message) -> None:
        cluster, session = self._cluster, node.session
        began_ms = cluster.now_ms()
        if session.in_flight:
            self._meters.acknowledgements_sent(session.in_flight, began_ms)
        try:
            timeout_ms = cluster.settings.request_timeout_ms + self._settings.fetch_max_wait_ms
            response = await cluster.call(node.node_id, request, timeout_ms, line=LINE)
        except UnsupportedFieldError as error:
            session.cannot_renew(KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"broker {node.node_id}: {error}"))
        except ChannelError as error:
            log.debug("share request to broker %d failed: %s", node.node_id, error)
            session.failed(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {node.node_id}: {error}"))
            self._put_off(node)
            self._learn_soon()
        except KafkaError as error:
            session.failed(error)
            self._raise_later(error)
            self._put_off(node)
        else:
            if isinstance(response, ShareFetchResponse):
                self._meters.fetch_answered(began_ms, response.throttle_time_ms, cluster.now_ms())
            self._answered(node, isinstance(request, ShareFetchRequest), response)
        self._report(node)

    def _put_off(self, node: _Node) -> None:
        node.not_before_ms = self._cluster.now_ms() + node.backoff.next_ms()

    def _report(self, node: _Node) -> None:
        now_ms = self._cluster.now_ms()
        results, node.session.results = node.session.results, []
        for result in results:
            self._deliveries.finished(result, now_ms)
            if result.error is not None:
                self._meters.acknowledgements_failed(len(result.types), now_ms)
            self.on_result(result)
        self.on_news()

    # ---- responses

    def _answered(self, node: _Node, is_fetch: bool, response: Any) -> None:
        now_ms = self._cluster.now_ms()
        if response.throttle_time_ms > 0:
            node.not_before_ms = now_ms + response.throttle_time_ms
        if response.acquisition_lock_timeout_ms > 0:
            self._deliveries.lock_ms = response.acquisition_lock_timeout_ms
        self._cluster.learn_nodes(response.node_endpoints)
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self._refused(node, KafkaError(code, response.error_message))
        answers: Mapping[TopicIdPartition, Answer]
        if is_fetch:
            assert isinstance(response, ShareFetchResponse)
            answers = node.session.fetched(response, now_ms)
        else:
            assert isinstance(response, ShareAcknowledgeResponse)
            answers = node.session.acknowledged(response, now_ms)
            if node.session.has_acknowledgements and any(answer.error_code for answer in answers.values()):
                self._put_off(node)
                node.must_flush = True
        has_errors, size_bytes, acquired = False, 0, 0
        for place, answer in answers.items():
            self._follow_leader(place, answer)
            if isinstance(answer, PartitionData):
                has_errors = bool(answer.error_code) or has_errors
                size_bytes += len(answer.records or b"")
                acquired += self._absorb(node, place, answer, now_ms)
        if acquired:
            self._meters.fetched(size_bytes, acquired, now_ms)
        if not has_errors and code is ErrorCode.NONE:
            node.backoff.reset()

    def _refused(self, node: _Node, error: KafkaError) -> None:
        """The whole request was."""
        log.debug("broker %d refused a share request: %s", node.node_id, error)
        if error.code in STALE_METADATA:
            self._learn_soon()
        if error.code not in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            self._put_off(node)
        if not error.code.retriable and error.code not in PASSING:
            self._raise_later(error)

    def _absorb(self, node: _Node, place: TopicIdPartition, answer: PartitionData, now_ms: int) -> int:
        """Returns the number of offsets that were acquired."""
        code = error_code(answer.error_code)
        error = KafkaError(code, answer.error_message or f"{place.topic_partition}")
        if code is ErrorCode.NONE:
            try:
                records = AcquiredRecords(place, answer, self._unpacking)
            except KafkaError as corrupt:
                self._raise_later(corrupt)
                return 0
            if not records.is_empty:
                self.waiting.append(Fetched(records, node.session, node.session.generation, now_ms))
            return len(records.offsets)
        node.refused_until_ms[place] = now_ms + node.backoff.next_ms()
        if not code.retriable and code not in PASSING:
            self._raise_later(error)
        return 0

    def _raise_later(self, error: KafkaError) -> None:
        if all((each.code, each.message) != (error.code, error.message) for each in self.errors):
            self.errors.append(error)

    def _follow_leader(self, place: TopicIdPartition, answer: Answer) -> None:
        codes = {error_code(answer.error_code)}
        if isinstance(answer, PartitionData):
            codes.add(error_code(answer.acknowledge_error_code))
        if not codes & STALE_METADATA:
            return
        leader = answer.current_leader
        if not self._cluster.learn_leader(place.topic_partition, leader.leader_id, leader.leader_epoch):
            self._learn_soon()
