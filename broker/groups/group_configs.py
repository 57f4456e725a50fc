"""Core: dynamic configs of single groups, with the broker's settings as defaults."""

from __future__ import annotations

from barnabas.broker.groups.group import GroupContext
from barnabas.kraft.metadata.image import GROUP_RESOURCE
from barnabas.settings.errors import SettingsError
from barnabas.settings.group import group_value


def consumer_session_timeout_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_consumer_session_timeout_ms
    return _number(context, group_id, "consumer.session.timeout.ms", default)


def consumer_heartbeat_interval_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_consumer_heartbeat_interval_ms
    return _number(context, group_id, "consumer.heartbeat.interval.ms", default)


def consumer_assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    """Minimum time between two target assignments."""
    default = context.settings().group_consumer_assignment_interval_ms
    return _number(context, group_id, "consumer.assignment.interval.ms", default)


def share_session_timeout_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_share_session_timeout_ms
    return _number(context, group_id, "share.session.timeout.ms", default)


def share_heartbeat_interval_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_share_heartbeat_interval_ms
    return _number(context, group_id, "share.heartbeat.interval.ms", default)


def share_assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    """Minimum time between two target assignments."""
    default = context.settings().group_share_assignment_interval_ms
    return _number(context, group_id, "share.assignment.interval.ms", default)


def streams_session_timeout_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_streams_session_timeout_ms
    return _number(context, group_id, "streams.session.timeout.ms", default)


def streams_heartbeat_interval_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_streams_heartbeat_interval_ms
    return _number(context, group_id, "streams.heartbeat.interval.ms", default)


def streams_assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    """Minimum time between two target assignments."""
    default = context.settings().group_streams_assignment_interval_ms
    return _number(context, group_id, "streams.assignment.interval.ms", default)


def streams_initial_rebalance_delay_ms(context: GroupContext, group_id: str) -> int:
    """Time in which the members of a new group join, before the first target assignment."""
    default = context.settings().group_streams_initial_rebalance_delay_ms
    return _number(context, group_id, "streams.initial.rebalance.delay.ms", default)


def streams_num_standby_replicas(context: GroupContext, group_id: str) -> int:
    """Standby tasks of each stateful task."""
    default = context.settings().group_streams_num_standby_replicas
    return _number(context, group_id, "streams.num.standby.replicas", default)


def _number(context: GroupContext, group_id: str, name: str, default: int) -> int:
    """The group's own value, clamped to the broker's bounds, or else the broker's setting."""
    overrides = context.image().configs.get((GROUP_RESOURCE, group_id))
    if overrides is None or name not in overrides:
        return default
    try:
        value = group_value(name, overrides, context.settings().raw)
    except SettingsError:
        # A newer controller may accept values that this version cannot read.
        return default
    assert isinstance(value, int)
    return value
