"""Fetches ahead of the application: one request at a time to each broker, for all partitions that are read there.

Fetched batches wait, undecoded, in their `PartitionState`; the next request is sent as soon as a response came. A
partition with enough waiting batches is left out, and a request that leaves one out does not wait at the broker,
because that partition may be wanted again soon.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.completed_fetch import survey
from barnabas.client.consumer.fetch_session import FetchSession, Wanted
from barnabas.client.consumer.partition_state import Flight, PartitionState
from barnabas.client.consumer.reading_settings import ReadingSettings
from barnabas.client.metadata import STALE_METADATA, TopicPartition
from barnabas.client.offset_lookup import Isolation
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.fetch import FetchResponse, PartitionData
from barnabas.runtime.channel import ChannelError

log = logging.getLogger(__name__)

LINE = "fetch"
"""Connection of its own: a fetch may wait at the broker for long, and must not delay other requests."""

SESSION_LOST = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})


@dataclass(slots=True)
class FetchMetrics:
    """Totals since the reader was opened."""

    fetches: int = 0
    bytes: int = 0
    """Size of the fetched batches, compressed."""
    latency_ms: int = 0
    """Sum over all answered fetches."""
    latency_max_ms: int = 0
    throttle_ms: int = 0
    """Sum of the throttle times in responses."""


@dataclass(slots=True)
class _Node:
    """One broker that is read from."""

    node_id: int
    session: FetchSession = field(default_factory=FetchSession)
    is_busy: bool = False
    not_before_ms: int = 0
    """End of its throttling."""
    impatient_at_ms: int = 0
    """Time from which a request may leave out partitions again."""


class Fetcher:
    """The fetches of one reader. Each broker that is read from has a task, as long as there is anything to fetch."""

    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        settings: ReadingSettings,
        states: Mapping[TopicPartition, PartitionState],
        changed: Callable[[bool], None],
    ) -> None:
        """`changed` is called after each response, with True if the metadata is stale."""
        self._cluster = cluster
        self._nursery = nursery
        self._settings = settings
        self._states = states
        self._changed = changed
        self._enough_bytes = max(1, settings.max_partition_fetch_bytes // 2)
        self._nodes: dict[int, _Node] = {}
        self.metrics = FetchMetrics()

    def look(self, now_ms: int) -> None:
        """Start fetching from every broker that has something to fetch."""
        self.feed(self._states.values(), now_ms)

    def feed(self, states: Iterable[PartitionState], now_ms: int) -> None:
        """Start fetching from the brokers of these partitions, if they have something to fetch."""
        hungry: dict[int, _Node] = {}
        for state in states:
            if state.may_fetch(now_ms) and state.waiting_bytes < self._enough_bytes:
                node = self._node_of(state, now_ms)
                if node is not None and not node.is_busy:
                    hungry[node.node_id] = node
        for node in hungry.values():
            if self._plan(node, now_ms)[0]:
                node.is_busy = True
                self._nursery.start_soon(self._read_from, node)

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When to check again if nothing else happens."""
        times = [at for node in self._nodes.values() for at in (node.not_before_ms, node.impatient_at_ms)]
        return min((at for at in times if at > now_ms), default=None)

    async def close(self) -> None:
        """End the fetch sessions at the brokers. Does not wait for responses, which would stand behind waiting fetches,
        so this takes no time. A cancel changes nothing."""
        for node in self._nodes.values():
            request = node.session.end()
            if request is not None and node.node_id in self._cluster.nodes:
                with trio.CancelScope(deadline=-float("inf"), shield=True):
                    try:
                        # An open connection takes the request at once; without one the broker has lost the session
                        # anyway.
                        await self._cluster.call(node.node_id, request, line=LINE)
                    except (ChannelError, KafkaError) as error:
                        log.debug("ending the fetch session with broker %d failed: %s", node.node_id, error)

    # ---- one broker

    async def _read_from(self, node: _Node) -> None:
        """Fetch as long as there is anything to fetch, and room for it."""
        try:
            while True:
                now_ms = self._cluster.now_ms()
                wanted, is_impatient = self._plan(node, now_ms)
                if not wanted:
                    return
                if is_impatient:
                    node.impatient_at_ms = now_ms + self._settings.fetch_max_wait_ms
                await self._fetch(node, wanted, is_impatient)
        finally:
            node.is_busy = False

    def _plan(self, node: _Node, now_ms: int) -> tuple[list[PartitionState], bool]:
        """Partitions to fetch from `node`, and whether it must answer at once because one was left out."""
        settings = self._settings
        if now_ms < node.not_before_ms:
            return [], False
        wanted: list[PartitionState] = []
        waiting_bytes, left_out = 0, False
        for state in self._states.values():
            here_bytes = state.waiting_bytes
            waiting_bytes += here_bytes
            if state.may_fetch(now_ms) and self._node_of(state, now_ms) is node:
                if here_bytes < self._enough_bytes:
                    wanted.append(state)
                else:
                    left_out = True
        if waiting_bytes >= max(1, settings.fetch_max_bytes) or (left_out and now_ms < node.impatient_at_ms):
            return [], False
        return wanted, left_out

    def _node_of(self, state: PartitionState, now_ms: int) -> _Node | None:
        """The node to fetch from; None if it is unknown."""
        leadership = self._cluster.leadership(state.partition)
        if leadership is None:
            return None
        before = state.state
        state.follow(leadership)
        if state.state is not before:
            return None  # the new leader has to validate the position first
        node_id = state.preferred(now_ms)
        if node_id is None or node_id not in self._cluster.nodes:
            state.give_up_preferred()
            node_id = leadership.node_id
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node(node_id)
        return node

    async def _fetch(self, node: _Node, wanted: list[PartitionState], is_impatient: bool) -> None:
        cluster, settings = self._cluster, self._settings
        flight = Flight()
        request, at_most = node.session.request({state.partition: self._wanted(state) for state in wanted})
        for state in wanted:
            state.flight = flight
        request.isolation_level = settings.isolation
        request.max_wait_ms = 0 if is_impatient else settings.fetch_max_wait_ms
        request.min_bytes = settings.fetch_min_bytes
        request.max_bytes = settings.fetch_max_bytes
        request.rack_id = settings.client_rack
        timeout_ms = cluster.settings.request_timeout_ms + settings.fetch_max_wait_ms
        began_ms = cluster.now_ms()
        try:
            response = await cluster.call(node.node_id, request, timeout_ms, at_most=at_most, line=LINE)
        except (ChannelError, KafkaError) as error:
            log.debug("fetch from broker %d failed: %s", node.node_id, error)
            node.session.failed()
            self._unanswered(flight, wanted, error)
            return
        took_ms = cluster.now_ms() - began_ms
        self.metrics.fetches += 1
        self.metrics.latency_ms += took_ms
        self.metrics.latency_max_ms = max(self.metrics.latency_max_ms, took_ms)
        if response.throttle_time_ms > 0:
            self.metrics.throttle_ms += response.throttle_time_ms
            node.not_before_ms = cluster.now_ms() + response.throttle_time_ms
        self._changed(self._answered(node, flight, wanted, response))

    def _wanted(self, state: PartitionState) -> Wanted:
        topic_id = self._cluster.topic_id(state.partition.topic)
        return Wanted(topic_id, state.next.offset, state.leader_epoch, self._settings.max_partition_fetch_bytes)

    def _unanswered(self, flight: Flight, wanted: list[PartitionState], error: ChannelError | KafkaError) -> None:
        now_ms = self._cluster.now_ms()
        for state in wanted:
            if state.flight is not flight:
                continue
            state.give_up_preferred()
            if isinstance(error, KafkaError):
                state.fail(error, now_ms)
            else:
                state.put_off(now_ms)
        self._changed(True)

    # ---- responses

    def _answered(self, node: _Node, flight: Flight, wanted: list[PartitionState], response: FetchResponse) -> bool:
        """Returns True if the metadata is stale."""
        self._cluster.learn_nodes(response.node_endpoints)
        was_incremental = not node.session.was_full
        answers = node.session.answered(response)
        now_ms = self._cluster.now_ms()
        stale = answers.code in STALE_METADATA or answers.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        at_once = was_incremental and answers.code in SESSION_LOST
        silent = dict.fromkeys(answers.silent)
        for state in wanted:
            answer = answers.partitions.get(state.partition)
            if answer is not None:
                _learn_ends(state, answer)
            if state.flight is not flight:
                continue
            state.flight = None
            if answer is not None:
                stale = self._absorb(state, answer) or stale
            elif (answers.code is not ErrorCode.NONE and not at_once) or state.partition in silent:
                state.put_off(now_ms)
                stale = stale or state.partition in silent
        return stale

    def _absorb(self, state: PartitionState, answer: PartitionData) -> bool:
        """Returns True if the metadata is stale."""
        code = error_code(answer.error_code)
        now_ms = self._cluster.now_ms()
        if code is ErrorCode.NONE:
            if answer.preferred_read_replica >= 0:
                state.prefer(answer.preferred_read_replica, now_ms + self._settings.metadata_max_age_ms)
            else:
                self._read(state, answer, now_ms)
            return False
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state, now_ms)
            return False
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            log.warning(
                "fetch of %s at offset %d failed: the broker answered UNKNOWN_SERVER_ERROR",
                state.partition,
                state.next.offset,
            )
            state.put_off(now_ms)
            return False
        if code is ErrorCode.CORRUPT_MESSAGE or (not code.retriable and code not in STALE_METADATA):
            state.fail(KafkaError(code, f"{state.partition} at offset {state.next.offset}"), now_ms)
            return False
        state.give_up_preferred()
        leader = answer.current_leader
        if self._cluster.learn_leader(state.partition, leader.leader_id, leader.leader_epoch):
            return False  # the new leader is called at once (KIP-951)
        state.put_off(now_ms)
        return True

    def _read(self, state: PartitionState, answer: PartitionData, now_ms: int) -> None:
        buffer = answer.records or b""
        committed_only = self._settings.isolation is Isolation.READ_COMMITTED
        aborted = (answer.aborted_transactions or ()) if committed_only else None
        fetched = survey(state.partition, buffer, state.next, aborted)
        if len(buffer) and fetched.is_empty and fetched.error is None and fetched.end == state.next:
            # Brokers since KIP-74 return at least one whole batch.
            state.fail(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, _too_large(state, self._settings)), now_ms)
            return
        self.metrics.bytes += len(buffer)
        state.arrived(fetched)

    def _out_of_range(self, state: PartitionState, now_ms: int) -> None:
        reset = self._settings.reset
        if state.give_up_preferred():
            return  # the leader may have an offset that this replica lacks
        if state.waiting:
            state.hold_until_given()
        elif reset.name == "none":
            message = f"{state.partition} has no offset {state.next.offset}, and auto_offset_reset is none"
            state.fail(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message), now_ms)
        else:
            log.info("offset of %s is out of range: %d; resetting to %s", state.partition, state.next.offset, reset)
            state.request_reset(reset)


def _learn_ends(state: PartitionState, answer: PartitionData) -> None:
    if answer.high_watermark >= 0:
        state.high_watermark = answer.high_watermark
    if answer.last_stable_offset >= 0:
        state.last_stable_offset = answer.last_stable_offset
    if answer.log_start_offset >= 0:
        state.log_start_offset = answer.log_start_offset


def _too_large(state: PartitionState, settings: ReadingSettings) -> str:
    size_bytes = settings.max_partition_fetch_bytes
    return f"{state.partition}: the batch at offset {state.next.offset} must fit into {size_bytes} bytes"
