"""DescribeLogDirs (API key 35)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, field


class DescribableLogDirTopic(Struct):
    topic: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    """Describe log directories: size and lag of replicas. Version 4: size of the volume; 5: cordoned (KIP-113,
    KIP-827, KIP-1066). Versions 1 to 5; flexible from 2."""

    topics: list[DescribableLogDirTopic] | None = field(
        array(DescribableLogDirTopic), "0+", factory=list, nullable="0+"
    )


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    partition_size: int = field(INT64, "0+", default=0)
    offset_lag: int = field(INT64, "0+", default=0)
    is_future_key: bool = field(BOOL, "0+", default=False)


class DescribeLogDirsTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition), "0+", factory=list)


class DescribeLogDirsResult(Struct):
    error_code: int = field(INT16, "0+", default=0)
    log_dir: str = field(STRING, "0+", default="")
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic), "0+", factory=list)
    total_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(BOOL, "5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    """The answer to `DescribeLogDirsRequest`. Versions 1 to 5; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult), "0+", factory=list)
