"""Values of configurations (KIP-133, KIP-226, KIP-339)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from barnabas.protocol.open_enums import OpenIntEnum


class ResourceType(OpenIntEnum):
    """Owner of a configuration (Kafka's `ConfigResource.Type`)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, a broker (its id as text; without a name the default of all brokers), a group, …"""

    type: ResourceType
    name: str = ""

    def __str__(self) -> str:
        return f"{self.type.name} {self.name or 'default'}"


class ConfigSource(OpenIntEnum):
    """Source of a value; the first one in Kafka's order that has a value wins."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(OpenIntEnum):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """Another key, or source, that could provide the value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key. The value is None if it is sensitive or not set."""

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    is_read_only: bool = False
    is_sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether it has the default value of the software."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class OpType(IntEnum):
    """APPEND and SUBTRACT change a list; DELETE restores the default."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """A change of one key."""

    name: str
    value: str | None = None
    op_type: OpType = OpType.SET


def operations_in(changes: Iterable[AlterConfigOp] | Mapping[str, str | None]) -> list[AlterConfigOp]:
    """A mapping sets its keys; None restores the default."""
    if isinstance(changes, Mapping):
        return [
            AlterConfigOp(key, value, OpType.DELETE if value is None else OpType.SET) for key, value in changes.items()
        ]
    return list(changes)
