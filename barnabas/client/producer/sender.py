"""Carries batches to brokers: what goes to which node now, and what an answer means.

Whenever something may have become ready, all that is is made into requests, one for each node with all partitions that
it leads; one task looks when time has made something ready. A request leaves in the turn in which it is made; what its
answer means is decided, and the next request made, in the turn in which that comes. No task waits in between, but with
acks=0, when nobody answers: then one for each node waits until the system has taken what it was given.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial as bind
from typing import Any

import trio

from barnabas.client.backoff import Backoff
from barnabas.client.cluster import Cluster
from barnabas.client.metadata import STALE_METADATA, TopicPartition
from barnabas.client.producer.admission import Admission
from barnabas.client.producer.metrics import ProducerMetrics
from barnabas.client.producer.partition_queue import PartitionQueue
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.record_accumulator import RecordAccumulator, RecordAppendResult
from barnabas.client.producer.settings import ProducerSettings
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from runtime.channel import CallTimedOut, ChannelError, NotSent

log = logging.getLogger(__name__)

CALL_MARGIN_MS = 1_000
"""How much longer than the broker may wait for its followers we wait for the broker."""


@dataclass(slots=True)
class _Node:
    """One broker as far as producing to it goes."""

    node_id: int
    line: deque[list[ProducerBatch]] = field(default_factory=deque)
    """With acks=0: requests that are made and not sent yet."""
    telling: bool = False
    """A task sends what is in line."""
    in_flight: int = 0
    """Requests that are made and not answered."""
    connecting: bool = False
    ready_ms: int = 0
    """When there last was something for it."""
    drained_ms: int = 0
    """When something was last sent."""


@dataclass(slots=True)
class _Request:
    """One that is under way."""

    node: _Node
    batches: list[ProducerBatch]
    began_ms: int


class Sender:
    """Of one producer."""

    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        accumulator: RecordAccumulator,
        settings: ProducerSettings,
        admission: Admission | None,
        metrics: ProducerMetrics,
    ) -> None:
        """`nursery` runs the requests. Without `admission` producing is not idempotent."""
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
        """Topics whose leaders have to be learnt."""
        self._seeking = False
        self._news = trio.Event()
        self._quiet = trio.Event()
        self._sleep = trio.CancelScope()
        """Its deadline is when to look again without news."""
        self._stepping = False
        self._unheard: deque[tuple[_Request, Any]] = deque()
        """Answers that came in the midst of a step."""
        self._stopped = False

    def wake(self) -> None:
        """There is something new."""
        self._news.set()

    @property
    def requests_in_flight(self) -> int:
        return sum(node.in_flight for node in self._nodes.values())

    async def answered(self) -> None:
        """Wait until no request is under way."""
        while self.requests_in_flight:
            self._quiet = trio.Event()
            await self._quiet.wait()

    def is_available(self, node_id: int) -> bool:
        """False of a node that has not taken anything for partitioner.availability.timeout.ms."""
        patience_ms = self._settings.partitioner_availability_timeout_ms
        node = self._nodes.get(node_id)
        return not patience_ms or node is None or node.ready_ms - node.drained_ms <= patience_ms

    async def run(self) -> None:
        """Until it is cancelled."""
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
        """A batch is full, or has its first record. True if something could be done about it at once; else it lingers,
        and no longer than that.
        """
        if not result.batch_is_full and self._settings.linger_ms and not self._accumulator.urgent:
            place = TopicPartition(result.future.topic, result.future.partition)
            if self._admission is None or self._accumulator.queue(place).producer is not None:
                self._look_again_in(self._settings.linger_ms)
                return False
        self._step()
        return True

    def _step(self) -> None:
        """Make the requests that can be made now, and see when to look again."""
        if self._stepping or self._stopped:
            # Somebody's callback sends in the midst of it.
            self._news.set()
            return
        self._stepping = True
        try:
            now_ms = self._cluster.now_ms()
            wake_at_ms = self._make_all_requests(now_ms)
            while self._unheard:
                while self._unheard:
                    self._hear(*self._unheard.popleft())
                wake_at_ms = self._make_all_requests(now_ms)
        finally:
            self._stepping = False
        if wake_at_ms is not None:
            self._look_again_in(max(0, wake_at_ms - now_ms))

    def _look_again_in(self, wait_ms: int) -> None:
        """At the latest. To look too early costs less than to move the moment each time."""
        deadline = trio.current_time() + wait_ms / 1000
        if deadline < self._sleep.deadline:  # noqa: PLR1730 - setting it is what costs
            self._sleep.deadline = deadline

    # ---- requests

    def _make_all_requests(self, now_ms: int) -> int | None:
        """When to look again without news."""
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
        """As many as may be under way; gives when to come again if the broker wants to be left alone."""
        node.ready_ms = now_ms
        free_from_ms = self._cluster.free_from_ms(node.node_id)
        if free_from_ms is None:
            # Nothing is taken for a node that cannot be reached: meanwhile another one may come to lead.
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
                node.line.append(batches)
                if not node.telling:
                    node.telling = True
                    self._nursery.start_soon(self._tell, node)
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

    def _ask(self, asked: _Request) -> None:
        settings, admission = self._settings, self._admission
        timeout_ms = settings.request_timeout_ms + CALL_MARGIN_MS
        at_most = None if admission is None else admission.produce_at_most
        try:
            self._cluster.ask(
                asked.node.node_id, self._request(asked.batches), bind(self._told, asked), timeout_ms, at_most
            )
        except (ChannelError, KafkaError) as error:
            self._unheard.append((asked, error))

    def _told(self, asked: _Request, answer: Any) -> None:
        if self._stepping:
            self._unheard.append((asked, answer))
            return
        self._hear(asked, answer)
        if not self._accumulator.is_empty:
            self._step()

    def _hear(self, asked: _Request, answer: Any) -> None:
        """A ProduceResponse, or why there is none."""
        node, batches, now_ms = asked.node, asked.batches, self._cluster.now_ms()
        self._over(node)
        if isinstance(answer, ProduceResponse):
            self._metrics.measure("request-latency", now_ms - asked.began_ms, now_ms)
            self._metrics.measure("produce-throttle-time", answer.throttle_time_ms, now_ms)
            self._answered(batches, answer)
        elif self._stopped:
            pass  # What is under way then is decided by whoever closes.
        elif isinstance(answer, ChannelError):
            self._lost(batches, answer)
        else:
            # No repetition changes it.
            for batch in batches:
                self._queue(batch).refused(batch, answer, now_ms)

    async def _tell(self, node: _Node) -> None:
        """Send what is in line, until nothing is."""
        while node.line:
            batches = [batch for batch in node.line.popleft() if not batch.is_done]
            try:
                if batches:
                    timeout_ms = self._settings.request_timeout_ms + CALL_MARGIN_MS
                    await self._cluster.tell(node.node_id, self._request(batches), timeout_ms)
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
        node.telling = False

    def _over(self, node: _Node) -> None:
        node.in_flight -= 1
        if not self.requests_in_flight:
            self._quiet.set()

    def _request(self, batches: list[ProducerBatch]) -> ProduceRequest:
        """By name and by id; the version that is spoken has room for one of them."""
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, index = batch.partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicProduceData(name=name, topic_id=self._cluster.topic_id(name))
            topic.partition_data.append(PartitionProduceData(index=index, records=batch.encoded))
        return ProduceRequest(
            transactional_id=None if self._admission is None else self._admission.transactional_id,
            acks=self._settings.required_acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    # ---- answers

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
            told = ", ".join(str(partition) for partition in missing)
            self._lost(list(missing.values()), ChannelError(f"the answer to a produce says nothing of {told}"))

    def _decide(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        cluster, queue = self._cluster, self._queue(batch)
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # A duplicate is there, but the broker does not remember where.
            self._backoffs.pop(batch.partition, None)
            offset = answer.base_offset if code is ErrorCode.NONE else -1
            queue.acked(batch, offset, answer.log_append_time_ms)
            return
        now_ms = cluster.now_ms()
        leader = answer.current_leader
        elsewhere = code in STALE_METADATA and cluster.learn_leader(
            batch.partition, leader.leader_id, leader.leader_epoch
        )
        # Who knows the new leader asks it at once (KIP-951).
        retry_at_ms = now_ms if elsewhere else now_ms + self._backoff(batch.partition).next_ms()
        queue.refused(batch, KafkaError(code, answer.error_message), retry_at_ms, _record_errors(code, answer))
        if code in STALE_METADATA and not elsewhere:
            self._seek([batch.partition.topic])

    # ---- what is missing

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
        """At once, and then ever more slowly, as long as leaders are missing."""
        backoff = self._cluster.backoff()
        while self._sought:
            topics, self._sought = self._sought, {}
            try:
                await self._cluster.refresh(topics)
            except KafkaError as error:
                # Nobody can be asked. What waits for a leader fails when its time is over.
                log.warning("metadata: %s", error)
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
    """Of single records (KIP-467); the others failed only because they were in the same batch."""
    errors: dict[int, Exception] = {}
    for each in answer.record_errors:
        told = each.batch_index_error_message or answer.error_message
        errors[each.batch_index] = KafkaError(
            code if len(answer.record_errors) == 1 else ErrorCode.INVALID_RECORD, told
        )
    return errors
