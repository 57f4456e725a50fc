"""The ports of the coordinators of a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from barnabas.broker.broker_channels import BrokerChannels
from barnabas.broker.controller_channel import ControllerChannel
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings


@dataclass(frozen=True, slots=True)
class CoordinationPorts:
    world: World
    nursery: trio.Nursery
    background: Background
    wheel: TimingWheel
    metadata: MetadataCache
    partitions: Partitions
    controller: ControllerChannel
    settings: Callable[[], BrokerSettings]
    decisions: Decisions
    broker_epoch: Callable[[], int]
    channels: BrokerChannels
    most_group_bytes: int
    """Memory that groups may hold."""
