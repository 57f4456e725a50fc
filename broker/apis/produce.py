"""Produce (0): checks batches and appends them as they came; the response waits for the replicas.

A request with a batch that takes long to check, or with very many partitions, continues in a task, and later produce
requests of its connection wait for it. `produce_request.py` is the way of a request, `transactional_produce.py` what a
transaction adds to it, `produce_response.py` its response.
"""

from __future__ import annotations

from barnabas.broker.apis.produce_request import ProduceOperation, ProducePorts
from barnabas.broker.apis.produce_response import NO_RESPONSE
from barnabas.broker.apis.transactional_produce import TransactionalProduce
from barnabas.kraft.authorizer.refusals import refusal_on
from barnabas.kraft.rights import refuse
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.records.batch import is_transactional_batch
from barnabas.runtime.dispatch import Call
from barnabas.runtime.server import Steps


def produce(ports: ProducePorts, call: Call) -> Steps | None:
    if call.slot.connection_ended and call.message.acks != NO_RESPONSE:
        # Its producer stopped waiting for a response, and may have sent these records again over another connection.
        call.answer_nothing()
        return None
    if call.has_authorizer and not _may_write_in_transaction(call):
        return _refuse(call)
    kind = ProduceOperation if call.message.transactional_id is None else TransactionalProduce
    operation = kind(ports, call)
    ports.slow_admissions.enter(call.request.connection_id, operation.take_turn)
    operation.has_waited = True
    return None


def _refuse(call: Call) -> Steps | None:
    error = refusal_on(AclResourceType.TRANSACTIONAL_ID)
    if call.is_large and call.message.acks != NO_RESPONSE:
        return refuse(call, error.code, str(error.message))
    call.refuse(error.code)
    return None


def _may_write_in_transaction(call: Call) -> bool:
    """True if the client may use the transactional id of the request, or does not use it for any batch."""
    request: ProduceRequest = call.message
    transactional_id = request.transactional_id
    if transactional_id is None:
        return True  # transactional batches are refused one by one
    if not any(is_transactional_batch(it.records) for topic in request.topic_data for it in topic.partition_data):
        return True
    return call.may(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
