"""InitProducerId (22): an id for an idempotent producer, an id and an epoch for a transactional one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.coordinator.outcome import Reply
from broker.transactions.machine import expected_producer, init_error
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices

KNOWS_FENCED_FROM_VERSION = 4
"""Older clients know only INVALID_PRODUCER_EPOCH for it (KIP-588)."""


def init_producer_id(broker: BrokerServices, call: Call) -> None:
    request: InitProducerIdRequest = call.message
    try:
        if request.transactional_id:
            # Whoever asks the wrong broker need not wait for a controller.
            broker.transactions.shard(request.transactional_id)
    except KafkaError as error:
        call.answer(init_error(error.code))
        return
    if broker.producer_ids.at_hand:
        _init_producer_id(broker, call)
    else:
        call.spawn(_fetch_and_init, broker, call)


async def _fetch_and_init(broker: BrokerServices, call: Call) -> None:
    try:
        await broker.producer_ids.fetch(broker.lifecycle.broker_epoch)
    except KafkaError as error:
        call.answer(init_error(error.code))
    else:
        _init_producer_id(broker, call)


def _init_producer_id(broker: BrokerServices, call: Call) -> None:
    request: InitProducerIdRequest = call.message

    def refuse(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and call.version < KNOWS_FENCED_FROM_VERSION:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        call.answer(init_error(code))

    try:
        expected_producer(request)
        if request.transactional_id is None:
            # An idempotent producer has no state to keep: whatever id and epoch it had, it begins anew (KIP-360).
            call.answer(InitProducerIdResponse(producer_id=broker.producer_ids.take(), producer_epoch=0))
            return
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        shard = broker.transactions.shard(request.transactional_id)
    except KafkaError as error:
        refuse(error.code)
        return
    reply = Reply(call.answer, refuse)
    shard.run(partial(shard.machine.init_producer_id, request, reply), reply)
