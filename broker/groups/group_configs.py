"""What is set for single groups while the cluster runs, as the coordinator asks for it. A core."""

from __future__ import annotations

from broker.groups.group import GroupContext
from kraft.metadata.image import GROUP_RESOURCE
from settings.errors import SettingsError
from settings.group import group_value


def consumer_session_timeout_ms(context: GroupContext, group_id: str) -> int:
    """After which a silent member is out."""
    default = context.settings().group_consumer_session_timeout_ms
    return _number(context, group_id, "consumer.session.timeout.ms", default)


def consumer_heartbeat_interval_ms(context: GroupContext, group_id: str) -> int:
    """How often members are to be heard."""
    default = context.settings().group_consumer_heartbeat_interval_ms
    return _number(context, group_id, "consumer.heartbeat.interval.ms", default)


def consumer_assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    """The least time between two target assignments."""
    default = context.settings().group_consumer_assignment_interval_ms
    return _number(context, group_id, "consumer.assignment.interval.ms", default)


def _number(context: GroupContext, group_id: str, name: str, default: int) -> int:
    """The group's own value, within the broker's bounds, or the broker's."""
    overrides = context.image().configs.get((GROUP_RESOURCE, group_id))
    if overrides is None or name not in overrides:
        return default
    try:
        value = group_value(name, overrides, context.settings().raw)
    except SettingsError:
        # A newer controller may have let it in.
        return default
    assert isinstance(value, int)
    return value
