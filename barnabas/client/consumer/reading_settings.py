"""How partitions are read."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.client.consumer.completed_fetch import Unpacking
from barnabas.client.consumer.reset_policy import NO_RESET, ResetPolicy
from barnabas.client.offset_lookup import Isolation


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """Names and defaults are Kafka's, but for `reset` (auto.offset.reset), which is `none` here: who reads given
    offsets wants to hear that they are gone.
    """

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    reset: ResetPolicy = NO_RESET
    """Where to go on if an offset is out of range, or the log was cut."""
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    """Of one answer; also how much waits for `poll` before nothing more is fetched."""
    max_partition_fetch_bytes: int = 1_048_576
    """Of one partition in one answer; while half of it waits for `poll`, no more of that partition is fetched."""
    fetch_max_wait_ms: int = 500
    default_api_timeout_ms: int = 60_000
    client_rack: str = ""
    """Read from a replica there, if the brokers are willing (KIP-392)."""
    metadata_max_age_ms: int = 300_000
    """How long a replica that the leader named is read from before the leader is asked again."""
    unpacking: Unpacking = field(default_factory=Unpacking)
