"""Consumer groups of the protocol of KIP-848."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.consumer_groups import consumer_group_heartbeat
from barnabas.broker.apis.group_calls import consumer_protocol_is_enabled
from barnabas.broker.groups.migration import with_consumers  # noqa: F401 - loaded with this room
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.rooms import Handlers

if TYPE_CHECKING:
    from barnabas.broker.parts import BrokerParts


def consumer_group_handlers(parts: BrokerParts) -> Handlers:
    coordination = parts.coordination
    coordination.groups.open()

    def is_enabled() -> bool:
        return consumer_protocol_is_enabled(coordination.ports.settings(), coordination.image())

    return {ApiKey.CONSUMER_GROUP_HEARTBEAT: partial(consumer_group_heartbeat, coordination.groups, is_enabled)}
