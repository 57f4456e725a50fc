"""Share groups (KIP-932): their members, the share partitions that a broker leads, and their states."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.describe_share_offsets import describe_share_group_offsets
from barnabas.broker.apis.group_calls import share_groups_are_enabled
from barnabas.broker.apis.share_acknowledge import share_acknowledge
from barnabas.broker.apis.share_calls import SharePorts
from barnabas.broker.apis.share_fetch import share_fetch
from barnabas.broker.apis.share_group_offsets import (
    ShareOffsetPorts,
    alter_share_group_offsets,
    delete_share_group_offsets,
)
from barnabas.broker.apis.share_groups import share_group_heartbeat
from barnabas.broker.apis.share_state import ShareStatePorts, serve_share_state, share_group_state
from barnabas.broker.groups.share_groups import ShareGroups as Members  # noqa: F401 - loaded with this room
from barnabas.broker.own_channel import OwnChannel
from barnabas.broker.shares.dead_letters import DeadLetterPorts, DeadLetterTopics
from barnabas.broker.shares.group_states import GroupShareStates  # noqa: F401 - loaded with this room
from barnabas.broker.shares.led_partitions import LedPorts
from barnabas.broker.shares.node_part import ShareGroups
from barnabas.broker.shares.remote_records import SharedRemoteRecords
from barnabas.broker.shares.sessions import PARTITION_BYTES, ShareSessions
from barnabas.broker.shares.state_client import ShareStateChannel, ShareStateClient, ShareStateClientPorts
from barnabas.broker.shares.state_coordinator import share_state_kind  # noqa: F401 - loaded with this room
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.memory import SESSIONS_PART
from barnabas.runtime.rooms import Handlers

if TYPE_CHECKING:
    from barnabas.broker.coordination import Coordination
    from barnabas.broker.parts import BrokerParts


def share_groups(parts: BrokerParts) -> ShareGroups:
    """The share partitions that the broker leads, and the sessions of members."""
    world = parts.world
    ports = LedPorts(
        lookup=parts.lookup,
        store=parts.coordination.share_states,
        configs=parts.share_configs,
        background=parts.background,
        wheel=parts.wheel,
        monotonic=world.monotonic,
        wall_clock=world.wall_clock,
        decisions=parts.decisions,
        dead_letters=_dead_letters(parts),
    )
    sessions = ShareSessions(
        parts.static.group_share_max_share_sessions,
        parts.limits.memory_limit_bytes // SESSIONS_PART // PARTITION_BYTES,
    )
    return ShareGroups(ports, sessions)


def _dead_letters(parts: BrokerParts) -> DeadLetterTopics:
    return DeadLetterTopics(
        DeadLetterPorts(
            world=parts.world,
            node_id=parts.static.node_id,
            image=lambda: parts.metadata.image,
            topic_config=parts.topic_config,
            partitions=parts.partitions,
            channel_to=partial(parts.channel_to, purpose="dead-letters"),
            create=parts.coordination.auto_topics.create_dead_letters,
            settings=parts.current_settings,
        )
    )


def share_state_client(coordination: Coordination) -> ShareStateClient:
    """Asks the share coordinators."""
    ports = coordination.ports

    def channel_to(broker_id: int) -> ShareStateChannel | None:
        if broker_id == ports.settings().node_id:
            return OwnChannel(partial(serve_share_state, share_state_ports(coordination)))
        node = ports.channels.node(broker_id)
        return None if node is None else ports.channels.open(node, ports.nursery, "share-states")

    return ShareStateClient(
        ShareStateClientPorts(
            ports.world,
            ports.background,
            coordination.image,
            channel_to,
            coordination.auto_topics.create_internal,
            lambda: ports.settings().request_timeout_ms,
        )
    )


def share_state_ports(coordination: Coordination) -> ShareStatePorts:
    return ShareStatePorts(coordination.shares, coordination.share_writes)


def share_handlers(parts: BrokerParts) -> Handlers:
    return _of_members(parts) | _of_offsets(parts) | _of_states(parts.coordination)


def _of_members(parts: BrokerParts) -> Handlers:
    """Requests of members: to the coordinator of their group, and to the leaders of partitions."""
    groups, shares, remote = parts.coordination.groups, parts.shares, parts.remote
    groups.open()

    def is_enabled() -> bool:
        return share_groups_are_enabled(parts.metadata.image)

    ports = SharePorts(
        shares=shares,
        lookup=parts.lookup,
        metadata=parts.metadata,
        configs=parts.share_configs,
        is_enabled=is_enabled,
        monotonic=parts.world.monotonic,
        settings=parts.current_settings,
        bytes_out=parts.bytes_out,
        remote=None if remote is None else SharedRemoteRecords(remote.reading.reads, shares.partitions.wake),
    )
    return {
        ApiKey.SHARE_GROUP_HEARTBEAT: partial(share_group_heartbeat, groups, is_enabled),
        ApiKey.SHARE_FETCH: partial(share_fetch, ports),
        ApiKey.SHARE_ACKNOWLEDGE: partial(share_acknowledge, ports),
    }


def _of_offsets(parts: BrokerParts) -> Handlers:
    """Requests of administrators to the coordinator of a group."""
    coordination = parts.coordination

    def is_enabled() -> bool:
        return share_groups_are_enabled(parts.metadata.image)

    ports = ShareOffsetPorts(
        coordination.groups, coordination.share_states, coordination.image, parts.group_lags.ends, is_enabled
    )
    return {
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: partial(describe_share_group_offsets, ports),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: partial(alter_share_group_offsets, ports),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: partial(delete_share_group_offsets, ports),
    }


def _of_states(coordination: Coordination) -> Handlers:
    """Requests of brokers to share coordinators."""
    coordination.shares.open()
    return dict.fromkeys(
        (
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
        partial(share_group_state, share_state_ports(coordination)),
    )
