"""Fetch (1): consumers read up to the high watermark, followers up to the log end; both may wait for more.

Consumers may read from any replica (KIP-392), and a leader with a replica selector redirects them to a nearer one;
followers read from leaders.

A follower's fetch also reports its progress: the fetch offset is the end of its log, and may advance the high watermark
(which completes produce requests) before anything is read. The records of a response are regions of segment files;
their bytes go from the page cache to the socket without being copied here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import trio

from barnabas.broker.apis.fetch_conversion import (
    MAGIC_OF_VERSION,
    PARTITION_BYTES,
    SKIPPED_AT_MOST,
    down_converted,
)
from barnabas.broker.apis.fetch_conversion import (
    RESPONSE_BYTES as CONVERTED_BYTES,
)
from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.remote_fetch import RemoteReadPorts, fetch_remotely
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.fetch_context import FetchContext, InSteps, by_topic
from barnabas.broker.fetch_session import Answer, PartitionKey, TopicKey, session_key
from barnabas.broker.fetch_sessions import TOPIC_IDS_FROM_VERSION, FetchSessions
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.purgatory import DelayedOperation, Purgatory
from barnabas.broker.remote.gathering import Answers as RemoteAnswers
from barnabas.broker.remote.reader import Wanted as RemoteWanted
from barnabas.broker.replication.partition import FetchKind, OffsetIsRemote, Partition, ReadRequest
from barnabas.broker.replication.replica import FollowerFetch
from barnabas.broker.replication.replica_selection import SELECTORS, ReplicaView, Selector
from barnabas.broker.replication.throttles import Throttle
from barnabas.broker.traffic import BytesOut, Conversions
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.runtime.at_once import at_once
from barnabas.runtime.dispatch import Call
from barnabas.runtime.server import Steps
from barnabas.runtime.world import Clock
from barnabas.storage.transaction_index import AbortedTransaction as Aborted

CONSUMER = -1
READ_COMMITTED = 1
UNKNOWN_EPOCH = -1
NO_KNOWN_LEADER = (-1, UNKNOWN_EPOCH)
FOLLOWER_DEADLINE_GRID_MS = 50
"""Deadlines of waiting followers are rounded down to this grid, so that an idle leader wakes once for all of them."""
RACKS_FROM_VERSION = 11
"""Older consumers cannot be redirected to followers."""
MAX_AT_ONCE = 256
"""A request that names more partitions is served in steps."""
MAX_IN_SESSION = 1_000
"""A consumer that names more partitions gets no session."""
READ_IN_A_STEP = 16
ANSWERED_IN_A_STEP = 500
RESPONSE_BYTES = 16
PARTITION_RESPONSE_BYTES = 48
"""Size of a response for itself and for each partition, besides records. Quotas count it."""
_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_LEADER_HINTS_FROM_VERSION = 16
"""Older versions name the leader, but not its address (KIP-951)."""


@dataclass(frozen=True, slots=True)
class FetchPorts:
    lookup: PartitionLookup
    metadata: MetadataCache
    sessions: FetchSessions
    fetches: Purgatory[PartitionKey]
    """Fetches that wait for records."""
    deletions: Purgatory[PartitionKey]
    """DeleteRecords requests that wait for followers."""
    report_follower: Callable[[int], None]
    """Called with the broker id of each follower that fetches."""
    bytes_out: BytesOut
    conversions: Conversions
    monotonic: Clock
    settings: CurrentSettings
    throttle: Throttle
    """Limits what followers get that are not in sync."""
    remote: RemoteReadPorts | None = None
    """None: there is no tiered storage."""


def fetch(ports: FetchPorts, call: Call) -> Steps | None:
    request: FetchRequest = call.message
    version = call.version
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
    may_follow = version >= len(MAGIC_OF_VERSION) and call.may_on_cluster(AclOperation.CLUSTER_ACTION)
    is_trusted = not from_follower or may_follow
    as_follower = from_follower and is_trusted
    opening = ports.sessions.opening(request, version, from_follower=as_follower, now_ms=now_ms)
    if named > MAX_AT_ONCE:
        return _fetch_in_steps(ports, call, opening, (replica_id, broker_epoch), is_trusted=is_trusted, now_ms=now_ms)
    attempt = _opened(ports, call, at_once(opening), (replica_id, broker_epoch), is_trusted=is_trusted)
    if attempt is None:
        return None
    if attempt.is_long:
        return _read_in_steps(attempt, now_ms)
    attempt.read()
    at_once(_after_first_read(attempt, now_ms))
    return None


def _opened(
    ports: FetchPorts, call: Call, context: FetchContext, replica: tuple[int, int], *, is_trusted: bool
) -> _Fetch | None:
    """None if the session has an error, which was answered. `replica`: replica id and broker epoch. `is_trusted`: not a
    client that claims to be a follower."""
    attempt = _Fetch(ports, call, context, *replica)
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
    attempt = _Fetch(ports, call, context, CONSUMER, UNKNOWN_EPOCH)
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
    keys = [session_key(context.session_id)]
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
    ports.fetches.watch(attempt, keys, deadline_ms)


class _Fetch(DelayedOperation):
    """One fetch request, from the first read to the response. Checked again when one of its partitions changes."""

    __slots__ = (
        "_answers",
        "_broker_epoch",
        "_bytes_read",
        "_failed",
        "_fresh",
        "_kind",
        "_leader_only",
        "_left_open",
        "_magic",
        "_max_bytes",
        "_may_read",
        "_min_bytes",
        "_partitions",
        "_remote",
        "_selector",
        "_touched",
        "_urgent",
        "call",
        "context",
        "is_long",
        "ports",
        "replica_id",
    )

    def __init__(
        self, ports: FetchPorts, call: Call, context: FetchContext, replica_id: int, broker_epoch: int
    ) -> None:
        super().__init__()
        request: FetchRequest = call.message
        self.ports = ports
        self.call = call
        self.context = context
        self.replica_id = replica_id
        self._broker_epoch = broker_epoch
        self._may_read: Callable[[TopicKey], bool] | None = None
        """None: every topic."""
        if replica_id < 0 and call.has_authorizer:
            self._may_read = self._readable_topics()
        self._leader_only = replica_id >= 0 or call.version < RACKS_FROM_VERSION
        self._selector: Selector | None = None
        if not self._leader_only and request.rack_id:
            self._selector = SELECTORS[ports.settings().replica_selector_class]
        if replica_id >= 0:
            self._kind = FetchKind.REPLICA
        elif request.isolation_level == READ_COMMITTED:
            self._kind = FetchKind.READ_COMMITTED
        else:
            self._kind = FetchKind.READ_UNCOMMITTED
        self._max_bytes = request.max_bytes
        if replica_id < 0:
            self._max_bytes = min(request.max_bytes, ports.settings().fetch_max_bytes, call.most_fetch_bytes())
        self._magic: int | None = None
        """Newest format that the consumer reads; None: all formats."""
        if call.version < len(MAGIC_OF_VERSION):
            self._magic = MAGIC_OF_VERSION[call.version]
            self._max_bytes = min(self._max_bytes, CONVERTED_BYTES)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._answers: list[Answer] = []
        self._partitions: dict[Hashable, tuple[Partition, FetchPartition, int, int]] = {}
        """Partitions that the fetch can wait for: partition, request, log start offset, and end for this reader."""
        self._touched: dict[Hashable, None] | None = None
        """Keys that changed since the last `try_complete`; None before the first one. A change in the cluster may touch
        thousands of partitions one after the other: only the touched ones are checked each time.
        """
        self._left_open: dict[PartitionKey, None] = {}
        self._bytes_read = 0
        self._remote: dict[PartitionKey, tuple[Partition, RemoteWanted]] = {}
        """The part of the first read that only remote segments have."""
        self._failed = False
        self._urgent = False
        self.is_long = self._magic is not None
        """True if there are so many partitions that they are read in steps, or if records have to be converted."""
        self._fresh = False
        """True if nothing has run since the last read."""

    # -- rights

    def refuse_all(self) -> None:
        self._may_read = lambda _: False

    def _readable_topics(self) -> Callable[[TopicKey], bool]:
        """True for a topic that the consumer may read, and for an unknown id."""
        metadata, may_read = self.ports.metadata, may_on_topics(self.call, AclOperation.READ)

        def may_read_topic(topic: TopicKey) -> bool:
            name = topic if isinstance(topic, str) else metadata.topic_name(topic)
            return name is None or may_read(name)

        return may_read_topic

    # -- reading

    def read(self, *, again: bool = False) -> None:
        """Read every partition; `again`: the follower's progress was recorded by the first read."""
        at_once(self.reading(again=again))

    def reading(self, *, again: bool = False) -> Steps:
        """`read` in steps."""
        answers: list[Answer] = []
        if again:
            self.context.take_moved()  # later changes are not in this response
        self._partitions = {}
        self._bytes_read = 0
        if self._remote:
            self._remote = {}
        self._failed = False
        left = self._max_bytes
        self._left_open.clear()
        for key, wanted in self.context.to_read:
            data = self._read_one(key, wanted, left, again)
            if data.records:
                size = len(data.records)
                self._bytes_read += size
                left = max(0, left - size)
            elif self._remote and (remote := self._remote.get((key, data.partition_index))) is not None:
                left = max(0, left - remote[1].max_bytes)
            answers.append((key, data))
            if len(answers) % READ_IN_A_STEP == 0:
                yield None
        self._answers = answers

    def _read_one(self, key: TopicKey, wanted: FetchPartition, left: int, again: bool) -> PartitionData:
        index = wanted.partition
        if self._may_read is not None and not self._may_read(key):
            return self._failure(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_KNOWN_LEADER)
        lookup = self.ports.lookup
        partition = lookup.partitions.find(key, index)
        if partition is None:
            error = lookup.partitions.missing_error(key, index)
            return self._failure(index, error, lookup.known_leader(key, index))
        try:
            return self._read_log(key, partition, wanted, left, again)
        except KafkaError as failure:
            return self._failure(index, failure.code, partition.known_leader())

    def _read_log(
        self, key: TopicKey, partition: Partition, wanted: FetchPartition, left: int, again: bool
    ) -> PartitionData:
        if self._selector is not None and partition.is_leader:
            preferred = self._nearer(self._selector, partition, wanted.fetch_offset)
            if preferred is not None:
                return self._redirected(partition, wanted, preferred)
        # The first batch of a response is sent whole even if it is larger than the limits (KIP-74).
        request = ReadRequest(
            self._kind,
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, left if self._magic is None else min(left, PARTITION_BYTES)),
            wanted.current_leader_epoch,
            wanted.last_fetched_epoch,
            leader_only=self._leader_only,
            at_least_one_batch=self._bytes_read == 0 and not self._remote and left > 0,
        )
        if self.replica_id < 0:
            try:
                found = partition.read(request)
            except OffsetIsRemote:
                if self.ports.remote is None:
                    raise
                return self._read_remotely((key, wanted.partition), partition, request, again=again)
        elif again:
            found = partition.read(request)
        else:
            report = FollowerFetch(self.replica_id, self._broker_epoch, wanted.fetch_offset, wanted.log_start_offset)
            found = partition.follower_read(report, request)
        if found.records is not None and self._is_throttled(partition):
            found = found._replace(records=None)
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            records=found.records.region if found.records is not None else b"",
        )
        if found.diverging_epoch is not None:
            self._failed = True
            epoch, end_offset = found.diverging_epoch
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        if self._kind is not FetchKind.READ_COMMITTED:
            data.aborted_transactions = None
        elif found.aborted:
            data.aborted_transactions = _as_answer(found.aborted)
        readable = self._readable(partition)
        self._partitions[key, wanted.partition] = (partition, wanted, found.log_start_offset, readable)
        if (found.records is None and readable > wanted.fetch_offset) or (
            self.replica_id >= 0 and self.replica_id not in partition.replica.maximal_isr
        ):
            # There was no room left for it; or the follower is not in the ISR, nor proposed, and each fetch may let it
            # join.
            self._left_open[key, wanted.partition] = None
        return data

    def _read_remotely(
        self, key: PartitionKey, partition: Partition, request: ReadRequest, *, again: bool
    ) -> PartitionData:
        """No records yet. They are read when all partitions are; not if the request has waited already, or while the
        fetch quota of remote reads is exceeded."""
        found = partition.offsets(request.current_leader_epoch)
        ports, with_aborted = self.ports.remote, self._kind is FetchKind.READ_COMMITTED
        assert ports is not None
        if request.max_bytes > 0 and not again and not ports.reads.is_throttled:
            wanted = RemoteWanted(request.offset, request.max_bytes, request.at_least_one_batch, with_aborted)
            self._remote[key] = (partition, wanted)
        self._left_open[key] = None
        data = PartitionData(
            partition_index=key[1],
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            records=b"",
        )
        if not with_aborted:
            data.aborted_transactions = None
        return data

    def _is_throttled(self, partition: Partition) -> bool:
        """True if a follower that is not in sync has to wait for its records (KIP-73)."""
        if self.replica_id < 0:
            return False
        ports, in_sync = self.ports, self.replica_id in partition.replica.isr
        now_ms = ports.monotonic.now_ms()
        return ports.throttle.holds_back((partition.topic, partition.index), now_ms, in_sync=in_sync)

    def _count_throttled(self, now_ms: int) -> None:
        throttle = self.ports.throttle
        for key, data in self._answers if throttle.replicas else ():
            if data.records and (key, data.partition_index) in self._partitions:
                partition = self._partitions[key, data.partition_index][0]
                throttle.passed((partition.topic, partition.index), len(data.records), now_ms)

    def _nearer(self, select: Selector, partition: Partition, offset: int) -> int | None:
        """The follower that this consumer should read from; None for the leader."""
        ports = self.ports
        nodes = ports.metadata.alive_nodes(self.call.request.listener_name)
        settings = ports.settings()
        views = [
            ReplicaView(node_id, nodes[node_id].rack, log_end_offset, late_ms)
            for node_id, log_end_offset, late_ms in partition.replica.in_sync_followers(
                offset, ports.monotonic.now_ms()
            )
            if node_id in nodes
        ]
        leader = ReplicaView(settings.node_id, settings.broker_rack, partition.log.log_end_offset, 0)
        return select(self.call.message.rack_id, leader, views)

    def _redirected(self, partition: Partition, wanted: FetchPartition, preferred: int) -> PartitionData:
        """No records, but the preferred replica; the response does not wait."""
        found = partition.offsets(wanted.current_leader_epoch)
        self._urgent = True
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=preferred,
            records=b"",
        )

    def _readable(self, partition: Partition) -> int:
        """The offset up to which this reader may read now."""
        log = partition.log
        if self._kind is FetchKind.REPLICA:
            return log.log_end_offset
        return log.last_stable_offset if self._kind is FetchKind.READ_COMMITTED else log.high_watermark

    def _failure(self, index: int, error: ErrorCode, leader: tuple[int, int]) -> PartitionData:
        """`leader`: (id, epoch) of the known leader."""
        self._failed = True
        data = PartitionData(
            partition_index=index, error_code=error, high_watermark=-1, log_start_offset=-1, records=b""
        )
        if error in _LEADER_MOVED and self.call.version >= _LEADER_HINTS_FROM_VERSION:
            data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        return data

    def _converting(self, magic: int) -> Steps:
        """Replace what was read by message sets of `magic`."""
        conversions = self.ports.conversions
        self._bytes_read = 0
        for key, data in self._answers:
            found = self._partitions.get((key, data.partition_index))
            wanted = None if found is None else found[1]
            left = SKIPPED_AT_MOST
            if wanted is None and (remote := self._remote.get((key, data.partition_index))) is not None:
                wanted = FetchPartition(partition=data.partition_index, fetch_offset=remote[1].offset)
            read = data.records
            while wanted is not None and read:
                data.records = b""
                try:
                    data.records, offset = yield from down_converted(read, magic, wanted.fetch_offset, conversions)
                except KafkaError as error:
                    data.error_code, self._failed = error.code, True
                    break
                left -= 1
                if data.records or not left:
                    break
                # Otherwise the consumer would ask for the same again.
                wanted = FetchPartition(
                    partition=wanted.partition, fetch_offset=offset, partition_max_bytes=wanted.partition_max_bytes
                )
                read = self._read_one(key, wanted, PARTITION_BYTES, again=True).records
            self._bytes_read += len(data.records or b"")

    # -- waiting

    def check_length(self) -> None:
        """Set `is_long` if needed: a session may have much more to read than the request names."""
        if not self.is_long and len(self.context.to_read) > MAX_AT_ONCE:
            self.is_long = self.call.is_large = True

    def is_satisfied(self) -> bool:
        """True if enough was read, or the response must not wait for another reason."""
        return self._failed or self._urgent or self._bytes_read >= self._min_bytes

    def try_complete(self) -> bool:
        """Read the logs again, but only if a change gives something to answer with."""
        news = self._session_has_news() if self.context.is_incremental else self._partitions_have_news()
        if not news:
            return False
        self.check_length()
        if self.is_long:
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
        news = False
        for key in self._partitions if touched is None else touched:
            if key not in self._partitions:
                continue
            partition, wanted, log_start_offset, readable = self._partitions[key]
            if self.ports.lookup.partitions.find(partition.topic_id, partition.index) is not partition:
                self._urgent = news = True
            elif self._readable(partition) != readable or self._is_urgent(partition, wanted, log_start_offset):
                news = True
        return news

    def _session_has_news(self) -> bool:
        news = False
        for key, wanted in self.context.take_moved():
            partition = self.ports.lookup.partitions.find(key, wanted.partition)
            if (
                partition is None
                or self._readable(partition) > wanted.fetch_offset
                or self._is_urgent(partition, wanted, wanted.log_start_offset)
            ):
                news = True
        return news

    def _is_urgent(self, partition: Partition, wanted: FetchPartition, log_start_offset: int) -> bool:
        """True if an error or a new log start offset has to be reported without waiting for records."""
        replica = partition.replica
        if not self._leader_only:
            self._urgent = self._urgent or replica.replica_error(wanted.current_leader_epoch) is not None
        elif not replica.is_leader or wanted.current_leader_epoch not in (UNKNOWN_EPOCH, replica.leader_epoch):
            self._urgent = True
        elif self.replica_id >= 0 and partition.log.log_start_offset > log_start_offset >= 0:
            # A DeleteRecords request may be waiting for this follower.
            self._urgent = True
        return self._urgent

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
        if not self._remote:
            return False
        ports = self.ports.remote
        assert ports is not None
        fetch_remotely(ports, self._remote, self.call.guarded(self._fetched_remotely))
        return True

    def _fetched_remotely(self, answers: RemoteAnswers[PartitionKey]) -> None:
        if self.call.slot.connection_closed:
            return
        for place, (topic, data) in enumerate(self._answers):
            key = (topic, data.partition_index)
            if key not in answers:
                continue
            records, error = answers[key]
            if records is None:
                failure = self._failure(data.partition_index, error, self._remote[key][0].known_leader())
                self._answers[place] = (topic, failure)
                continue
            data.records = records.data
            self._bytes_read += len(records.data)
            if records.aborted:
                data.aborted_transactions = _as_answer(records.aborted)
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
        at_once(self.answering())

    def answering(self) -> Steps:
        """`answer` in steps."""
        ports, call, context = self.ports, self.call, self.context
        if self._magic is not None:
            yield from self._converting(self._magic)
        if self.replica_id < 0:
            throttle_ms, may_send = call.fetch_throttle(_response_bytes(self._answers, self._bytes_read))
            if throttle_ms and not may_send:
                # Without records and without progress of the session: the next fetch reads the same.
                call.answer(FetchResponse(error_code=context.throttled_error(), session_id=context.session_id))
                return
            ports.bytes_out.to_consumers += self._bytes_read
        else:
            ports.bytes_out.to_followers += self._bytes_read
            self._count_throttled(ports.monotonic.now_ms())
        now_ms = ports.monotonic.now_ms()
        answers: Sequence[Answer] = yield from context.finishing(self._answers, now_ms, self._left_open)
        response = FetchResponse(error_code=context.error, session_id=context.session_id)
        with_ids = call.version >= TOPIC_IDS_FROM_VERSION
        topics: list[tuple[TopicKey, list[PartitionData]]] = []
        leaders: dict[int, None] = {}
        for start in range(0, len(answers), ANSWERED_IN_A_STEP):
            if start > 0:
                yield None
            some = answers[start : start + ANSWERED_IN_A_STEP]
            by_topic(some, topics)
            if self._failed:
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
        if self._failed and call.version >= _LEADER_HINTS_FROM_VERSION:
            response.node_endpoints = leader_endpoints(ports.metadata, call, leaders)
        call.answer(response, has_errors=self._failed or context.error != ErrorCode.NONE)


def _as_answer(aborted: Iterable[Aborted]) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted]


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
