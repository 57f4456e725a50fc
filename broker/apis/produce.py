"""Produce (0): batches are checked and go to the end of the log as they came; the answer waits for the replicas.

Each partition has its own error and never fails the others. With acks=all the answer leaves when the high watermark
has passed the last batch, or when the client's timeout has.

A transactional batch may begin its transaction in a partition only once the coordinator has confirmed that the
partition belongs to it, or has added it (KIP-890). Until then the producer's next batches for the partition wait in
line. Requests without a transactional id take none of this way.

A request with a batch that takes long to check, or with very many partitions, goes on in a task of its own, and later
requests of its connection wait for that one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from broker.admission import Admission, Allowance, Batches, NeedsTime
from broker.apis.lookup import known_leader
from broker.metadata_cache import INTERNAL_TOPICS
from broker.purgatory import WaitingAck
from broker.replication.partition import Partition
from broker.timing_wheel import TimerEntry
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.batch import BatchHeader
from protocol.records.record_check import MOST_RECORD_ERRORS, RecordsRefused
from runtime.dispatch import Call
from runtime.server import Steps
from storage.producers import NO_WARRANT, Warrant

if TYPE_CHECKING:
    from broker.services import BrokerServices

log = logging.getLogger(__name__)

ALL_IN_SYNC = -1
NO_ANSWER = 0
MOST_AT_ONCE = 128
"""A request that names more partitions is served in portions."""
PORTION = 48
"""Partitions of one step of such a request."""
EXPIRED_IN_A_STEP = 500
ADMIN_CLIENT_ID = "__admin_client"
"""By which Kafka's tools for emergencies say that they know what they do."""
TOPIC_IDS_FROM_VERSION = 13
LEADER_HINTS_FROM_VERSION = 10
_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


ABORTABLE_FROM_VERSION = 11
"""Older clients do not know TRANSACTION_ABORTABLE."""
ADDS_FROM_VERSION = 12
"""Clients of transaction.version 2 do not add partitions by themselves: the broker does it for them."""
_TRY_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def produce(broker: BrokerServices, call: Call) -> None:
    if call.slot.connection_ended and call.message.acks != NO_ANSWER:
        # Its producer gave up waiting for an answer, and may have sent these records again over another connection.
        call.answer_nothing()
        return
    kind = _Produce if call.message.transactional_id is None else _TransactionalProduce
    work = kind(broker, call)
    broker.slow_admissions.enter(call.request.connection_id, work.take_turn)
    work.has_waited = True


def verification_error(code: ErrorCode, version: int) -> tuple[ErrorCode, str | None]:
    """What a producer is told when the coordinator answers `code`; it must know what to do about it."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return code, "the partition is not in the transaction"
    if code in _TRY_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM_VERSION):
        # It makes every client try again, and does not make it look for another leader.
        return ErrorCode.NOT_ENOUGH_REPLICAS, f"whether the partition is in the transaction is not known: {code.name}"
    return code, None


Admitted = tuple[memoryview, Batches] | KafkaError
"""What came of the admission of a batch."""


@dataclass(slots=True, eq=False)
class _Asked:
    """What a request has for one partition, by name or id of its topic."""

    topic: bytes | str
    data: PartitionProduceData
    answer: PartitionProduceResponse
    admission: Admission | None = None
    """Its batch, if that needs time."""


@dataclass(slots=True, eq=False)
class _Piece:
    """A transactional batch for one partition."""

    partition: Partition
    buffer: memoryview
    batches: Batches
    answer: PartitionProduceResponse
    warrant: Warrant = NO_WARRANT
    leader_epoch: int = -1
    """In which the verification began."""

    @property
    def header(self) -> BatchHeader:
        return self.batches[0][1]


class _Produce:
    """One request until its answer."""

    __slots__ = (
        "_acks",
        "_allowance",
        "_broker",
        "_call",
        "_errors_left",
        "_has_errors",
        "_pending",
        "_response",
        "_timer",
        "_waiting",
        "_wall_ms",
        "has_waited",
    )

    def __init__(self, broker: BrokerServices, call: Call) -> None:
        request: ProduceRequest = call.message
        self._broker = broker
        self._call = call
        self._acks = request.acks
        self._response = ProduceResponse()
        self._has_errors = False
        self._errors_left = MOST_RECORD_ERRORS
        """So many records may still be named in the answer."""
        self._allowance = Allowance()
        self._waiting = 1
        """Partitions whose acknowledgement is outstanding, and one until all were tried."""
        self._pending: list[tuple[WaitingAck[ErrorCode], PartitionProduceResponse]] = []
        self._timer: TimerEntry | None = None
        self._wall_ms = broker.world.wall_clock.now_ms()
        self.has_waited = False
        """Its turn comes after that of another request, in the same step of the event loop."""

    def take_turn(self) -> bool:
        """No request of this connection waits: begin, and return whether later ones may. If not, `Lines.over` is called
        when they may."""
        if self._call.slot.connection_closed:
            return True  # meanwhile: its client has given up, and may have sent this again elsewhere
        try:
            if self._is_large() or self.has_waited:
                self._call.spawn(self._admit_slowly, self._portions())
                return False
            left = [asked for asked in self._all_asked() if not self._append(asked)]
            if not left:
                self._all_tried()
                return True
        except Exception as error:  # it may be the turn of another request in which this one has its own
            self._call.failed(error)
            return True
        self._call.spawn(self._admit_slowly, [left])
        return False

    def _is_large(self) -> bool:
        named = 0
        for topic in self._call.message.topic_data:
            named += len(topic.partition_data)
        if named <= MOST_AT_ONCE:
            return False
        self._call.is_large = True
        return True

    def _portions(self) -> Iterator[list[_Asked]]:
        """All that is asked, as much at a time as one step may do."""
        every = self._all_asked()
        while portion := list(islice(every, PORTION)):
            yield portion

    def _all_asked(self) -> Iterator[_Asked]:
        """Makes room for each in the answer."""
        request: ProduceRequest = self._call.message
        with_ids = self._call.version >= TOPIC_IDS_FROM_VERSION
        for topic in request.topic_data:
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self._response.responses.append(answers)
            key = topic.topic_id if with_ids else topic.name
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index, base_offset=-1)
                answers.partition_responses.append(answer)
                yield _Asked(key, data, answer)

    async def _admit_slowly(self, portions: Iterable[list[_Asked]]) -> None:
        call = self._call
        try:
            for portion in portions:
                left: list[_Asked] = []
                await call.take_steps(self._try_portion(portion, left))
                await self._admit_left(left)
                if call.slot.connection_closed:
                    self._forget_replicas()
                    return
            await call.take_steps(self._try_rest())
        finally:
            self._broker.slow_admissions.over(call.request.connection_id)

    def _forget_replicas(self) -> None:
        """Nobody waits for their acknowledgements."""
        for ack, _ in self._pending:
            if ack.callback is not None:
                ack.cancel()

    def _try_portion(self, portion: list[_Asked], left: list[_Asked]) -> Steps:
        """Append or refuse what can be at once; the others are `left`."""
        if portion[0].admission is None:
            self._allowance = Allowance()
        left += [asked for asked in portion if asked.admission is not None or not self._append(asked)]
        yield None

    async def _admit_left(self, left: list[_Asked]) -> None:
        broker = self._broker
        for asked in left:
            if self._call.slot.connection_closed:
                return
            admission, asked.admission = asked.admission, None
            assert admission is not None
            admitted: Admitted
            try:
                admitted = await admission.in_steps(broker.worker)
            except KafkaError as refusal:
                admitted = refusal
            # Somebody else may lead by now.
            if not self._call.slot.connection_closed:
                self._append(asked, admitted)

    def _try_rest(self) -> Steps:
        """`_all_tried` in steps."""
        self._all_tried()
        yield from ()

    def _all_tried(self) -> None:
        """Every batch was appended or refused, but for transactional ones."""
        self._all_appended()

    def _all_appended(self) -> None:
        """Nothing but acknowledgements is outstanding now."""
        if self._waiting > 1:
            deadline_ms = self._broker.world.monotonic.now_ms() + max(0, self._call.message.timeout_ms)
            self._timer = self._broker.wheel.add(deadline_ms, self._expired)
        self._one_done()

    def _append(self, asked: _Asked, admitted: Admitted | None = None) -> bool:
        """Append a batch or refuse it. Without what came of its admission it is admitted here; if that needs time,
        returns False, and nothing was done."""
        broker, answer = self._broker, asked.answer
        partition = broker.partitions.find(asked.topic, asked.data.index)
        if partition is None:
            missing = broker.partitions.missing_error(asked.topic, asked.data.index)
            self._failed(answer, missing, None, known_leader(broker, asked.topic, asked.data.index))
            return True
        try:
            self._check_right(partition)
            if admitted is None:
                now_ms, conversions = self._wall_ms, broker.conversions
                admission = Admission(asked.data.records, partition, self._call.version, now_ms, conversions)
                try:
                    admitted = admission.at_once(self._allowance)
                except NeedsTime:
                    asked.admission = admission
                    return False
            elif isinstance(admitted, KafkaError):
                raise admitted
            buffer, batches = admitted
            if batches[0][1].is_transactional:
                self._take(_Piece(partition, buffer, batches, answer))
                return True
            result = partition.append(buffer, batches, self._acks)
        except RecordsRefused as refusal:
            self._failed(answer, refusal.code, refusal.message)
            self._name_records(answer, refusal.errors)
            return True
        except KafkaError as refusal:
            self._failed(answer, refusal.code, refusal.message, partition.known_leader())
            return True
        answer.base_offset = result.first_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = partition.log.log_start_offset
        if self._acks == ALL_IN_SYNC:
            self._wait_for_replicas(partition, result.last_offset + 1, answer)
        return True

    def _check_right(self, partition: Partition) -> None:
        """Raises KafkaError if this request cannot write to the partition, whatever it has for it."""
        if self._acks not in (ALL_IN_SYNC, 1, NO_ANSWER):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks}")
        if partition.topic in INTERNAL_TOPICS and self._call.request.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "internal topics are written by coordinators")
        error = partition.replica.append_error(self._acks)
        if error is not None:
            raise KafkaError(error)

    def _name_records(self, answer: PartitionProduceResponse, errors: list[tuple[int, str]]) -> None:
        """Name the records because of which a batch was refused; the rest of it may be sent again (KIP-467)."""
        named = errors[: self._errors_left]
        self._errors_left -= len(named)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=message) for place, message in named
        ]

    def _take(self, piece: _Piece) -> None:
        """A transactional batch. Nobody could end its transaction, and readers would wait at its start for ever."""
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the request names no transactional id")

    def _wait_for_replicas(self, partition: Partition, required_offset: int, answer: PartitionProduceResponse) -> None:
        self._waiting += 1

        def acknowledged(error: ErrorCode | None) -> None:
            if error is not None:
                self._failed(answer, error, None, partition.known_leader())
            self._one_done()

        ack = partition.when_replicated(required_offset, acknowledged)
        if ack is not None:
            self._pending.append((ack, answer))

    def _failed(
        self,
        answer: PartitionProduceResponse,
        error: ErrorCode,
        message: str | None = None,
        leader: tuple[int, int] | None = None,
    ) -> None:
        """`leader`: (id, epoch) of who leads as far as is known."""
        self._has_errors = True
        answer.error_code = error
        answer.error_message = message
        answer.base_offset = -1
        answer.log_append_time_ms = -1
        answer.log_start_offset = -1
        if leader is not None and error in _LEADER_MOVED and self._call.version >= LEADER_HINTS_FROM_VERSION:
            leader_id, leader_epoch = leader
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            node = self._broker.metadata.node(leader_id, self._call.request.listener_name)
            if node is not None and all(known.node_id != leader_id for known in self._response.node_endpoints):
                self._response.node_endpoints.append(
                    NodeEndpoint(node_id=leader_id, host=node.host, port=node.port, rack=node.rack)
                )

    def _one_done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            if self._timer is not None:
                self._timer.cancel()
            self._answer()

    def _expired(self) -> None:
        """The replicas took too long: what is not acknowledged by now is answered as timed out."""
        self._waiting += 1  # acknowledgements that come between the steps do not answer
        if len(self._pending) > EXPIRED_IN_A_STEP:
            self._call.spawn(self._call.take_steps, self._expire())
            return
        for _ in self._expire():
            pass

    def _expire(self) -> Steps:
        for place, (ack, answer) in enumerate(self._pending, 1):
            if ack.callback is not None:
                ack.cancel()
                self._failed(answer, ErrorCode.REQUEST_TIMED_OUT)
            if place % EXPIRED_IN_A_STEP == 0:
                yield None
        self._answer()

    def _answer(self) -> None:
        if self._acks != NO_ANSWER:
            self._call.answer(self._response, has_errors=self._has_errors)
            return
        if not self._has_errors:
            self._call.answer_nothing()
            return
        refused = (
            answer.error_code
            for topic in self._response.responses
            for answer in topic.partition_responses
            if answer.error_code != ErrorCode.NONE
        )
        # There is no answer that could say so; a closed connection makes the producer look for the leader.
        self._call.abort(f"produce with acks=0 failed with error {ErrorCode(next(refused)).name}")


class _TransactionalProduce(_Produce):
    """One request of a transactional producer."""

    __slots__ = ("_adds", "_coming", "_named", "_pieces", "_unverified", "_verifies")

    def __init__(self, broker: BrokerServices, call: Call) -> None:
        super().__init__(broker, call)
        self._adds = call.version >= ADDS_FROM_VERSION
        self._verifies = self._adds or broker.settings.transaction_partition_verification_enable
        self._pieces: list[_Piece] = []
        self._named: set[Partition] = set()
        """The partitions of the pieces, if the request is large."""
        self._coming = 0
        """Pieces that are neither appended nor refused yet, and one for `_all_tried` itself."""
        self._unverified: list[_Piece] | None = []
        """Found by `_all_tried`; None afterwards."""

    def _all_tried(self) -> None:
        for _ in self._try_rest():
            pass

    def _try_rest(self) -> Steps:
        pieces = self._pieces
        if len({(piece.header.producer_id, piece.header.producer_epoch) for piece in pieces}) > 1:
            for piece in pieces:
                self._failed(piece.answer, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "batches of several producers")
            pieces = []
        self._coming = len(pieces) + 1
        try:
            for place, piece in enumerate(pieces, 1):
                piece.partition.producer_lines.enter(piece.header.producer_id, partial(self._take_turn, piece))
                if place % PORTION == 0:
                    yield None
        finally:
            # Others wait behind these, even if the connection was closed meanwhile.
            unverified, self._unverified = self._unverified, None
            if unverified:
                self._call.spawn(self._verify, unverified)
        self._settled()

    def _take(self, piece: _Piece) -> None:
        if not piece.header.has_producer_id:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")
        if self._call.is_large:
            # Pieces of one partition would be written in one step when the first of them is verified.
            if piece.partition in self._named:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request names {piece.partition.name} more than once")
            self._named.add(piece.partition)
        self._pieces.append(piece)

    def _take_turn(self, piece: _Piece) -> bool:
        """No batch of this producer waits for this partition: append, or begin to verify and let others wait."""
        partition, header = piece.partition, piece.header
        verification = None
        try:
            if self._verifies:
                verification = partition.begin_verification(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    supports_epoch_bump=self._adds,
                )
        except KafkaError as refusal:
            self._refused(piece, refusal.code, refusal.message)
            return True
        if verification is None:
            self._write(piece)
            return True
        piece.warrant = Warrant(verification)
        piece.leader_epoch = partition.leader_epoch
        if self._unverified is not None:
            self._unverified.append(piece)
        else:
            self._call.spawn(self._verify, [piece])
        return False

    async def _verify(self, pieces: list[_Piece]) -> None:
        left = deque(pieces)
        try:
            header = pieces[0].header
            verdict = await self._broker.verifier.verify(
                self._call.message.transactional_id,
                header.producer_id,
                header.producer_epoch,
                [(piece.partition.topic, piece.partition.index) for piece in pieces],
                add=self._adds,
            )
            await self._call.take_steps(self._write_verified(left, verdict))
            for _ in left:
                self._settled()  # the connection was closed
        finally:
            # Those who wait behind these pieces have their turns, whatever became of these.
            while left:
                self._next_in_line(left.popleft())

    def _write_verified(self, left: deque[_Piece], verdict: Mapping[tuple[str, int], ErrorCode]) -> Steps:
        done = 0
        while left:
            piece = left[0]
            self._verified(piece, verdict[piece.partition.topic, piece.partition.index])
            self._next_in_line(left.popleft())
            done += 1
            if done % PORTION == 0:
                yield None

    @staticmethod
    def _next_in_line(piece: _Piece) -> None:
        piece.partition.producer_lines.over(piece.header.producer_id)

    def _verified(self, piece: _Piece, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self._refused(piece, *verification_error(code, self._call.version))
        elif piece.partition.leader_epoch != piece.leader_epoch:
            # Somebody else may have led meanwhile, and have written the end of the transaction.
            self._refused(piece, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self._call.slot.connection_closed:
            # Nobody would hear of it; and it may be closed because this broker is about to close its logs.
            self._settled()
        else:
            self._write(piece)

    def _write(self, piece: _Piece) -> None:
        partition, answer = piece.partition, piece.answer
        try:
            result = partition.append(piece.buffer, piece.batches, self._acks, piece.warrant)
        except KafkaError as refusal:
            self._refused(piece, refusal.code, refusal.message)
            return
        answer.base_offset = result.first_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = partition.log.log_start_offset
        if self._acks == ALL_IN_SYNC:
            self._wait_for_replicas(partition, result.last_offset + 1, answer)
        self._settled()

    def _refused(self, piece: _Piece, error: ErrorCode, message: str | None = None) -> None:
        self._failed(piece.answer, error, message, piece.partition.known_leader())
        self._settled()

    def _settled(self) -> None:
        self._coming -= 1
        if self._coming == 0:
            self._all_appended()
