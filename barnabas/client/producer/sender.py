"""Sends batches to brokers and handles the responses.

When something may have become ready, everything ready is turned into requests, one for each node with all partitions
that it leads; a task waits for what time alone makes ready. Requests are sent, and responses handled, without a task
for each. Only acks=0, which has no responses, needs a task for each node, which waits until the system has taken its
requests.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial as bind
from typing import Any

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.metadata import STALE_METADATA, TopicPartition
from barnabas.client.producer.admission import Admission
from barnabas.client.producer.metrics import ProducerMetrics
from barnabas.client.producer.partition_queue import PartitionQueue
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.record_accumulator import RecordAccumulator, RecordAppendResult
from barnabas.client.producer.settings import ProducerSettings
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.channel import CallTimedOut, ChannelError, NotSent

log = logging.getLogger(__name__)

CALL_MARGIN_MS = 1_000
"""Extra time to wait for a broker, on top of the time that it waits for its followers."""


@dataclass(slots=True)
class _Node:
    """One broker, as a target of Produce."""

    node_id: int
    queue: deque[list[ProducerBatch]] = field(default_factory=deque)
    """With acks=0: requests not sent yet."""
    sending: bool = False
    """A task sends the requests in `queue`."""
    in_flight: int = 0
    """Number of requests without a response."""
    connecting: bool = False
    ready_ms: int = 0
    """Last time at which there was something to send."""
    drained_ms: int = 0
    """Time of the last request."""


@dataclass(slots=True)
class _Request:
    """A request in flight."""

    node: _Node
    batches: list[ProducerBatch]
    began_ms: int


class Sender:
    """The sender of one producer."""

    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        accumulator: RecordAccumulator,
        settings: ProducerSettings,
        admission: Admission | None,
        metrics: ProducerMetrics,
    ) -> None:
        """`nursery` runs the requests. Without `admission` the producer is not idempotent."""
        self._cluster = cluster
        self._nursery = nursery
        self._accumulator = accumulator
        self._settings = settings
        self._admission = admission
        self._metrics = metrics
        self._nodes: dict[int, _Node] = {}
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._admitting: dict[TopicPartition, None] = {}
        self._sought: dict[str, None] = {}
        """Topics whose leaders have to be looked up."""
        self._seeking = False
        self._news = trio.Event()
        self._quiet = trio.Event()
        self._sleep = trio.CancelScope()
        """Its deadline is the next check without news."""
        self._stepping = False
        self._unhandled: deque[tuple[_Request, Any]] = deque()
        """Responses that came in the middle of a step."""
        self._stopped = False

    def wake(self) -> None:
        """Something may have become ready."""
        self._news.set()

    @property
    def requests_in_flight(self) -> int:
        return sum(node.in_flight for node in self._nodes.values())

    async def answered(self) -> None:
        """Wait until no request is in flight."""
        while self.requests_in_flight:
            self._quiet = trio.Event()
            await self._quiet.wait()

    def is_available(self, node_id: int) -> bool:
        """False if the node has taken nothing for partitioner.availability.timeout.ms."""
        patience_ms = self._settings.partitioner_availability_timeout_ms
        node = self._nodes.get(node_id)
        return not patience_ms or node is None or node.ready_ms - node.drained_ms <= patience_ms

    async def run(self) -> None:
        """Run until it is cancelled."""
        try:
            while True:
                self._news = trio.Event()
                self._sleep = trio.CancelScope()
                self._step()
                with self._sleep:
                    await self._news.wait()
        finally:
            self._stopped = True

    def appended(self, result: RecordAppendResult) -> bool:
        """A batch is full, or has its first record. True if something could be sent at once; else the batch lingers,
        for linger.ms at most.
        """
        if not result.batch_is_full and self._settings.linger_ms and not self._accumulator.urgent:
            place = TopicPartition(result.future.topic, result.future.partition)
            if self._admission is None or self._accumulator.queue(place).producer is not None:
                self._look_again_in(self._settings.linger_ms)
                return False
        self._step()
        return True

    def _step(self) -> None:
        """Make the requests that can be made now, and schedule the next check."""
        if self._stepping or self._stopped:
            # A callback sends records in the middle of a step.
            self._news.set()
            return
        self._stepping = True
        try:
            now_ms = self._cluster.now_ms()
            wake_at_ms = self._make_all_requests(now_ms)
            while self._unhandled:
                while self._unhandled:
                    self._handle(*self._unhandled.popleft())
                wake_at_ms = self._make_all_requests(now_ms)
        finally:
            self._stepping = False
        if wake_at_ms is not None:
            self._look_again_in(max(0, wake_at_ms - now_ms))

    def _look_again_in(self, wait_ms: int) -> None:
        """At the latest. An early check costs less than moving the deadline each time."""
        deadline = trio.current_time() + wait_ms / 1000
        if deadline < self._sleep.deadline:  # noqa: PLR1730 - setting it is what costs
            self._sleep.deadline = deadline

    # ---- requests

    def _make_all_requests(self, now_ms: int) -> int | None:
        """Returns the time of the next check."""
        accumulator = self._accumulator
        if self._admission is not None and self._admission.error is not None:
            accumulator.abort_undrained(self._admission.error)
        result = accumulator.ready(self._leader_of, now_ms)
        for queue in result.without_producer:
            if queue.partition not in self._admitting:
                self._admitting[queue.partition] = None
                self._nursery.start_soon(self._admit, queue)
        if result.unknown_leader_topics:
            self._seek(result.unknown_leader_topics)
        wake_at_ms = result.next_check_ms
        for node_id, queues in result.ready.items():
            throttled_until_ms = self._make_requests(self._node(node_id), queues, now_ms)
            if throttled_until_ms is not None:
                wake_at_ms = throttled_until_ms if wake_at_ms is None else min(wake_at_ms, throttled_until_ms)
        return wake_at_ms

    def _make_requests(self, node: _Node, queues: list[PartitionQueue], now_ms: int) -> int | None:
        """Up to the limit of requests in flight; returns when to try again if the broker throttles."""
        node.ready_ms = now_ms
        free_from_ms = self._cluster.free_from_ms(node.node_id)
        if free_from_ms is None:
            # Nothing is drained for a node that cannot be reached: another node may become leader meanwhile.
            if not node.connecting:
                node.connecting = True
                self._nursery.start_soon(self._connect, node, queues)
            return None
        if now_ms < free_from_ms:
            return free_from_ms
        at_most = self._settings.max_in_flight_requests_per_connection
        while node.in_flight < at_most and any(queue.has_unsent for queue in queues):
            batches = self._accumulator.drain(queues, self._settings.max_request_size, now_ms)
            if not batches:
                break
            self._metrics.drained(batches, now_ms)
            node.drained_ms = now_ms
            node.in_flight += 1
            if self._settings.required_acks == 0:
                node.queue.append(batches)
                if not node.sending:
                    node.sending = True
                    self._nursery.start_soon(self._send_queued, node)
            else:
                self._ask(_Request(node, batches, now_ms))
        return None

    async def _connect(self, node: _Node, queues: list[PartitionQueue]) -> None:
        try:
            await self._cluster.connect(node.node_id, self._settings.request_timeout_ms)
        except ChannelError as error:
            log.debug("broker %d: %s", node.node_id, error)
            self._seek(queue.partition.topic for queue in queues)
        except KafkaError as error:
            for queue in queues:
                queue.abort(error)
        finally:
            node.connecting = False
            self.wake()

    def _ask(self, request: _Request) -> None:
        settings, admission = self._settings, self._admission
        timeout_ms = settings.request_timeout_ms + CALL_MARGIN_MS
        at_most = None if admission is None else admission.produce_at_most
        try:
            self._cluster.ask(
                request.node.node_id,
                self._message(request.batches),
                bind(self._responded, request),
                timeout_ms,
                at_most,
            )
        except (ChannelError, KafkaError) as error:
            self._unhandled.append((request, error))

    def _responded(self, request: _Request, answer: Any) -> None:
        if self._stepping:
            self._unhandled.append((request, answer))
            return
        self._handle(request, answer)
        if not self._accumulator.is_empty:
            self._step()

    def _handle(self, request: _Request, answer: Any) -> None:
        """Handle a ProduceResponse, or the error in place of one."""
        node, batches, now_ms = request.node, request.batches, self._cluster.now_ms()
        self._over(node)
        if isinstance(answer, ProduceResponse):
            self._metrics.measure("request-latency", now_ms - request.began_ms, now_ms)
            self._metrics.measure("produce-throttle-time", answer.throttle_time_ms, now_ms)
            self._answered(batches, answer)
        elif self._stopped:
            pass  # `close` decides the batches in flight
        elif isinstance(answer, ChannelError):
            self._lost(batches, answer)
        else:
            # A retry cannot change it.
            for batch in batches:
                self._queue(batch).refused(batch, answer, now_ms)

    async def _send_queued(self, node: _Node) -> None:
        """Send the requests in `queue`, until it is empty."""
        while node.queue:
            batches = [batch for batch in node.queue.popleft() if not batch.is_done]
            try:
                if batches:
                    timeout_ms = self._settings.request_timeout_ms + CALL_MARGIN_MS
                    await self._cluster.send_one_way(node.node_id, self._message(batches), timeout_ms)
                for batch in batches:
                    self._queue(batch).acked(batch, -1, -1)
            except ChannelError as error:
                self._lost(batches, error)
            except KafkaError as error:
                for batch in batches:
                    self._queue(batch).refused(batch, error, self._cluster.now_ms())
            finally:
                self._over(node)
            self._step()
        node.sending = False

    def _over(self, node: _Node) -> None:
        node.in_flight -= 1
        if not self.requests_in_flight:
            self._quiet.set()

    def _message(self, batches: list[ProducerBatch]) -> ProduceRequest:
        """Names and ids of topics: each version of Produce has one of them."""
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, index = batch.partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicProduceData(name=name, topic_id=self._cluster.topic_id(name))
            self._queue(batch).addressed(topic.topic_id)
            topic.partition_data.append(PartitionProduceData(index=index, records=batch.encoded))
        return ProduceRequest(
            transactional_id=None if self._admission is None else self._admission.transactional_id,
            acks=self._settings.required_acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    # ---- responses

    def _lost(self, batches: list[ProducerBatch], error: ChannelError) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if isinstance(error, CallTimedOut) else ErrorCode.NETWORK_EXCEPTION
        lost = KafkaError(code, str(error))
        now_ms = self._cluster.now_ms()
        for batch in batches:
            retry_at_ms = now_ms + self._backoff(batch.partition).next_ms()
            self._queue(batch).lost(batch, lost, retry_at_ms, sent=not isinstance(error, NotSent))
        self._seek(batch.partition.topic for batch in batches)

    def _answered(self, batches: list[ProducerBatch], response: ProduceResponse) -> None:
        cluster = self._cluster
        cluster.learn_nodes(response.node_endpoints)
        missing = {batch.partition: batch for batch in batches}
        for topic in response.responses:
            name = topic.name or cluster.topic_name(topic.topic_id)
            for answer in topic.partition_responses:
                batch = None if name is None else missing.pop(TopicPartition(name, answer.index), None)
                if batch is not None:
                    self._decide(batch, answer)
        if missing:
            names = ", ".join(str(partition) for partition in missing)
            self._lost(list(missing.values()), ChannelError(f"the Produce response lacks {names}"))

    def _decide(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        cluster, queue = self._cluster, self._queue(batch)
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # The batch is there, but the broker no longer knows its offset.
            self._backoffs.pop(batch.partition, None)
            offset = answer.base_offset if code is ErrorCode.NONE else -1
            queue.acked(batch, offset, answer.log_append_time_ms)
            return
        now_ms = cluster.now_ms()
        leader = answer.current_leader
        elsewhere = code in STALE_METADATA and cluster.learn_leader(
            batch.partition, leader.leader_id, leader.leader_epoch
        )
        # A new leader named by the response is called at once (KIP-951).
        retry_at_ms = now_ms if elsewhere else now_ms + self._backoff(batch.partition).next_ms()
        queue.refused(batch, KafkaError(code, answer.error_message), retry_at_ms, _record_errors(code, answer))
        if code in STALE_METADATA and not elsewhere:
            self._seek([batch.partition.topic])

    # ---- lookups

    async def _admit(self, queue: PartitionQueue) -> None:
        assert self._admission is not None
        try:
            await self._admission.admit(queue)
        finally:
            del self._admitting[queue.partition]
            self.wake()

    def _seek(self, topics: Iterable[str]) -> None:
        self._sought.update(dict.fromkeys(topics))
        if not self._seeking:
            self._seeking = True
            self._nursery.start_soon(self._learn_leaders)

    async def _learn_leaders(self) -> None:
        """Refresh at once, and then with growing backoff, as long as leaders are missing."""
        backoff = self._cluster.backoff()
        while self._sought:
            topics, self._sought = self._sought, {}
            try:
                await self._cluster.refresh(topics)
            except KafkaError as error:
                # No broker can be called. Batches that wait for a leader fail at their timeout.
                log.warning("metadata refresh failed: %s", error)
            self.wake()
            await trio.sleep(backoff.next_ms() / 1000)
        self._seeking = False

    def _leader_of(self, partition: TopicPartition) -> int | None:
        leadership = self._cluster.leadership(partition)
        return None if leadership is None else leadership.node_id

    def _queue(self, batch: ProducerBatch) -> PartitionQueue:
        return self._accumulator.queue(batch.partition)

    def _node(self, node_id: int) -> _Node:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node(node_id)
        return node

    def _backoff(self, partition: TopicPartition) -> Backoff:
        backoff = self._backoffs.get(partition)
        if backoff is None:
            backoff = self._backoffs[partition] = self._cluster.backoff()
        return backoff


def _record_errors(code: ErrorCode, answer: PartitionProduceResponse) -> dict[int, Exception]:
    """Errors of single records (KIP-467); the others failed only because they share the batch."""
    errors: dict[int, Exception] = {}
    for each in answer.record_errors:
        message = each.batch_index_error_message or answer.error_message
        errors[each.batch_index] = KafkaError(
            code if len(answer.record_errors) == 1 else ErrorCode.INVALID_RECORD, message
        )
    return errors
