"""Metadata (API key 3)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, UUID, Message, Struct, array, field


class MetadataRequestTopic(Struct):
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    name: str | None = field(STRING, "0+", default="", nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    """Describe the live brokers, the controller, and leaders, in-sync and offline replicas of topics. A null
    list of topics asks for all, from version 1 on. Version 4: may create topics; 8: authorized operations;
    10: topic ids; 12: ask by topic id; 13: an error for the whole (KIP-4, KIP-430, KIP-516, KIP-1102).
    Versions 0 to 13; flexible from 9."""

    topics: list[MetadataRequestTopic] | None = field(
        array(MetadataRequestTopic), "0+", factory=list, nullable="1+"
    )
    allow_auto_topic_creation: bool = field(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOL, "8-10", default=False)
    include_topic_authorized_operations: bool = field(BOOL, "8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: int = field(INT32, "0+", default=0)
    host: str = field(STRING, "0+", default="")
    port: int = field(INT32, "0+", default=0)
    rack: str | None = field(STRING, "1+", default=None, nullable="1+", ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = field(INT16, "0+", default=0)
    partition_index: int = field(INT32, "0+", default=0)
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32), "0+", factory=list)
    isr_nodes: list[int] = field(array(INT32), "0+", factory=list)
    offline_replicas: list[int] = field(array(INT32), "5+", factory=list, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = field(INT16, "0+", default=0)
    name: str | None = field(STRING, "0+", default="", nullable="12+")
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(BOOL, "1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition), "0+", factory=list)
    topic_authorized_operations: int = field(INT32, "8+", default=-2147483648)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    """The answer to `MetadataRequest`. Versions 0 to 13; flexible from 9."""

    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker), "0+", factory=list)
    cluster_id: str | None = field(STRING, "2+", default=None, nullable="2+", ignorable=True)
    controller_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic), "0+", factory=list)
    cluster_authorized_operations: int = field(INT32, "8-10", default=-2147483648)
    error_code: int = field(INT16, "13+", default=0, ignorable=True)
