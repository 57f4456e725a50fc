"""InitProducerId (22) for idempotent producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices


def init_producer_id(broker: BrokerServices, call: Call) -> None:
    broker.nursery.start_soon(_init_producer_id, broker, call)


async def _init_producer_id(broker: BrokerServices, call: Call) -> None:
    request: InitProducerIdRequest = call.message
    response = InitProducerIdResponse(producer_epoch=-1)
    try:
        if request.transactional_id is not None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
            raise KafkaError(code, "transactions are not served yet")
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch go together")
        # An idempotent producer has no state to keep: whatever id and epoch it had, it begins anew (KIP-360).
        response.producer_id = await broker.producer_ids.next_id(broker.lifecycle.broker_epoch)
        response.producer_epoch = 0
    except KafkaError as error:
        response.error_code = error.code
    call.answer(response)
