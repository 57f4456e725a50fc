"""`TransactionalProduce`: a Produce request with a transactional id.

A batch may begin its transaction in a partition only once the coordinator has confirmed that the partition belongs to
it, or has added it (KIP-890). Until then the producer's next batches for the partition wait in the partition's queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from barnabas.broker.admission import ProducedBatch
from barnabas.broker.apis.produce_request import PORTION, ProduceOperation, ProducePorts
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica import ACKS_ALL
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.produce import PartitionProduceResponse
from barnabas.protocol.records.batch import BatchHeader
from barnabas.runtime.dispatch import Call
from barnabas.runtime.server import Steps
from barnabas.storage.producers import NO_WARRANT, Warrant

ABORTABLE_FROM_VERSION = 11
"""Older clients do not know TRANSACTION_ABORTABLE."""
ADDS_FROM_VERSION = 12
"""Clients of transaction.version 2 do not add partitions: the broker does it for them."""
_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def verification_error(code: ErrorCode, version: int) -> tuple[ErrorCode, str | None]:
    """The error for a producer if the coordinator answers `code`, in a form on which it acts correctly."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return code, "the partition is not in the transaction"
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM_VERSION):
        # Every client retries this error, and does not look for another leader because of it.
        return ErrorCode.NOT_ENOUGH_REPLICAS, f"the partition could not be verified in the transaction: {code.name}"
    return code, None


@dataclass(slots=True, eq=False)
class _Piece:
    """A transactional batch for one partition."""

    partition: Partition
    batch: ProducedBatch
    answer: PartitionProduceResponse
    warrant: Warrant = NO_WARRANT
    leader_epoch: int = -1
    """The leader epoch in which the verification began."""

    @property
    def header(self) -> BatchHeader:
        return self.batch.header


class TransactionalProduce(ProduceOperation):
    """One request of a transactional producer."""

    __slots__ = ("_adds", "_named", "_pieces", "_unsettled", "_unverified", "_verifies")

    def __init__(self, ports: ProducePorts, call: Call) -> None:
        super().__init__(ports, call)
        self._adds = call.version >= ADDS_FROM_VERSION
        self._verifies = self._adds or ports.settings().transaction_partition_verification_enable
        self._pieces: list[_Piece] = []
        self._named: set[Partition] = set()
        """The partitions of the pieces, if the request is large."""
        self._unsettled = 0
        """Pieces that are neither appended nor refused yet, plus one for `_all_tried` itself."""
        self._unverified: list[_Piece] | None = []
        """Pieces that `_all_tried` found to need verification; None afterwards."""

    def _take_transactional(
        self, partition: Partition, batch: ProducedBatch, answer: PartitionProduceResponse
    ) -> None:
        if not batch.header.has_producer_id:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
        if self._call.is_large:
            # Pieces of one partition would be written in one step when the first of them is verified.
            if partition in self._named:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request names {partition.name} more than once")
            self._named.add(partition)
        self._pieces.append(_Piece(partition, batch, answer))

    def _all_tried(self) -> None:
        for _ in self._try_rest():
            pass

    def _try_rest(self) -> Steps:
        pieces = self._pieces
        if len({(piece.header.producer_id, piece.header.producer_epoch) for piece in pieces}) > 1:
            for piece in pieces:
                self._answers.fail(
                    piece.answer, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the request has batches of several producers"
                )
            pieces = []
        self._unsettled = len(pieces) + 1
        try:
            for place, piece in enumerate(pieces, 1):
                piece.partition.producer_queues.enter(piece.header.producer_id, partial(self._take_piece, piece))
                if place % PORTION == 0:
                    yield None
        finally:
            # Other batches are queued behind these, even if the connection was closed meanwhile.
            unverified, self._unverified = self._unverified, None
            if unverified:
                self._call.spawn(self._verify, unverified)
        self._settled()

    def _take_piece(self, piece: _Piece) -> bool:
        """No earlier batch of this producer is unfinished in this partition: append, or begin to verify. Returns
        whether the next batch may follow."""
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
            verdict = await self._ports.verifier().verify(
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
            # Batches queued behind these pieces have their turns, whatever the result for these.
            while left:
                self._next_in_queue(left.popleft())

    def _write_verified(self, left: deque[_Piece], verdict: Mapping[tuple[str, int], ErrorCode]) -> Steps:
        done = 0
        while left:
            piece = left[0]
            self._verified(piece, verdict[piece.partition.topic, piece.partition.index])
            self._next_in_queue(left.popleft())
            done += 1
            if done % PORTION == 0:
                yield None

    @staticmethod
    def _next_in_queue(piece: _Piece) -> None:
        piece.partition.producer_queues.done(piece.header.producer_id)

    def _verified(self, piece: _Piece, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self._refused(piece, *verification_error(code, self._call.version))
        elif piece.partition.leader_epoch != piece.leader_epoch:
            # Another broker may have led meanwhile, and have written the end of the transaction.
            self._refused(piece, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self._call.slot.connection_closed:
            # No response can be sent; and the connection may be closed because this broker is about to close its logs.
            self._settled()
        else:
            self._write(piece)

    def _write(self, piece: _Piece) -> None:
        partition, answer = piece.partition, piece.answer
        try:
            result = partition.append(piece.batch.buffer, piece.batch.batches, self._acks, piece.warrant)
        except KafkaError as refusal:
            self._refused(piece, refusal.code, refusal.message)
            return
        self._answers.appended(answer, result, partition.log.log_start_offset)
        if self._acks == ACKS_ALL:
            self._wait_for_replicas(partition, result.last_offset + 1, answer)
        self._settled()

    def _refused(self, piece: _Piece, error: ErrorCode, message: str | None = None) -> None:
        self._answers.fail(piece.answer, error, message, piece.partition.known_leader())
        self._settled()

    def _settled(self) -> None:
        self._unsettled -= 1
        if self._unsettled == 0:
            self._all_appended()
