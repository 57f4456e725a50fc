"""Shell: the group coordinator of a broker: the generic coordinator with the state machine of groups."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.broker.coordinator.coordinator import CoordinatedTopic, Coordinator
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.coordinator.shard_timers import ShardTimers
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.groups.group import GroupContext, GroupDirectory
from barnabas.broker.groups.group_memory import GroupMemory
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replication.partition import Partition
from barnabas.broker.shares.group_states import GroupShareStates
from barnabas.broker.shares.state import ShareStateStore
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.broker.traffic import GroupEvents
from barnabas.protocol.messages import group_log
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.world import World


@dataclass(frozen=True, slots=True)
class GroupCoordinatorPorts:
    world: World
    background: Background
    wheel: TimingWheel
    metadata: MetadataCache
    settings: CurrentSettings
    decisions: Decisions
    events: GroupEvents
    share_states: ShareStateStore
    memory: GroupMemory


def group_coordinator(ports: GroupCoordinatorPorts) -> Coordinator[GroupMachine]:
    """Coordinator of the groups whose partition of `__consumer_offsets` this broker leads."""

    def make_machine(_partition: Partition, timers: ShardTimers) -> GroupMachine:
        def shard() -> Shard[GroupMachine] | None:
            found: Shard[GroupMachine] | None = timers.shard
            return found

        return GroupMachine(
            GroupContext(
                groups=GroupDirectory(ports.memory),
                timers=timers,
                chance=ports.world.chance,
                settings=ports.settings,
                image=lambda: ports.metadata.image,
                events=ports.events,
                share_states=GroupShareStates(ports.background, ports.share_states, shard),
            )
        )

    return Coordinator(
        CoordinatedTopic(
            GROUP_TOPIC,
            group_log,
            commit_timeout_ms=lambda: ports.settings().offsets_commit_timeout_ms,
            compression=lambda: ports.settings().offsets_topic_compression_codec,
        ),
        ports.world,
        ports.background,
        ports.wheel,
        lambda: ports.metadata.image,
        make_machine,
        decisions=ports.decisions,
    )
