"""AlterPartition (API key 56)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT8, INT16, INT32, INT64, UUID, Message, Struct, array, field


class BrokerState(Struct):
    broker_id: int = field(INT32, "3+", default=0)
    broker_epoch: int = field(INT64, "3+", default=-1)


class RequestPartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    new_isr: list[int] = field(array(INT32), "0-2", factory=list)
    new_isr_with_epochs: list[BrokerState] = field(array(BrokerState), "3+", factory=list)
    leader_recovery_state: int = field(INT8, "1+", default=0)
    partition_epoch: int = field(INT32, "0+", default=0)


class RequestTopicData(Struct):
    topic_id: bytes = field(UUID, "2+", default=ZERO_UUID, ignorable=True)
    partitions: list[RequestPartitionData] = field(array(RequestPartitionData), "0+", factory=list)


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    """A leader asks the controller to change its in-sync replicas. Version 3: with the epochs of the
    brokers (KIP-497, KIP-704, KIP-841, KIP-903). Versions 2 to 3; flexible."""

    broker_id: int = field(INT32, "0+", default=0)
    broker_epoch: int = field(INT64, "0+", default=-1)
    topics: list[RequestTopicData] = field(array(RequestTopicData), "0+", factory=list)


class ResponsePartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    isr: list[int] = field(array(INT32), "0+", factory=list)
    leader_recovery_state: int = field(INT8, "1+", default=0, ignorable=True)
    partition_epoch: int = field(INT32, "0+", default=0)


class ResponseTopicData(Struct):
    topic_id: bytes = field(UUID, "2+", default=ZERO_UUID, ignorable=True)
    partitions: list[ResponsePartitionData] = field(array(ResponsePartitionData), "0+", factory=list)


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    """The answer to `AlterPartitionRequest`. Versions 2 to 3; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    topics: list[ResponseTopicData] = field(array(ResponseTopicData), "0+", factory=list)
