"""AlterReplicaLogDirs (API key 34)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class AlterReplicaLogDirTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class AlterReplicaLogDir(Struct):
    path: str = field(STRING, "0+", default="")
    topics: list[AlterReplicaLogDirTopic] = field(array(AlterReplicaLogDirTopic), "0+", factory=list)


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    """Move replicas between log directories of one broker (KIP-113). Versions 1 to 2; flexible from 2."""

    dirs: list[AlterReplicaLogDir] = field(array(AlterReplicaLogDir), "0+", factory=list)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[AlterReplicaLogDirPartitionResult] = field(
        array(AlterReplicaLogDirPartitionResult), "0+", factory=list
    )


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    """The answer to `AlterReplicaLogDirsRequest`. Versions 1 to 2; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[AlterReplicaLogDirTopicResult] = field(
        array(AlterReplicaLogDirTopicResult), "0+", factory=list
    )
