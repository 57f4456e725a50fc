"""CreateTopics (API key 19)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Message, Struct, array, field


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    broker_ids: list[int] = field(array(INT32), "0+", factory=list)


class CreatableTopicConfig(Struct):
    name: str = field(STRING, "0+", default="")
    value: str | None = field(STRING, "0+", default="", nullable="0+")


class CreatableTopic(Struct):
    name: str = field(STRING, "0+", default="")
    num_partitions: int = field(INT32, "0+", default=0)
    replication_factor: int = field(INT16, "0+", default=0)
    assignments: list[CreatableReplicaAssignment] = field(
        array(CreatableReplicaAssignment), "0+", factory=list
    )
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig), "0+", factory=list)


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    """Create topics, by counts or with given replicas (KIP-4, KIP-464, KIP-525, KIP-516). Versions 2 to 7;
    flexible from 5."""

    topics: list[CreatableTopic] = field(array(CreatableTopic), "0+", factory=list)
    timeout_ms: int = field(INT32, "0+", default=60000)
    validate_only: bool = field(BOOL, "1+", default=False)


class CreatableTopicConfigs(Struct):
    name: str = field(STRING, "5+", default="")
    value: str | None = field(STRING, "5+", default="", nullable="5+")
    read_only: bool = field(BOOL, "5+", default=False)
    config_source: int = field(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "5+", default=False)


class CreatableTopicResult(Struct):
    name: str = field(STRING, "0+", default="")
    topic_id: bytes = field(UUID, "7+", default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "1+", default="", nullable="0+", ignorable=True)
    topic_config_error_code: int = field(INT16, "5+", default=0, tag=0, ignorable=True)
    num_partitions: int = field(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs), "5+", factory=list, nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    """The answer to `CreateTopicsRequest`. Versions 2 to 7; flexible from 5."""

    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult), "0+", factory=list)
