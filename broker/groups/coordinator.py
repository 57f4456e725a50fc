"""Shell: the kind of the group coordinator, for the generic coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinator.coordinator import CoordinatedKind
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.coordinator.shard_timers import ShardTimers
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.groups.group import GroupContext, GroupDirectory
from barnabas.broker.groups.group_memory import GroupMemory
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replication.partition import Partition
from barnabas.broker.traffic import GroupEvents
from barnabas.protocol.messages import group_log
from barnabas.runtime.background import Background
from barnabas.runtime.late import Late
from barnabas.runtime.world import World

if TYPE_CHECKING:
    from barnabas.broker.shares.group_states import GroupShareStates
    from barnabas.broker.shares.state import ShareStateStore


@dataclass(frozen=True, slots=True)
class GroupCoordinatorPorts:
    world: World
    background: Background
    metadata: MetadataCache
    settings: CurrentSettings
    events: GroupEvents
    share_states: Callable[[], ShareStateStore]
    memory: GroupMemory


def group_kind(ports: GroupCoordinatorPorts) -> CoordinatedKind[GroupMachine]:
    """The groups whose partition of `__consumer_offsets` a broker leads."""

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
                share_states=_ShareStates(
                    Late(
                        "barnabas.broker.shares.group_states:GroupShareStates",
                        ports.background,
                        ports.share_states,
                        shard,
                    )
                ),
            )
        )

    return CoordinatedKind(group_log, make_machine)


class _ShareStates:
    """`broker.groups.group.ShareStates`, for the first share group."""

    def __init__(self, late: Late[GroupShareStates]) -> None:
        self._late = late

    def initialize(self, group_id: str, state_epoch: int, states: Mapping[bytes, Any]) -> None:
        self._late.get().initialize(group_id, state_epoch, states)
