"""InitProducerId (22) with a transactional id: id and epoch from the transaction coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from barnabas.broker.apis.producer_ids import ProducerIdSource
from barnabas.broker.apis.transactions import TransactionShards
from barnabas.broker.coordinator.outcome import Reply
from barnabas.broker.transactions.init_producer import expected_producer, init_error
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.runtime.dispatch import Call

KNOWS_FENCED_FROM_VERSION = 4
"""Older clients know only INVALID_PRODUCER_EPOCH for it (KIP-588)."""


@dataclass(frozen=True, slots=True)
class TransactionalProducerPorts:
    transactions: TransactionShards
    producer_ids: ProducerIdSource
    broker_epoch: Callable[[], int]


def init_transactional_producer(ports: TransactionalProducerPorts, call: Call) -> None:
    request: InitProducerIdRequest = call.message
    try:
        # A request to the wrong broker is refused without waiting for a controller.
        ports.transactions.shard(request.transactional_id or "")
    except KafkaError as error:
        call.answer(init_error(error.code))
        return
    if ports.producer_ids.at_hand:
        _init(ports, call)
    else:
        call.spawn(_fetch_and_init, ports, call)


async def _fetch_and_init(ports: TransactionalProducerPorts, call: Call) -> None:
    try:
        await ports.producer_ids.fetch(ports.broker_epoch())
    except KafkaError as error:
        call.answer(init_error(error.code))
    else:
        _init(ports, call)


def _init(ports: TransactionalProducerPorts, call: Call) -> None:
    request: InitProducerIdRequest = call.message

    def refuse(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and call.version < KNOWS_FENCED_FROM_VERSION:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        call.answer(init_error(code))

    try:
        expected_producer(request)
        shard = ports.transactions.shard(request.transactional_id or "")
    except KafkaError as error:
        refuse(error.code)
        return
    reply = Reply(call.answer, refuse)
    shard.run(partial(shard.machine.init_producer_id, request, reply), reply)
