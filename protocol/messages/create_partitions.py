"""CreatePartitions (API key 37)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, Message, Struct, array, field


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(array(INT32), "0+", factory=list)


class CreatePartitionsTopic(Struct):
    name: str = field(STRING, "0+", default="")
    count: int = field(INT32, "0+", default=0)
    assignments: list[CreatePartitionsAssignment] | None = field(
        array(CreatePartitionsAssignment), "0+", factory=list, nullable="0+"
    )


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    """Give topics more partitions (KIP-195, KIP-599). Versions 0 to 3; flexible from 2."""

    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic), "0+", factory=list)
    timeout_ms: int = field(INT32, "0+", default=0)
    validate_only: bool = field(BOOL, "0+", default=False)


class CreatePartitionsTopicResult(Struct):
    name: str = field(STRING, "0+", default="")
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    """The answer to `CreatePartitionsRequest`. Versions 0 to 3; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult), "0+", factory=list)
