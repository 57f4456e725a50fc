"""The parts of a broker that the tasks of tiered storage use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.remote.metadata_topic import RemoteMetadata
from barnabas.broker.remote.segment_store import RemoteSegmentStore
from barnabas.broker.remote.traffic import RemoteTraffic
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quota import ReplicationQuota
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import Notepad
from barnabas.runtime.world import World


@dataclass(frozen=True, slots=True)
class RemotePorts:
    world: World
    directory: str
    """The log directory for what these tasks have to remember."""
    node_id: int
    settings: CurrentSettings
    find: Callable[[bytes, int], Partition | None]
    """The partition by topic id and index, if this broker has it."""
    store: RemoteSegmentStore
    metadata: RemoteMetadata
    background: Background
    decisions: Notepad
    traffic: RemoteTraffic
    copy_quota: ReplicationQuota
    """`remote.log.manager.copy.max.bytes.per.second`."""
