"""AllocateProducerIds (API key 67)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, Message, field


class AllocateProducerIdsRequest(Message, api_key=67, versions="0", flexible="0+"):
    """A broker gets a block of producer ids from the controller (KIP-730). Version 0; flexible."""

    broker_id: int = field(INT32, "0+", default=0)
    broker_epoch: int = field(INT64, "0+", default=-1)


class AllocateProducerIdsResponse(Message, api_key=67, versions="0", flexible="0+"):
    """The answer to `AllocateProducerIdsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    producer_id_start: int = field(INT64, "0+", default=0)
    producer_id_len: int = field(INT32, "0+", default=0)
