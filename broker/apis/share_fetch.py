"""ShareFetch (78): members of share groups acquire records of share partitions, and acknowledge earlier ones (KIP-932).

A request that finds too little waits until there is more to acquire in one of its partitions: new records, or records
that others have released. What is acquired is read and locked in one step, so that no two members get the same. As in
Fetch, the records of a response are regions of segment files.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from barnabas.broker.apis.fetch import PARTITION_RESPONSE_BYTES, RESPONSE_BYTES, leader_endpoints
from barnabas.broker.apis.fetch_reads import UNKNOWN_EPOCH
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.apis.share_calls import RENEWAL_FROM_VERSION, Acknowledging, SharePorts, check_request
from barnabas.broker.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.replication.reads import FetchKind, OffsetIsRemote, ReadRequest, ReadResult
from barnabas.broker.shares.acquisition import AcquiredRange, Wanted
from barnabas.broker.shares.fetched import FetchedBatch, aborted_in, offsets_of
from barnabas.broker.shares.led_partitions import LedSharePartition
from barnabas.broker.shares.remote_records import HeldBytes
from barnabas.broker.shares.sessions import ShareSession, TopicPartition
from barnabas.broker.shares.share_configs import ShareConfigs
from barnabas.broker.shares.state import SharePartitionKey
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, CorruptBatch, read_header
from barnabas.runtime.call import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps
from barnabas.runtime.world import FileRegion
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.segment_list import LogSlice

BY_RECORD = 1
"""The acquire mode `record_limit` (KIP-1206)."""
MOST_BATCHES = 512
"""Batches of one partition that one fetch acquires at most, which bounds the work of a step."""
LOOK_ITEMS = 8
"""Items of work (see `Meter`) that a look at one partition takes."""
_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def share_fetch(ports: SharePorts, call: Call) -> Steps | None:
    try:
        check_request(ports, call)
        _check_renewal(call)
    except KafkaError as error:
        _refuse(call, error)
        return None
    return _fetch(ports, call)


def _refuse(call: Call, error: KafkaError) -> None:
    call.answer(ShareFetchResponse(error_code=error.code))


def _check_renewal(call: Call) -> None:
    """A request that renews locks fetches nothing: that could take longer than the locks (KIP-1222)."""
    request: ShareFetchRequest = call.message
    if _renews(call) and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _renews(call: Call) -> bool:
    return bool(call.version >= RENEWAL_FROM_VERSION and call.message.is_renew_ack)


def _fetch(ports: SharePorts, call: Call) -> Steps:
    request: ShareFetchRequest = call.message
    deadline_ms = ports.monotonic.now_ms() + max(0, request.max_wait_ms)
    meter = Meter(call)
    named: list[TopicPartition] = []
    acknowledges = False
    for topic in request.topics:
        for asked in topic.partitions:
            named.append((topic.topic_id, asked.partition_index))
            acknowledges = acknowledges or bool(asked.acknowledgement_batches)
            if meter.step_ends():
                yield None
    forgotten = [(it.topic_id, index) for it in request.forgotten_topics_data for index in it.partitions]
    try:
        session = _session(ports, call, (named, forgotten), acknowledges=acknowledges)
    except KafkaError as error:
        if error.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            _refuse(call, error)
            return
        # The client tries again at once.
        refusal = error
        ports.shares.partitions.after(deadline_ms, call.guarded(lambda: _refuse(call, refusal)))
        return
    acknowledging = Acknowledging(ports, call)
    if acknowledges:
        yield from acknowledging.beginning()
    else:
        acknowledging.begin_nothing()
    attempt = _ShareFetch(ports, call, session, acknowledging)
    if request.share_session_epoch != FINAL_EPOCH and not _renews(call):
        yield from attempt.looking()
    if request.max_wait_ms <= 0 or attempt.is_satisfied():
        attempt.force_complete()
        return
    ports.shares.partitions.fetches.watch(attempt, attempt.keys(), deadline_ms)
    yield from attempt.looking_again()


def _session(
    ports: SharePorts, call: Call, changes: tuple[list[TopicPartition], list[TopicPartition]], *, acknowledges: bool
) -> ShareSession:
    """The session of a request, with its changes: partitions to add, and to forget. Raises KafkaError."""
    request: ShareFetchRequest = call.message
    sessions, epoch = ports.shares.sessions, request.share_session_epoch
    assert request.group_id is not None and request.member_id is not None
    key = (request.group_id, request.member_id)
    if epoch == FINAL_EPOCH:
        return sessions.closing(key)
    if epoch == INITIAL_EPOCH:
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return sessions.open(key, call.request.connection_id, changes[0])
    session = sessions.resume(key, epoch)
    sessions.change(session, *changes)
    return session


class _Readable(NamedTuple):
    """Records of one partition that may be acquired."""

    led: LedSharePartition
    offset: int
    found: ReadResult
    records: LogSlice


class _ShareFetch(DelayedOperation):
    """One ShareFetch request, from the first look at its partitions to the response."""

    __slots__ = (
        "_acknowledging",
        "_answers",
        "_call",
        "_configs",
        "_errors",
        "_led",
        "_left_records",
        "_may_read",
        "_ports",
        "_request",
        "_session",
        "_sizes",
        "_touched",
    )

    def __init__(self, ports: SharePorts, call: Call, session: ShareSession, acknowledging: Acknowledging) -> None:
        super().__init__()
        self._ports = ports
        self._call = call
        self._session = session
        self._acknowledging = acknowledging
        self._request: ShareFetchRequest = call.message
        self._configs: ShareConfigs = ports.configs(session.key[0])
        self._may_read = may_on_topics(call, AclOperation.READ)
        self._led: dict[TopicPartition, LedSharePartition] = {}
        self._errors: dict[TopicPartition, KafkaError] = {}
        self._sizes: dict[TopicPartition, int] = {}
        """Bytes that may be acquired, as of the last look at each partition."""
        self._touched: dict[TopicPartition, None] = {}
        self._left_records = max(0, self._request.max_records)
        self._answers: dict[TopicPartition, PartitionData] = {}

    # -- looking

    def keys(self) -> list[Hashable]:
        keys: list[Hashable] = []
        for key, led in self._led.items():
            keys += [led.key, key]
        return keys

    def looking(self) -> Steps:
        """Find out how much there is to acquire. If one partition has all that the client takes, the others, which will
        be the first ones in later requests, are left out."""
        meter = Meter(self._call)
        wants = self._left_records > 0 and self._max_bytes > 0
        is_first = self._request.share_session_epoch == INITIAL_EPOCH
        for key in self._session.in_turn(self._request.share_session_epoch):
            try:
                self._check(key)
                if wants:
                    self._led[key] = self._ports.shares.partitions.use(SharePartitionKey(self._session.key[0], *key))
                    if self._look(key) and not is_first:
                        return
            except KafkaError as error:
                self._errors[key] = error
            if meter.step_ends(LOOK_ITEMS):
                yield None

    def looking_again(self) -> Steps:
        """Find what has changed since the first look, and before the request was watched."""
        meter = Meter(self._call)
        for key in list(self._led):
            if self.completed:
                return
            self.touched(key)
            if meter.step_ends(LOOK_ITEMS):
                self.look()
                yield None
        self.look()

    def _check(self, key: TopicPartition) -> None:
        """Raises KafkaError if the client may not read the partition, or there is none."""
        topic_id, index = key
        topic = self._ports.metadata.image.topics.by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._may_read(topic.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if index not in topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    @property
    def _max_bytes(self) -> int:
        most = min(self._ports.settings().fetch_max_bytes, self._call.most_fetch_bytes())
        return max(0, min(self._request.max_bytes, most))

    def _look(self, key: TopicPartition) -> bool:
        """True if the partition probably has as many records as the client takes, and that is enough for an answer."""
        self._sizes.pop(key, None)
        try:
            readable = self._readable(key, self._max_bytes, at_least_one_batch=True)
        except KafkaError as error:
            self._errors[key] = error
            del self._led[key]
            return False
        if readable is None:
            return False
        self._sizes[key] = readable.records.size_bytes
        core = readable.led.core
        assert core is not None
        found = min(readable.records.upper_offset - core.end_offset, core.room(self._configs.terms.max_record_locks))
        return found >= self._left_records and self.is_satisfied()

    def _readable(self, key: TopicPartition, max_bytes: int, *, at_least_one_batch: bool) -> _Readable | None:
        """None if there is nothing to acquire. Raises KafkaError."""
        led = self._led[key]
        if led.error is not None:
            raise led.error
        core = led.core
        if core is None:
            return None
        partitions = self._ports.shares.partitions
        partitions.log_start_moved(led)
        if not core.can_acquire(self._configs.terms.max_record_locks):
            return None
        kind = FetchKind.READ_COMMITTED if self._configs.read_committed else FetchKind.READ_UNCOMMITTED
        offset = core.next_fetch_offset()
        try:
            found = led.partition.read(ReadRequest(kind, offset, max_bytes, at_least_one_batch=at_least_one_batch))
        except OffsetIsRemote:
            return self._remotely(led, offset, max_bytes, at_least_one_batch=at_least_one_batch)
        except OffsetOutOfRange:
            # The log was cut behind its high watermark, in an unclean election: its records will come to this offset.
            return None
        return None if found.records is None else _Readable(led, offset, found, found.records)

    def _remotely(
        self, led: LedSharePartition, offset: int, max_bytes: int, *, at_least_one_batch: bool
    ) -> _Readable | None:
        """None if the records have to be read first; then this fetch is looked at again."""
        remote = self._ports.remote
        found = None if remote is None else remote.find(led, offset, max_bytes, at_least_one_batch=at_least_one_batch)
        if found is None:
            return None
        records, aborted = found
        offsets = led.partition.offsets(UNKNOWN_EPOCH)
        if self._configs.read_committed:
            offsets = offsets._replace(aborted=aborted)
        return _Readable(led, offset, offsets, records)

    def is_satisfied(self) -> bool:
        """True if there is enough to acquire, or nothing to wait for."""
        if not self._led:
            return True
        enough = max(1, min(self._request.min_bytes, self._max_bytes))
        return self._request.min_bytes <= 0 or sum(self._sizes.values()) >= enough

    # -- waiting

    def touched(self, key: Hashable) -> None:
        if isinstance(key, SharePartitionKey):
            self._touched[key.topic_id, key.partition] = None
        elif isinstance(key, tuple):
            self._touched[key] = None

    def try_complete(self) -> bool:
        touched, self._touched = self._touched, {}
        errors = len(self._errors)
        for key in touched:
            if key in self._led:
                self._look(key)
        return (len(self._errors) > errors or self.is_satisfied()) and self.force_complete()

    def failed(self, error: Exception) -> None:
        self._call.failed(error)

    def on_complete(self) -> None:
        steps = self._completing()
        try:
            next(steps)
        except StopIteration:
            return
        self._call.spawn(self._call.take_steps, steps)

    # -- acquiring

    def _completing(self) -> Steps:
        """Acquire, and answer once the acknowledgements are stored."""
        yield from self._acquiring()
        self._acknowledging.when_done(self._call.guarded(self._answer))

    def _acquiring(self) -> Steps:
        sizes, request = self._sizes, self._request
        if not sizes:
            return
        most = self._max_bytes
        size = RESPONSE_BYTES + PARTITION_RESPONSE_BYTES * len(sizes) + min(most, sum(sizes.values()))
        throttle_ms, may_send = self._call.fetch_throttle(size)
        if throttle_ms and not may_send:
            # Nothing is acquired, or the time would count against its deliveries.
            return
        share = max(1, most // len(sizes))
        wanted = Wanted(
            self._session.key[1],
            self._left_records,
            max(1, request.batch_size),
            self._call.version >= RENEWAL_FROM_VERSION and request.share_acquire_mode == BY_RECORD,
            self._configs.terms.delivery_count_limit,
            self._configs.terms.max_record_locks,
        )
        left = most
        is_first = True
        for key in sizes:
            if self._left_records <= 0 or not self._has_session():
                return
            if not is_first:
                yield None
            data = self._acquire(key, replace(wanted, max_records=self._left_records), min(share, left), is_first)
            if data is not None:
                is_first = False
                left -= len(data.records or b"")
                self._answers[key] = data

    def _has_session(self) -> bool:
        """False if the member is gone: nothing would release what it acquires."""
        is_open = self._ports.shares.sessions.find(self._session.key) is self._session
        return is_open and not self._call.slot.connection_closed

    def _acquire(self, key: TopicPartition, wanted: Wanted, max_bytes: int, is_first: bool) -> PartitionData | None:
        try:
            readable = self._readable(key, max_bytes, at_least_one_batch=is_first)
        except KafkaError as error:
            self._errors[key] = error
            return None
        if readable is None:
            return None
        led, offset, found, records = readable
        core, now_ms = led.core, self._ports.monotonic.now_ms()
        assert core is not None
        try:
            batches = _batches(records, max(offset, core.end_offset) + wanted.max_records)
        except OSError as error:
            self._errors[key] = led.partition.log.health.failed(error)
            return None
        except CorruptBatch as error:
            self._errors[key] = error
            return None
        fetched = [it.offsets for it in batches]
        acquired = core.acquire(wanted, fetched, offset, now_ms, self._configs.terms.lock_ms)
        if found.aborted:
            acquired = core.archive_aborted(acquired, aborted_in(batches, found.aborted))
        self._ports.shares.partitions.set_timer(led)
        if not acquired:
            return None
        self._left_records -= sum(it.last_offset - it.first_offset + 1 for it in acquired)
        region = _region(records, batches, acquired)
        self._ports.bytes_out.to_consumers += len(region)
        return PartitionData(
            partition_index=key[1],
            records=region,
            acquired_records=[
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=delivery_count)
                for first, last, delivery_count in acquired
            ],
        )

    # -- answering

    def _answer(self) -> None:
        request, session, ports = self._request, self._session, self._ports
        answers: dict[TopicPartition, PartitionData] = {}
        if request.share_session_epoch == FINAL_EPOCH:
            ports.shares.close_session(session)
        else:
            answers = self._fetched()
        leaders = self._name_leaders(answers)
        for key, error in self._acknowledging.results.items():
            data = answers.setdefault(key, PartitionData(partition_index=key[1], records=b""))
            if error is not None:
                data.acknowledge_error_code, data.acknowledge_error_message = error.code, error.message
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        for (topic_id, _), data in answers.items():
            if topic_id not in topics:
                topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id)
            topics[topic_id].partitions.append(data)
        if len(answers) > MOST_BATCHES:
            self._call.is_large = True
        self._call.answer(
            ShareFetchResponse(
                acquisition_lock_timeout_ms=self._configs.terms.lock_ms,
                responses=list(topics.values()),
                node_endpoints=[
                    NodeEndpoint(node_id=it.node_id, host=it.host, port=it.port, rack=it.rack)
                    for it in leader_endpoints(ports.metadata, self._call, leaders)
                ],
            )
        )

    def _fetched(self) -> dict[TopicPartition, PartitionData]:
        """The answers for partitions of the session; the first response has all of them, later ones what is new."""
        is_first = self._request.share_session_epoch == INITIAL_EPOCH
        answers: dict[TopicPartition, PartitionData] = {}
        for key in [*self._session.partitions]:
            data = self._answers.get(key)
            if data is None:
                error = self._errors.get(key)
                data = PartitionData(partition_index=key[1], error_code=0 if error is None else error.code, records=b"")
            if is_first or self._session.must_answer(key, data.error_code, has_records=bool(data.records)):
                answers[key] = data
        return answers

    def _name_leaders(self, answers: dict[TopicPartition, PartitionData]) -> Sequence[int]:
        """Put the known leaders into answers that say that the leader is another one. Returns their ids."""
        leaders: dict[int, None] = {}
        for (topic_id, index), data in answers.items():
            if data.error_code in _LEADER_MOVED:
                leader_id, leader_epoch = self._ports.lookup.known_leader(topic_id, index)
                data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
                leaders[leader_id] = None
        return list(leaders)


def _batches(records: LogSlice, end_offset: int) -> list[FetchedBatch]:
    """The batches up to the one with `end_offset`, and not too many."""
    batches: list[FetchedBatch] = []
    position, end = records.position, records.position + records.size_bytes
    next_offset = records.first_offset
    while position < end and len(batches) < MOST_BATCHES and next_offset < end_offset:
        header = read_header(records.file.pread(BATCH_HEADER_BYTES, position))
        batches.append(FetchedBatch(offsets_of(header, next_offset), header, position))
        next_offset = header.next_offset
        position += header.size_bytes
    return batches


def _region(
    records: LogSlice, batches: Sequence[FetchedBatch], acquired: Sequence[AcquiredRange]
) -> FileRegion | bytes:
    """The bytes of the batches from the first to the last acquired record."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    some = [it for it in batches if it.offsets.last_offset >= first and it.offsets.first_offset <= last]
    position = some[0].position
    size = some[-1].position + some[-1].header.size_bytes - position
    if isinstance(records.file, HeldBytes):
        return records.file.pread(size, position)
    return FileRegion(records.file, position, size)
