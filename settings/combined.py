"""The settings of a combined node (`process.roles=broker,controller`): those of its two roles, from one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from barnabas.settings.broker import BrokerSettings
from barnabas.settings.controller import ControllerSettings
from barnabas.settings.loading import BOTH_ROLES, Source, load_node
from barnabas.settings.properties import parse_properties


@dataclass(frozen=True, slots=True)
class CombinedSettings:
    """Each role has the keys that it acts on, and its own listeners."""

    broker: BrokerSettings
    controller: ControllerSettings


def roles_in(text: str, name: str, overrides: Mapping[str, str] | None = None) -> list[str]:
    """`process.roles` of a file, unchecked. Raises `SettingsError` for a text that is not a properties file."""
    value = (overrides or {}).get("process.roles")
    if value is None:
        value, _line = parse_properties(text, name).get("process.roles", ("", 0))
    return [each.strip() for each in value.split(",")]


def is_combined(roles: list[str]) -> bool:
    return sorted(roles) == sorted(BOTH_ROLES)


def load_combined_settings(
    text: str, name: str, overrides: Mapping[str, str] | None = None, *, hostname: str = "localhost"
) -> tuple[CombinedSettings, list[str]]:
    """Settings and warnings; see `load_broker_settings`. Raises `SettingsError`.

    Keys without effect are those on which neither role acts.
    """
    source = Source(text, name, overrides or {}, hostname)
    broker, warnings = load_node(BrokerSettings, "broker", source, combined=True)
    controller, more_warnings = load_node(ControllerSettings, "controller", source, combined=True)
    idle = sorted(set(broker.not_acted_on) & set(controller.not_acted_on))
    broker = replace(broker, not_acted_on=idle)
    return CombinedSettings(broker, controller), list(dict.fromkeys([*warnings, *more_warnings]))
