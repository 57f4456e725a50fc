"""WriteTxnMarkers (API key 27)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, INT64, STRING, Message, Struct, array, field


class WritableTxnMarkerTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partition_indexes: list[int] = field(array(INT32), "0+", factory=list)


class WritableTxnMarker(Struct):
    producer_id: int = field(INT64, "0+", default=0)
    producer_epoch: int = field(INT16, "0+", default=0)
    transaction_result: bool = field(BOOL, "0+", default=False)
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic), "0+", factory=list)
    coordinator_epoch: int = field(INT32, "0+", default=0)
    transaction_version: int = field(INT8, "2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Message, api_key=27, versions="1-2", flexible="1+"):
    """The transaction coordinator has commit or abort markers written. Version 2: transaction version
    (KIP-98, KIP-1228). Versions 1 to 2; flexible."""

    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker), "0+", factory=list)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)


class WritableTxnMarkerTopicResult(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[WritableTxnMarkerPartitionResult] = field(
        array(WritableTxnMarkerPartitionResult), "0+", factory=list
    )


class WritableTxnMarkerResult(Struct):
    producer_id: int = field(INT64, "0+", default=0)
    topics: list[WritableTxnMarkerTopicResult] = field(
        array(WritableTxnMarkerTopicResult), "0+", factory=list
    )


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    """The answer to `WriteTxnMarkersRequest`. Versions 1 to 2; flexible."""

    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult), "0+", factory=list)
