"""What is set for single groups while the cluster runs, as the coordinator asks for it. A core."""

from __future__ import annotations

from broker.groups.group import GroupContext
from kraft.metadata.image import GROUP_RESOURCE
from settings.errors import SettingsError
from settings.group import group_value


def group_config_ms(context: GroupContext, group_id: str, name: str) -> int:
    """The value of one key of a group (`consumer.session.timeout.ms`), within the broker's bounds; without an override
    the broker's own (`group.consumer.session.timeout.ms`).
    """
    settings = context.settings()
    overrides = context.image().configs.get((GROUP_RESOURCE, group_id))
    if overrides is not None and name in overrides:
        try:
            value = group_value(name, overrides, settings.raw)
        except SettingsError:
            # A newer controller may have let it in.
            value = None
        if isinstance(value, int):
            return value
    default: int = getattr(settings, "group_" + name.replace(".", "_"))
    return default
