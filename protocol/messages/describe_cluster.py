"""DescribeCluster (API key 60)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    """Describe the cluster id, the controller and the brokers. Version 1: the endpoints of controllers instead;
    2: fenced brokers (KIP-700, KIP-919, KIP-1073). Versions 0 to 2; flexible."""

    include_cluster_authorized_operations: bool = field(BOOL, "0+", default=False)
    endpoint_type: int = field(INT8, "1+", default=1)
    include_fenced_brokers: bool = field(BOOL, "2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32, "0+", default=0)
    host: str = field(STRING, "0+", default="")
    port: int = field(INT32, "0+", default=0)
    rack: str | None = field(STRING, "0+", default=None, nullable="0+")
    is_fenced: bool = field(BOOL, "2+", default=False)


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    """The answer to `DescribeClusterRequest`. Versions 0 to 2; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    endpoint_type: int = field(INT8, "1+", default=1)
    cluster_id: str = field(STRING, "0+", default="")
    controller_id: int = field(INT32, "0+", default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker), "0+", factory=list)
    cluster_authorized_operations: int = field(INT32, "0+", default=-2147483648)
