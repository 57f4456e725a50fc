"""Answers of a log: where a batch was appended, and that an offset is not in it."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError


class OffsetOutOfRange(KafkaError):
    """The offset is before the log's start or behind its end."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class AppendResult(NamedTuple):
    """Position of a produced batch."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic has LogAppendTime."""
    duplicate: bool
    """Nothing was appended: the offsets are those of the first attempt."""
