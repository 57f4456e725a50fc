"""ElectLeaders (API key 43)."""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class TopicPartitions(Struct):
    topic: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    """Elect leaders: the preferred replica (0), or any that lives (1, unclean) (KIP-183, KIP-460). Versions
    0 to 2; flexible from 2."""

    election_type: int = field(INT8, "1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(
        array(TopicPartitions), "0+", factory=list, nullable="0+"
    )
    timeout_ms: int = field(INT32, "0+", default=60000)


class PartitionResult(Struct):
    partition_id: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = field(STRING, "0+", default="")
    partition_result: list[PartitionResult] = field(array(PartitionResult), "0+", factory=list)


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    """The answer to `ElectLeadersRequest`. Versions 0 to 2; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field(
        array(ReplicaElectionResult), "0+", factory=list
    )
