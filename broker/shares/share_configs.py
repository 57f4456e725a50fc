"""Core: the configs of one share group, with the broker's settings as defaults (KIP-932, KIP-1222)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas.broker.shares.share_partition import Terms
from barnabas.kraft.metadata.image import GROUP_RESOURCE, MetadataImage
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.definitions import Value
from barnabas.settings.errors import SettingsError
from barnabas.settings.group import group_value

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration"
NO_OVERRIDES: Final[Mapping[str, str]] = {}
MOST_REMEMBERED: Final = 1_000
_PART = re.compile(r"(\d+)(?:[.,](\d*))?([DHMS])", re.IGNORECASE | re.ASCII)
_UNIT_MS = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1_000}


class ShareConfigs(NamedTuple):
    terms: Terms
    offset_reset: str
    """Where a share partition starts that nobody has read: EARLIEST, LATEST or BY_DURATION."""
    back_ms: int
    """Distance back from now, for BY_DURATION."""
    read_committed: bool
    dead_letter_topic: str = ""
    """Empty: none."""
    copies_records: bool = False
    """Dead letters have key, value and headers of the record."""


class ShareConfigsByGroup:
    """The configs of groups as they are now. Those of the last groups are remembered: each request reads some."""

    def __init__(self, image: Callable[[], MetadataImage], settings: Callable[[], BrokerSettings]) -> None:
        self._image = image
        self._settings = settings
        self._known: dict[str, tuple[Mapping[str, str], Mapping[str, str], ShareConfigs]] = {}
        """By group id: what they were made of, and the configs."""

    def __call__(self, group_id: str) -> ShareConfigs:
        overrides = self._image().configs.get((GROUP_RESOURCE, group_id), NO_OVERRIDES)
        broker = self._settings().raw
        known = self._known.get(group_id)
        if known is not None and known[0] is overrides and known[1] is broker:
            return known[2]
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        configs = _configs(overrides, broker)
        self._known[group_id] = overrides, broker, configs
        return configs


def _configs(overrides: Mapping[str, str], broker: Mapping[str, str]) -> ShareConfigs:
    offset_reset, _, duration = str(_value("share.auto.offset.reset", overrides, broker)).strip().partition(":")
    dead_letter_topic = str(_value("errors.deadletterqueue.topic.name", overrides, broker) or "").strip()
    copies_records = _value("errors.deadletterqueue.copy.record.enable", overrides, broker) is True
    terms = Terms(
        lock_ms=_number("share.record.lock.duration.ms", overrides, broker),
        delivery_count_limit=_number("share.delivery.count.limit", overrides, broker),
        max_record_locks=_number("share.partition.max.record.locks", overrides, broker),
        may_renew=_value("share.renew.acknowledge.enable", overrides, broker) is not False,
        backoff_ms=_number("barnabas.share.redelivery.backoff.ms", overrides, broker),
        backoff_max_ms=_number("barnabas.share.redelivery.backoff.max.ms", overrides, broker),
        has_dead_letters=bool(dead_letter_topic),
    )
    read_committed = _value("share.isolation.level", overrides, broker) == "read_committed"
    return ShareConfigs(
        terms, offset_reset, milliseconds(duration), read_committed, dead_letter_topic, copies_records
    )


def milliseconds(duration: str) -> int:
    """From a duration of ISO 8601, such as P1DT2H or PT0.5S. 0 if there is none."""
    total = 0
    for whole, part, unit in _PART.findall(duration):
        total += int(whole) * _UNIT_MS[unit.upper()] + int((part + "000")[:3])
    return total


def _number(name: str, overrides: Mapping[str, str], broker: Mapping[str, str]) -> int:
    value = _value(name, overrides, broker)
    assert isinstance(value, int)
    return value


def _value(name: str, overrides: Mapping[str, str], broker: Mapping[str, str]) -> Value:
    try:
        return group_value(name, overrides, broker)
    except SettingsError:
        # A newer controller may accept values that this version cannot read.
        return group_value(name, {}, broker)
