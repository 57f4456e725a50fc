"""The parts of tiered storage that read: for clients and for followers of a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.remote.follower_states import FollowerStates
from barnabas.broker.remote.index_cache import IndexCache, SegmentReads
from barnabas.broker.remote.read_queue import ReadQueue
from barnabas.broker.remote.reader import RemoteReader
from barnabas.broker.remote.reads import RemoteReads
from barnabas.broker.replication.quota import ReplicationQuota
from barnabas.runtime.background import Background
from barnabas.runtime.world import Clock
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemotePartitionKey

INDEX_MEMORY_PART = 8
"""The indexes take this part of a node's memory for connections at most: Kafka has them in files."""
STATES_AT_ONCE = 4
"""Followers whose state is read at once."""
_NO_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class ReadingPorts:
    store: SegmentReads
    segments: Callable[[RemotePartitionKey], PartitionSegments | None]
    """None: they are not known yet."""
    background: Background
    monotonic: Clock
    settings: CurrentSettings
    quota: ReplicationQuota
    """`remote.log.manager.fetch.max.bytes.per.second`."""
    memory_bytes: int


class RemoteReading:
    """One per broker with tiered storage."""

    def __init__(self, ports: ReadingPorts) -> None:
        settings, now = ports.settings, ports.settings()
        self.indexes = IndexCache(
            ports.store,
            ports.monotonic,
            lambda: min(
                settings().remote_log_index_file_cache_total_size_bytes, ports.memory_bytes // INDEX_MEMORY_PART
            ),
            now.remote_log_index_file_cache_ttl_ms,
        )
        queue = ReadQueue(
            ports.background, lambda: settings().remote_log_reader_threads, now.remote_log_reader_max_pending_tasks
        )
        self.reads = RemoteReads(
            RemoteReader(ports.store, ports.segments, self.indexes),
            queue,
            ports.quota,
            ports.monotonic,
        )
        self.states = FollowerStates(
            ports.store, ports.segments, ReadQueue(ports.background, lambda: STATES_AT_ONCE, _NO_LIMIT)
        )
