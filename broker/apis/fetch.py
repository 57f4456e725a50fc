"""Fetch (1): consumers read up to the high watermark, followers up to the log end; both may wait for more.

Consumers may read from any replica (KIP-392), and a leader with a replica selector redirects them to a nearer one;
followers read from leaders.

A follower's fetch also reports its progress: the fetch offset is the end of its log, and may advance the high watermark
(which completes produce requests) before anything is read. `fetch_reads` reads, this file waits and answers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import trio

from barnabas.broker.apis.fetch_conversion import MAGIC_OF_VERSION
from barnabas.broker.apis.fetch_reads import (
    LEADER_HINTS_FROM_VERSION,
    READ_IN_A_STEP,
    UNKNOWN_EPOCH,
    FetchPorts,
    FetchReads,
)
from barnabas.broker.apis.remote_fetch import fetch_remotely
from barnabas.broker.fetch_context import FetchContext, InSteps, by_topic
from barnabas.broker.fetch_session import Answer, PartitionKey, TopicKey
from barnabas.broker.fetch_sessions import TOPIC_IDS_FROM_VERSION
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.remote.gathering import Answers as RemoteAnswers
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from barnabas.runtime.at_once import at_once
from barnabas.runtime.dispatch import Call
from barnabas.runtime.outgoing import READ_BYTES
from barnabas.runtime.server import Steps

CONSUMER = -1
FOLLOWER_DEADLINE_GRID_MS = 50
"""Deadlines of waiting followers are rounded down to this grid, so that an idle leader wakes once for all of them."""
MAX_AT_ONCE = 256
"""A request that names more partitions is served in steps."""
MAX_IN_SESSION = 1_000
"""A consumer that names more partitions gets no session."""
ANSWERED_IN_A_STEP = 500
RESPONSE_BYTES = 16
PARTITION_RESPONSE_BYTES = 48
"""Size of a response for itself and for each partition, besides records. Quotas count it."""


def fetch(ports: FetchPorts, call: Call) -> Steps | None:
    request: FetchRequest = call.message
    version = call.request.api_version
    replica_id, broker_epoch = request.replica_id, UNKNOWN_EPOCH
    if version >= 15:
        replica_id, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    from_follower = replica_id >= 0
    now_ms = ports.monotonic.now_ms()
    named = 0
    for topic in request.topics:
        named += len(topic.partitions)
    for forgotten in request.forgotten_topics_data:
        named += len(forgotten.partitions)
    if named > MAX_IN_SESSION and not from_follower:
        return _fetch_without_session(ports, call)
    is_trusted = not from_follower or (
        version >= len(MAGIC_OF_VERSION)
        and (not call.has_authorizer or call.may_on_cluster(AclOperation.CLUSTER_ACTION))
    )
    as_follower = from_follower and is_trusted
    opening = ports.sessions.opening(request, version, from_follower=as_follower, now_ms=now_ms)
    if named > MAX_AT_ONCE:
        return _fetch_in_steps(ports, call, opening, (replica_id, broker_epoch), is_trusted=is_trusted, now_ms=now_ms)
    attempt = _opened(ports, call, at_once(opening), (replica_id, broker_epoch), is_trusted=is_trusted)
    if attempt is None:
        return None
    if attempt.is_long:
        return _read_in_steps(attempt, now_ms)
    if not (as_follower and attempt.only_waits()):
        attempt.read()
    for _ in _after_first_read(attempt, now_ms):
        pass
    return None


def _opened(
    ports: FetchPorts, call: Call, context: FetchContext, replica: tuple[int, int], *, is_trusted: bool
) -> _Fetch | None:
    """None if the session has an error, which was answered. `replica`: replica id and broker epoch. `is_trusted`: not a
    client that claims to be a follower."""
    attempt = _Fetch(ports, call, context, replica)
    if not is_trusted:
        attempt.refuse_all()
    if context.error != ErrorCode.NONE:
        attempt.answer()
        return None
    if replica[0] >= 0 and is_trusted:
        call.slot.comes_from_node()
        ports.report_follower(replica[0])
    attempt.check_length()
    return attempt


def _fetch_in_steps(
    ports: FetchPorts,
    call: Call,
    opening: InSteps[FetchContext],
    replica: tuple[int, int],
    *,
    is_trusted: bool,
    now_ms: int,
) -> Steps:
    call.is_large = True
    attempt = _opened(ports, call, (yield from opening), replica, is_trusted=is_trusted)
    if attempt is not None:
        attempt.is_long = True
        yield from _read_in_steps(attempt, now_ms)


def _read_in_steps(attempt: _Fetch, now_ms: int) -> Steps:
    yield from attempt.reading()
    yield from _after_first_read(attempt, now_ms)


def _fetch_without_session(ports: FetchPorts, call: Call) -> Steps:
    """A request that names so many partitions is read when it arrives and, if there is too little, once more at the end
    of its maximum wait."""
    request: FetchRequest = call.message
    call.is_large = True
    context = yield from ports.sessions.open_none(request, call.version >= TOPIC_IDS_FROM_VERSION)
    attempt = _Fetch(ports, call, context, (CONSUMER, UNKNOWN_EPOCH))
    if context.error == ErrorCode.NONE:
        yield from attempt.reading()
        if attempt.fetch_remotely():
            return
        if request.max_wait_ms > 0 and not attempt.is_satisfied():
            call.spawn(_read_later, call, attempt, request.max_wait_ms)
            return
    yield from attempt.answering()


async def _read_later(call: Call, attempt: _Fetch, wait_ms: int) -> None:
    await trio.sleep(wait_ms / 1000)
    await call.take_steps(attempt.reading_and_answering())


def _after_first_read(attempt: _Fetch, now_ms: int) -> Steps:
    ports, call, context = attempt.ports, attempt.call, attempt.context
    request: FetchRequest = call.message
    from_follower = attempt.replica_id >= 0
    if from_follower and ports.deletions.delayed:
        for place, (key, wanted) in enumerate(context.to_read, 1):
            ports.deletions.check_and_complete((key, wanted.partition))
            if place % READ_IN_A_STEP == 0:
                yield None
    if attempt.fetch_remotely():
        return
    if request.max_wait_ms <= 0 or attempt.is_satisfied():
        yield from attempt.answering()
        return
    keys = context.keys
    if not context.is_incremental:
        if not context.wanted or (len(context.wanted) > MAX_IN_SESSION and context.wants_session):
            # The follower's next request has a session, with which waiting for many partitions costs no more than for
            # one.
            yield from attempt.answering()
            return
        if len(context.wanted) > MAX_IN_SESSION:
            call.spawn(_read_later, call, attempt, request.max_wait_ms)
            return
        keys = [(key, wanted.partition) for key, wanted in context.wanted]
    deadline_ms = now_ms + request.max_wait_ms
    if from_follower and request.max_wait_ms >= 4 * FOLLOWER_DEADLINE_GRID_MS:
        deadline_ms -= deadline_ms % FOLLOWER_DEADLINE_GRID_MS
    ports.fetches.watch(attempt, keys, deadline_ms, has_no_news=not context.has_moved)


class _Fetch(DelayedOperation):
    """One fetch request, from the first read to the response. Checked again when one of its partitions changes."""

    __slots__ = ("_fresh", "_min_bytes", "_reads", "_touched", "call", "context", "is_long", "ports", "replica_id")

    def __init__(self, ports: FetchPorts, call: Call, context: FetchContext, replica: tuple[int, int]) -> None:
        super().__init__()
        request: FetchRequest = call.message
        self.ports = ports
        self.call = call
        self.context = context
        self.replica_id = replica[0]
        self._reads = FetchReads(ports, call, context, replica)
        self._min_bytes = min(request.min_bytes, self._reads.max_bytes)
        self.minds_keys = not context.is_incremental
        self._touched: dict[Hashable, None] | None = None
        """Keys that changed since the last `try_complete`; None before the first one. A change in the cluster may touch
        thousands of partitions one after the other: only the touched ones are checked each time.
        """
        self.is_long = self._reads.magic is not None
        """True if there are so many partitions that they are read in steps, or if records have to be converted."""
        self._fresh = False
        """True if nothing has run since the last read."""

    def refuse_all(self) -> None:
        self._reads.refuse_all()

    def read(self, *, again: bool = False) -> None:
        for _ in self._reads.reading(again=again):
            pass

    def reading(self, *, again: bool = False) -> Steps:
        return self._reads.reading(again=again)

    # -- waiting

    def only_waits(self) -> bool:
        """True if a follower's progress was recorded, and the fetch has nothing to read yet."""
        may_wait = self.context.is_incremental and self._min_bytes > 0 and self.call.message.max_wait_ms > 0
        return may_wait and self._reads.are_caught_up()

    def check_length(self) -> None:
        """Set `is_long` if needed: a session may have much more to read than the request names."""
        if not self.is_long and self.context.reads_more_than(MAX_AT_ONCE):
            self.is_long = self.call.is_large = True

    def is_satisfied(self) -> bool:
        """True if enough was read, or the response must not wait for another reason."""
        reads = self._reads
        return reads.failed or reads.urgent or reads.bytes_read >= self._min_bytes

    def try_complete(self) -> bool:
        """Read the logs again, but only if a change gives something to answer with."""
        news = self._session_has_news() if self.context.is_incremental else self._partitions_have_news()
        if not news:
            return False
        if self.is_long or self.context.reads_more_than(MAX_AT_ONCE):
            return self.force_complete()
        self.read(again=True)
        if not self.is_satisfied():
            return False
        self._fresh = True
        return self.force_complete()

    def touched(self, key: Hashable) -> None:
        if self._touched is not None:
            self._touched[key] = None

    def _partitions_have_news(self) -> bool:
        touched, self._touched = self._touched, {}
        reads, news = self._reads, False
        for key in reads.partitions if touched is None else touched:
            if key not in reads.partitions:
                continue
            partition, wanted, log_start_offset, readable = reads.partitions[key]
            if self.ports.lookup.partitions.find(partition.topic_id, partition.index) is not partition:
                reads.urgent = news = True
            elif reads.readable(partition) != readable or reads.is_urgent(partition, wanted, log_start_offset):
                news = True
        return news

    def _session_has_news(self) -> bool:
        reads, news = self._reads, False
        for key, wanted in self.context.take_moved():
            partition = self.ports.lookup.partitions.find(key, wanted.partition)
            if (
                partition is None
                or reads.readable(partition) > wanted.fetch_offset
                or reads.is_urgent(partition, wanted, wanted.log_start_offset)
            ):
                news = True
        return news

    def failed(self, error: Exception) -> None:
        self.call.failed(error)

    def on_complete(self) -> None:
        if self.call.slot.connection_closed:
            return
        if not self._fresh:
            self.check_length()
        if self.is_long:
            self.call.spawn(self.call.take_steps, self.reading_and_answering())
        else:
            if not self._fresh:
                self.read(again=True)
            self.answer()

    # -- remote segments

    def fetch_remotely(self) -> bool:
        """Read from remote segments what the first read did not find here, then answer. False if there is nothing."""
        if not self._reads.remote:
            return False
        ports = self.ports.remote
        assert ports is not None
        fetch_remotely(ports, self._reads.remote, self.call.guarded(self._fetched_remotely))
        return True

    def _fetched_remotely(self, answers: RemoteAnswers[PartitionKey]) -> None:
        if self.call.slot.connection_closed:
            return
        self._reads.add_remote(answers)
        if self.is_long:
            self.call.spawn(self.call.take_steps, self.answering())
        else:
            self.answer()

    # -- answering

    def reading_and_answering(self) -> Steps:
        """The rest of the work after the wait."""
        yield from self.reading(again=True)
        yield from self.answering()

    def answer(self) -> None:
        for _ in self.answering():
            pass

    def answering(self) -> Steps:
        """`answer` in steps."""
        ports, call, context, reads = self.ports, self.call, self.context, self._reads
        if reads.magic is not None:
            yield from reads.converting(reads.magic)
        if self.replica_id < 0:
            throttle_ms, may_send = call.fetch_throttle(_response_bytes(reads.answers, reads.bytes_read))
            if throttle_ms and not may_send:
                # Without records and without progress of the session: the next fetch reads the same.
                call.answer(FetchResponse(error_code=context.throttled_error(), session_id=context.session_id))
                return
            ports.bytes_out.to_consumers += reads.bytes_read
        now_ms = ports.monotonic.now_ms()
        if self.replica_id >= 0:
            ports.bytes_out.to_followers += reads.bytes_read
            if ports.throttle.replicas.topics:
                reads.count_throttled(now_ms)
        if 0 < reads.bytes_read <= READ_BYTES:
            reads.load()
        answers: Sequence[Answer] = yield from context.finishing(reads.answers, now_ms, reads.left_open)
        response = FetchResponse(error_code=context.error, session_id=context.session_id)
        with_ids = call.request.api_version >= TOPIC_IDS_FROM_VERSION
        topics: list[tuple[TopicKey, list[PartitionData]]] = []
        leaders: dict[int, None] = {}
        for start in range(0, len(answers), ANSWERED_IN_A_STEP):
            if start > 0:
                yield None
            some = answers[start : start + ANSWERED_IN_A_STEP]
            by_topic(some, topics)
            if reads.failed:
                leaders.update(dict.fromkeys(data.current_leader.leader_id for _, data in some))
        for place, (key, partitions) in enumerate(topics, 1):
            if place % ANSWERED_IN_A_STEP == 0:
                yield None
            topic = FetchableTopicResponse(partitions=partitions)
            if with_ids:
                assert isinstance(key, bytes)
                topic.topic_id = key
            else:
                assert isinstance(key, str)
                topic.topic = key
            response.responses.append(topic)
        if reads.failed and call.version >= LEADER_HINTS_FROM_VERSION:
            response.node_endpoints = leader_endpoints(ports.metadata, call, leaders)
        call.answer(response, has_errors=reads.failed or context.error != ErrorCode.NONE)


def _response_bytes(answers: Sequence[Answer], records_bytes: int) -> int:
    """The size of a response with these answers, nearly."""
    return RESPONSE_BYTES + PARTITION_RESPONSE_BYTES * len(answers) + records_bytes


def leader_endpoints(metadata: MetadataCache, call: Call, leaders: Iterable[int]) -> list[NodeEndpoint]:
    """Addresses of the leaders that the response names, so that the client need not send a Metadata request."""
    endpoints = []
    for leader_id in sorted(leader_id for leader_id in leaders if leader_id >= 0):
        node = metadata.node(leader_id, call.request.listener_name)
        if node is not None:
            endpoints.append(NodeEndpoint(node_id=leader_id, host=node.host, port=node.port, rack=node.rack))
    return endpoints
