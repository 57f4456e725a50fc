"""`ProduceOperation`: one Produce request from its turn to its response.

Each partition has its own error and never fails the others. With acks=all the response is sent when the high watermark
has passed the last batch, or at the client's timeout.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.admission import Admission, Allowance, NeedsTime, ProducedBatch
from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.produce_response import NO_RESPONSE, ProduceAnswers
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.keyed_queues import KeyedQueues
from barnabas.broker.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.purgatory import WaitingAck
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica import ACKS_ALL
from barnabas.broker.timing_wheel import TimerEntry, TimingWheel
from barnabas.broker.traffic import Conversions
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest
from barnabas.protocol.records.record_check import RecordsRefused
from barnabas.runtime.dispatch import Call
from barnabas.runtime.server import Steps
from barnabas.runtime.worker import Worker
from barnabas.runtime.world import Clock

if TYPE_CHECKING:
    from barnabas.broker.delayed.deliveries import DelayedDeliveries

MAX_AT_ONCE = 128
"""A request that names more partitions is served in portions."""
PORTION = 48
"""Partitions that one step of such a request serves."""
EXPIRED_IN_A_STEP = 500
ADMIN_CLIENT_ID = "__admin_client"
"""Client id of Kafka's tools that may write to internal topics."""
TOPIC_IDS_FROM_VERSION = 13

Admitted = ProducedBatch | KafkaError
"""The result of an admission."""


class Verifier(Protocol):
    """The part of `TransactionVerifier` that is used here."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        add: bool,
    ) -> Awaitable[Mapping[tuple[str, int], ErrorCode]]: ...


@dataclass(frozen=True, slots=True)
class ProducePorts:
    lookup: PartitionLookup
    slow_admissions: KeyedQueues[int]
    """Requests with batches that need time, by connection id: appended in the order in which they were sent."""
    worker: Worker
    conversions: Conversions
    wheel: TimingWheel
    monotonic: Clock
    wall_clock: Clock
    verifier: Callable[[], Verifier]
    deliveries: Callable[[], DelayedDeliveries]
    settings: CurrentSettings


@dataclass(slots=True, eq=False)
class _Item:
    """One partition of a request, by name or id of its topic."""

    topic: bytes | str
    data: PartitionProduceData
    answer: PartitionProduceResponse
    is_allowed: bool = True
    """The client may write to the topic."""
    admission: Admission | None = None
    """Set while the admission of its batch needs more time."""


class ProduceOperation:
    """One request without a transactional id."""

    __slots__ = (
        "_acks",
        "_allowance",
        "_answers",
        "_call",
        "_pending",
        "_ports",
        "_timer",
        "_waiting",
        "_wall_ms",
        "has_waited",
    )

    def __init__(self, ports: ProducePorts, call: Call) -> None:
        request: ProduceRequest = call.message
        self._ports = ports
        self._call = call
        self._acks = request.acks
        self._answers = ProduceAnswers(call, ports.lookup.metadata)
        self._allowance = Allowance()
        self._waiting = 1
        """Partitions that wait for acknowledgement, plus one until all were tried."""
        self._pending: list[tuple[WaitingAck[ErrorCode], PartitionProduceResponse]] = []
        self._timer: TimerEntry | None = None
        self._wall_ms = ports.wall_clock.now_ms()
        self.has_waited = False
        """Set once the request was queued: then it takes its turn in the step of another request."""

    # -- taking turns with other requests of the connection

    def take_turn(self) -> bool:
        """Begin; no earlier request of the connection is unfinished. Returns whether the next one may begin; if not,
        `KeyedQueues.done` is called later."""
        if self._call.slot.connection_closed:
            return True  # closed while it was queued: its client may have sent this again elsewhere
        try:
            if self._is_large() or self.has_waited:
                self._call.spawn(self._admit_slowly, self._portions())
                return False
            left = [item for item in self._items() if not self._append(item)]
            if not left:
                self._all_tried()
                return True
        except Exception as error:  # this may run within the turn of another request
            self._call.failed(error)
            return True
        self._call.spawn(self._admit_slowly, [left])
        return False

    def _is_large(self) -> bool:
        named = 0
        for topic in self._call.message.topic_data:
            named += len(topic.partition_data)
        if named <= MAX_AT_ONCE:
            return False
        self._call.is_large = True
        return True

    def _portions(self) -> Iterator[list[_Item]]:
        """All partitions of the request, PORTION at a time."""
        items = self._items()
        while portion := list(islice(items, PORTION)):
            yield portion

    def _items(self) -> Iterator[_Item]:
        """All partitions of the request; adds each to the response."""
        request: ProduceRequest = self._call.message
        with_ids = self._call.version >= TOPIC_IDS_FROM_VERSION
        may_write = self._may_write() if self._call.has_authorizer else None
        for topic in request.topic_data:
            answers = self._answers.add_topic(topic.name, topic.topic_id)
            key = topic.topic_id if with_ids else topic.name
            is_allowed = may_write is None or may_write(key)
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index, base_offset=-1)
                answers.partition_responses.append(answer)
                yield _Item(key, data, answer, is_allowed)

    def _may_write(self) -> Callable[[bytes | str], bool]:
        """True for a topic to which the client may write, and for an unknown id."""
        metadata, may_write = self._ports.lookup.metadata, may_on_topics(self._call, AclOperation.WRITE)

        def may_write_to(topic: bytes | str) -> bool:
            name = topic if isinstance(topic, str) else metadata.topic_name(topic)
            return name is None or may_write(name)

        return may_write_to

    async def _admit_slowly(self, portions: Iterable[list[_Item]]) -> None:
        call = self._call
        try:
            for portion in portions:
                left: list[_Item] = []
                await call.take_steps(self._try_portion(portion, left))
                await self._admit_left(left)
                if call.slot.connection_closed:
                    self._cancel_acks()
                    return
            await call.take_steps(self._try_rest())
        finally:
            self._ports.slow_admissions.done(call.request.connection_id)

    def _cancel_acks(self) -> None:
        """The connection was closed: nothing has to be acknowledged."""
        for ack, _ in self._pending:
            if ack.callback is not None:
                ack.cancel()

    def _try_portion(self, portion: list[_Item], left: list[_Item]) -> Steps:
        """Append or refuse the batches that need no more time; the others are added to `left`."""
        if portion[0].admission is None:
            self._allowance = Allowance()
        left += [item for item in portion if item.admission is not None or not self._append(item)]
        yield None

    async def _admit_left(self, left: list[_Item]) -> None:
        for item in left:
            if self._call.slot.connection_closed:
                return
            admission, item.admission = item.admission, None
            assert admission is not None
            admitted: Admitted
            try:
                admitted = await admission.in_steps(self._ports.worker)
            except KafkaError as refusal:
                admitted = refusal
            # Another broker may lead by now; `_append` checks again.
            if not self._call.slot.connection_closed:
                self._append(item, admitted)

    def _try_rest(self) -> Steps:
        """`_all_tried` in steps."""
        self._all_tried()
        yield from ()

    def _all_tried(self) -> None:
        """Every batch was appended or refused, except transactional ones."""
        self._all_appended()

    # -- appending

    def _append(self, item: _Item, admitted: Admitted | None = None) -> bool:
        """Append a batch or refuse it. Without the result of an admission the batch is admitted here; if that needs
        time, nothing is done and the result is False."""
        ports, answer = self._ports, item.answer
        if not item.is_allowed:
            self._answers.fail(answer, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return True
        lookup = ports.lookup
        partition = lookup.partitions.find(item.topic, item.data.index)
        if partition is None:
            missing = lookup.partitions.missing_error(item.topic, item.data.index)
            self._answers.fail(answer, missing, None, lookup.known_leader(item.topic, item.data.index))
            return True
        try:
            self._check_right(partition)
            if admitted is None:
                now_ms, conversions = self._wall_ms, ports.conversions
                admission = Admission(item.data.records, partition, self._call.version, now_ms, conversions)
                try:
                    admitted = admission.at_once(self._allowance)
                except NeedsTime:
                    item.admission = admission
                    return False
            elif isinstance(admitted, KafkaError):
                raise admitted
            if admitted.header.is_transactional:
                self._take_transactional(partition, admitted, answer)
                return True
            if admitted.times is None:
                result = partition.append(admitted.buffer, admitted.batches, self._acks)
            else:
                result = ports.deliveries().hold(partition, admitted.buffer, admitted.times, self._acks)
        except RecordsRefused as refusal:
            self._answers.fail(answer, refusal.code, refusal.message)
            self._answers.name_records(answer, refusal.errors)
            return True
        except KafkaError as refusal:
            self._answers.fail(answer, refusal.code, refusal.message, partition.known_leader())
            return True
        self._answers.appended(answer, result, partition.log.log_start_offset)
        if self._acks == ACKS_ALL:
            self._wait_for_replicas(partition, result.last_offset + 1, answer)
        return True

    def _check_right(self, partition: Partition) -> None:
        """Raises KafkaError if this request may not write to the partition, before its batch is checked at length."""
        if self._acks not in (ACKS_ALL, 1, NO_RESPONSE):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1; got {self._acks}")
        if partition.topic in INTERNAL_TOPICS and self._call.request.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "only coordinators write to internal topics")
        error = partition.replica.append_error(self._acks)
        if error is not None:
            raise KafkaError(error)

    def _take_transactional(
        self, partition: Partition, batch: ProducedBatch, answer: PartitionProduceResponse
    ) -> None:
        """Refused: nobody could end its transaction, and read_committed consumers would wait at its start for ever."""
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the request has no transactional id")

    # -- waiting for the replicas

    def _wait_for_replicas(self, partition: Partition, required_offset: int, answer: PartitionProduceResponse) -> None:
        self._waiting += 1

        def acknowledged(error: ErrorCode | None) -> None:
            if error is not None:
                self._answers.fail(answer, error, None, partition.known_leader())
            self._one_done()

        ack = partition.when_replicated(required_offset, acknowledged)
        if ack is not None:
            self._pending.append((ack, answer))

    def _all_appended(self) -> None:
        """Only acknowledgements are outstanding now."""
        if self._waiting > 1:
            deadline_ms = self._ports.monotonic.now_ms() + max(0, self._call.message.timeout_ms)
            self._timer = self._ports.wheel.add(deadline_ms, self._expired)
        self._one_done()

    def _one_done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            if self._timer is not None:
                self._timer.cancel()
            self._answers.send(self._acks)

    def _expired(self) -> None:
        """Answer the partitions that are not acknowledged by now with REQUEST_TIMED_OUT."""
        self._waiting += 1  # acknowledgements between the steps do not send the response
        if len(self._pending) > EXPIRED_IN_A_STEP:
            self._call.spawn(self._call.take_steps, self._expire())
            return
        for _ in self._expire():
            pass

    def _expire(self) -> Steps:
        for place, (ack, answer) in enumerate(self._pending, 1):
            if ack.callback is not None:
                ack.cancel()
                self._answers.fail(answer, ErrorCode.REQUEST_TIMED_OUT)
            if place % EXPIRED_IN_A_STEP == 0:
                yield None
        self._answers.send(self._acks)
