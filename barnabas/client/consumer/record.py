"""Core: a record as a consumer returns it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.protocol.records.record import Headers


class TimestampType(IntEnum):
    """The clock that a timestamp comes from."""

    NO_TIMESTAMP_TYPE = -1
    """Records of the oldest format have none."""
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """One record (a tuple because that is the cheapest object to create)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since the epoch; -1 without one."""
    timestamp_type: TimestampType
    key: Any
    """Result of the deserializer, or bytes without one; None if the record has no key."""
    value: Any
    """Result of the deserializer, or bytes without one; None for a tombstone."""
    headers: Headers = ()
    leader_epoch: int | None = None
    """Epoch of the leader that appended it; None if the batch has none."""
