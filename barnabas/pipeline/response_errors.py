"""What an answer says of going on: whether its error passes. A core."""

from __future__ import annotations

from typing import Any

from barnabas.client.metadata import STALE_METADATA
from protocol.errors import ErrorCode, error_code


def is_retriable(code: ErrorCode) -> bool:
    """Whether to ask again, perhaps somebody else."""
    return code.retriable or code in STALE_METADATA


def partition_error(response: Any, partition: int) -> ErrorCode:
    """What an answer about one partition says: the error of the whole, or that of the partition, whatever its API
    calls the parts."""
    code = error_code(getattr(response, "error_code", ErrorCode.NONE))
    if code is not ErrorCode.NONE:
        return code
    topics = getattr(response, "responses", None) or getattr(response, "topics", None) or []
    for topic in topics:
        partitions = getattr(topic, "partition_responses", None) or getattr(topic, "partitions", None) or []
        for each in partitions:
            index = getattr(each, "partition_index", None)
            if index is None:
                index = getattr(each, "index", None)
            if index == partition:
                return error_code(each.error_code)
    return ErrorCode.NONE
