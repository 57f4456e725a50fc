"""InitProducerId (22): a producer id for an idempotent producer, id and epoch for a transactional one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from barnabas.broker.apis.transactions import TransactionShards
from barnabas.broker.coordinator.outcome import Reply
from barnabas.broker.transactions.machine import expected_producer, init_error
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.runtime.dispatch import Call

KNOWS_FENCED_FROM_VERSION = 4
"""Older clients know only INVALID_PRODUCER_EPOCH for it (KIP-588)."""


class ProducerIdSource(Protocol):
    """The part of `ProducerIds` that is used here."""

    @property
    def at_hand(self) -> bool: ...

    def take(self) -> int: ...

    async def fetch(self, broker_epoch: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ProducerIdPorts:
    transactions: TransactionShards
    producer_ids: ProducerIdSource
    broker_epoch: Callable[[], int]


def init_producer_id(ports: ProducerIdPorts, call: Call) -> None:
    request: InitProducerIdRequest = call.message
    if call.has_authorizer and (refusal := _refusal(call)) is not ErrorCode.NONE:
        call.answer(init_error(refusal))
        return
    try:
        if request.transactional_id:
            # A request to the wrong broker is refused without waiting for a controller.
            ports.transactions.shard(request.transactional_id)
    except KafkaError as error:
        call.answer(init_error(error.code))
        return
    if ports.producer_ids.at_hand:
        _init_producer_id(ports, call)
    else:
        call.spawn(_fetch_and_init, ports, call)


def _refusal(call: Call) -> ErrorCode:
    """The error if the client has no right to a producer id; NONE if it has."""
    request: InitProducerIdRequest = call.message
    transactional_id = request.transactional_id
    if transactional_id is None:
        may_write = call.may_on_cluster(AclOperation.IDEMPOTENT_WRITE, audited=False)
        may_write = may_write or call.may_on_any(AclOperation.WRITE, AclResourceType.TOPIC)
        return ErrorCode.NONE if may_write else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    may_write = call.may(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
    if may_write and request.enable2_pc:
        may_write = call.may(AclOperation.TWO_PHASE_COMMIT, AclResourceType.TRANSACTIONAL_ID, transactional_id)
    return ErrorCode.NONE if may_write else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def _fetch_and_init(ports: ProducerIdPorts, call: Call) -> None:
    try:
        await ports.producer_ids.fetch(ports.broker_epoch())
    except KafkaError as error:
        call.answer(init_error(error.code))
    else:
        _init_producer_id(ports, call)


def _init_producer_id(ports: ProducerIdPorts, call: Call) -> None:
    request: InitProducerIdRequest = call.message

    def refuse(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and call.version < KNOWS_FENCED_FROM_VERSION:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        call.answer(init_error(code))

    try:
        expected_producer(request)
        if request.transactional_id is None:
            # An idempotent producer has no state here: it gets a new id, whatever id and epoch it had (KIP-360).
            call.answer(InitProducerIdResponse(producer_id=ports.producer_ids.take(), producer_epoch=0))
            return
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        shard = ports.transactions.shard(request.transactional_id)
    except KafkaError as error:
        refuse(error.code)
        return
    reply = Reply(call.answer, refuse)
    shard.run(partial(shard.machine.init_producer_id, request, reply), reply)
