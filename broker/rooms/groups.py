"""Groups of consumers, and their offsets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.classic_groups import heartbeat, join_group, leave_group, sync_group
from barnabas.broker.apis.group_offsets import GroupOffsetPorts, offset_commit, offset_delete
from barnabas.broker.apis.offset_fetch import offset_fetch
from barnabas.broker.groups.coordinator import GroupCoordinatorPorts, group_kind
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.rooms import Handlers

if TYPE_CHECKING:
    from barnabas.broker.coordination import Coordination
    from barnabas.broker.coordinator.coordinator import CoordinatedKind
    from barnabas.broker.groups.machine import GroupMachine
    from barnabas.broker.parts import BrokerParts


def group_kind_of(coordination: Coordination) -> CoordinatedKind[GroupMachine]:
    ports = coordination.ports
    return group_kind(
        GroupCoordinatorPorts(
            ports.world,
            ports.background,
            ports.metadata,
            ports.settings,
            coordination.group_events,
            coordination.late_share_states.get,
            coordination.group_memory,
        )
    )


def group_handlers(parts: BrokerParts) -> Handlers:
    coordination = parts.coordination
    groups = coordination.groups
    groups.open()
    offsets = GroupOffsetPorts(groups, coordination.ports.metadata)
    return {
        ApiKey.JOIN_GROUP: partial(join_group, groups),
        ApiKey.HEARTBEAT: partial(heartbeat, groups),
        ApiKey.LEAVE_GROUP: partial(leave_group, groups),
        ApiKey.SYNC_GROUP: partial(sync_group, groups),
        ApiKey.OFFSET_COMMIT: partial(offset_commit, offsets),
        ApiKey.OFFSET_FETCH: partial(offset_fetch, offsets),
        ApiKey.OFFSET_DELETE: partial(offset_delete, offsets),
    }
