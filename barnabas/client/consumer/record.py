"""A record as a consumer gives it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from protocol.records.record import Headers


class TimestampType(IntEnum):
    """Whose clock a timestamp is of."""

    NO_TIMESTAMP_TYPE = -1
    """Records of the oldest format have none."""
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """One record (a tuple because making one is then cheapest)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since the epoch; -1 if it has none."""
    timestamp_type: TimestampType
    key: Any
    """As the deserializer made it; bytes without one, None if the record has no key."""
    value: Any
    """As the deserializer made it; bytes without one, None for a tombstone."""
    headers: Headers = ()
    leader_epoch: int | None = None
    """Of the leader that appended it; None where the batch does not say."""
