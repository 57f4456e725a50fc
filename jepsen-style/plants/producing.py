"""Mistakes towards producers: repetitions, epochs, and what they are answered."""

from __future__ import annotations

from typing import Any

from barnabas.broker.apis.produce_response import ProduceAnswers
from barnabas.broker.apis.transactional_produce import TransactionalProduce
from barnabas.broker.transactions.transaction import Transaction
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.produce import PartitionProduceResponse
from barnabas.protocol.records.batch import BatchHeader
from barnabas.storage.producers import ProducerStates, SequencedBatch, Verification


def take_repetitions(original: Any) -> Any:
    """A batch that comes again is written again; sequences mean nothing."""

    def check(
        self: ProducerStates,
        header: BatchHeader,
        before: BatchHeader | None = None,
        verification: Verification | None = None,
    ) -> SequencedBatch | None:
        try:
            original(self, header, before, verification)
        except KafkaError as error:
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
        return None

    return check


def take_old_epochs(original: Any) -> Any:
    """A log takes what a producer of an older epoch still sends."""

    def check(
        self: ProducerStates,
        header: BatchHeader,
        before: BatchHeader | None = None,
        verification: Verification | None = None,
    ) -> SequencedBatch | None:
        entry = self.entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            return None
        repeated: SequencedBatch | None = original(self, header, before, verification)
        return repeated

    return check


def verify_no_old_epochs(original: Any) -> Any:
    """And does not ask the coordinator about it."""

    def begin_verification(self: ProducerStates, producer_id: int, epoch: int, *rest: Any, **more: Any) -> Any:
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            return None
        return original(self, producer_id, epoch, *rest, **more)

    return begin_verification


def know_no_epochs(_original: Any) -> Any:
    """The coordinator takes requests of any epoch of the right producer."""

    def check_producer(self: Transaction, producer: Any) -> None:
        if producer.producer_id != self.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    return check_producer


def append_despite_the_verification(_original: Any) -> Any:
    """A transactional batch is written though its transaction is over, or was never begun (before KIP-890)."""

    def verified(self: TransactionalProduce, piece: Any, code: ErrorCode) -> None:
        self._write(piece)

    return verified


def let_anything_begin_a_transaction(_original: Any) -> Any:
    def check_begins(self: ProducerStates, header: BatchHeader, entry: Any, verification: Any) -> None:
        pass

    return check_begins


def answer_errors_with_offset_zero(original: Any) -> Any:
    """A refused batch is answered as if it had been appended at offset 0."""

    def failed(
        self: ProduceAnswers,
        answer: PartitionProduceResponse,
        error: ErrorCode,
        message: str | None = None,
        leader: tuple[int, int] | None = None,
    ) -> None:
        original(self, answer, error, message, leader)
        answer.error_code = ErrorCode.NONE
        answer.base_offset = 0

    return failed
