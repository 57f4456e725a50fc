"""Members of streams groups (KIP-1071)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.group_calls import streams_groups_are_enabled
from barnabas.broker.apis.streams_groups import StreamsGroupPorts, streams_group_heartbeat
from barnabas.broker.groups.streams.streams_groups import StreamsGroups  # noqa: F401 - loaded with this room
from barnabas.broker.streams_topics import StreamsTopics
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.rooms import Handlers

if TYPE_CHECKING:
    from barnabas.broker.parts import BrokerParts


def streams_handlers(parts: BrokerParts) -> Handlers:
    coordination = parts.coordination
    ports = coordination.ports
    coordination.groups.open()

    def is_enabled() -> bool:
        return streams_groups_are_enabled(ports.settings(), coordination.image())

    topics = StreamsTopics(
        coordination.auto_topics, ports.background, ports.world.monotonic, ports.settings().request_timeout_ms
    )
    streams = StreamsGroupPorts(coordination.groups, is_enabled, topics)
    return {ApiKey.STREAMS_GROUP_HEARTBEAT: partial(streams_group_heartbeat, streams)}
