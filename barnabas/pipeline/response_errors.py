"""Core: the errors in responses, and which of them are worth a retry."""

from __future__ import annotations

from typing import Any

from barnabas.client.metadata import STALE_METADATA
from barnabas.protocol.errors import ErrorCode, error_code


def is_retriable(code: ErrorCode) -> bool:
    """Whether to send the request again, perhaps to another broker."""
    return code.retriable or code in STALE_METADATA


def response_error(response: Any) -> ErrorCode:
    """The top-level error code."""
    return error_code(response.error_code)


def partition_error(response: Any, partition: int) -> ErrorCode:
    """The error of a response about one partition: the top-level error, or that of the partition, whatever the API
    names these fields."""
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
