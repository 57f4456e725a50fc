"""Core: the parts of InitProducerId that are the same with and without a transactional id."""

from __future__ import annotations

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


def expected_producer(request: InitProducerIdRequest) -> ProducerStamp | None:
    """Producer id and epoch that the producer had before. Raises KafkaError(INVALID_REQUEST)."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch must both be set or both be absent")
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerStamp(request.producer_id, request.producer_epoch)


def init_error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
