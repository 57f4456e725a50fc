"""Settings of a reader of partitions."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.client.consumer.completed_fetch import Unpacking
from barnabas.client.consumer.reset_policy import NO_RESET, ResetPolicy
from barnabas.client.offset_lookup import Isolation


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """Names and defaults are Kafka's, except `reset` (auto.offset.reset), which is `none` here: a reader of given
    offsets has to learn that they are gone.
    """

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    reset: ResetPolicy = NO_RESET
    """Position to continue from if an offset is out of range, or the log was truncated."""
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    """Limit of one response, and of all fetched data that waits for `poll`."""
    max_partition_fetch_bytes: int = 1_048_576
    """Limit of one partition in one response; no more of it is fetched while half of this waits for `poll`."""
    fetch_max_wait_ms: int = 500
    default_api_timeout_ms: int = 60_000
    client_rack: str = ""
    """Rack of a replica to prefer, if the brokers allow it (KIP-392)."""
    metadata_max_age_ms: int = 300_000
    """Time to read from a replica before the leader is asked again."""
    unpacking: Unpacking = field(default_factory=Unpacking)
