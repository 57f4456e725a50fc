"""Requests of administrators about groups of all kinds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.group_admin import delete_groups, list_groups
from barnabas.broker.apis.group_calls import (
    consumer_protocol_is_enabled,
    share_groups_are_enabled,
    streams_groups_are_enabled,
)
from barnabas.broker.apis.group_describe import (
    consumer_group_describe,
    describe_groups,
    share_group_describe,
    streams_group_describe,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.rooms import Handlers

if TYPE_CHECKING:
    from barnabas.broker.parts import BrokerParts


def group_admin_handlers(parts: BrokerParts) -> Handlers:
    coordination, settings, image = parts.coordination, parts.current_settings, parts.coordination.image
    groups = coordination.groups
    groups.open()

    def consumers_are_enabled() -> bool:
        return consumer_protocol_is_enabled(settings(), image())

    def shares_are_enabled() -> bool:
        return share_groups_are_enabled(image())

    def streams_are_enabled() -> bool:
        return streams_groups_are_enabled(settings(), image())

    return {
        ApiKey.LIST_GROUPS: partial(list_groups, groups),
        ApiKey.DELETE_GROUPS: partial(delete_groups, groups, coordination.late_share_states.get),
        ApiKey.DESCRIBE_GROUPS: partial(describe_groups, groups),
        ApiKey.CONSUMER_GROUP_DESCRIBE: partial(consumer_group_describe, groups, consumers_are_enabled),
        ApiKey.SHARE_GROUP_DESCRIBE: partial(share_group_describe, groups, shares_are_enabled),
        ApiKey.STREAMS_GROUP_DESCRIBE: partial(streams_group_describe, groups, streams_are_enabled),
    }
