"""InitProducerId (22): a producer id for an idempotent producer. `transactional_producer_ids.py` has the other kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from barnabas.broker.transactions.init_producer import expected_producer, init_error
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.runtime.dispatch import Call, Handler
from barnabas.runtime.server import Steps


class ProducerIdSource(Protocol):
    """The part of `ProducerIds` that is used here."""

    @property
    def at_hand(self) -> bool: ...

    def take(self) -> int: ...

    async def fetch(self, broker_epoch: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ProducerIdPorts:
    producer_ids: ProducerIdSource
    broker_epoch: Callable[[], int]
    transactional: Handler
    """Serves requests with a transactional id."""


def init_producer_id(ports: ProducerIdPorts, call: Call) -> Steps | None:
    request: InitProducerIdRequest = call.message
    if call.has_authorizer and (refusal := _refusal(call)) is not ErrorCode.NONE:
        call.answer(init_error(refusal))
        return None
    if request.transactional_id:
        return ports.transactional(call)
    if ports.producer_ids.at_hand:
        _give(ports, call)
    else:
        call.spawn(_fetch_and_give, ports, call)
    return None


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


async def _fetch_and_give(ports: ProducerIdPorts, call: Call) -> None:
    try:
        await ports.producer_ids.fetch(ports.broker_epoch())
    except KafkaError as error:
        call.answer(init_error(error.code))
    else:
        _give(ports, call)


def _give(ports: ProducerIdPorts, call: Call) -> None:
    request: InitProducerIdRequest = call.message
    try:
        expected_producer(request)
        if request.transactional_id is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
    except KafkaError as error:
        call.answer(init_error(error.code))
        return
    # An idempotent producer has no state here: it gets a new id, whatever id and epoch it had (KIP-360).
    call.answer(InitProducerIdResponse(producer_id=ports.producer_ids.take(), producer_epoch=0))
