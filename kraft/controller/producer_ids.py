"""Blocks of producer ids (KIP-730): each id is given out once in the life of a cluster, by whichever
controller."""

from __future__ import annotations

from barnabas.kraft.controller.partitions import check_broker_epoch
from barnabas.kraft.controller.state import ControllerResult, ControllerState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.protocol.messages.metadata_log import ProducerIdsRecord

PRODUCER_ID_BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = (1 << 63) - 1


def allocate_producer_ids(
    state: ControllerState, request: AllocateProducerIdsRequest, version: int
) -> ControllerResult[AllocateProducerIdsResponse]:
    """The next block, for one incarnation of a broker. An uncommitted block is skipped by its successor, so a
    retry after a failover may waste a block but never repeats one."""
    check_broker_epoch(state.image, request.broker_id, request.broker_epoch)
    start = state.image.producer_ids.next_producer_id
    if start > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + PRODUCER_ID_BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
    return ControllerResult(response, [record])
