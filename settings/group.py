"""The configs of one group (KIP-848, KIP-932, KIP-1071): its own overrides over the broker's values.

An override beyond the broker's bounds is refused when it is made; one that is beyond them later, because the bounds
moved, counts as the nearest bound. Knows no file, no pydantic, and of a broker only a map of raw strings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.settings.definitions import Value, closest_key, definitions
from barnabas.settings.errors import SettingsError


class Fallback(NamedTuple):
    """The broker keys behind a group key. None: there is no such key."""

    synonym: str | None = None
    """Gives the value of groups without an override."""
    least: str | None = None
    most: str | None = None


def _bounded(kind: str, rest: str) -> Fallback:
    return Fallback(f"group.{kind}.{rest}", f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}")


GROUP_KEYS: Mapping[str, Fallback] = {
    "consumer.session.timeout.ms": _bounded("consumer", "session.timeout.ms"),
    "consumer.heartbeat.interval.ms": _bounded("consumer", "heartbeat.interval.ms"),
    "consumer.assignment.interval.ms": _bounded("consumer", "assignment.interval.ms"),
    "share.session.timeout.ms": _bounded("share", "session.timeout.ms"),
    "share.heartbeat.interval.ms": _bounded("share", "heartbeat.interval.ms"),
    "share.record.lock.duration.ms": _bounded("share", "record.lock.duration.ms"),
    "share.delivery.count.limit": _bounded("share", "delivery.count.limit"),
    "share.partition.max.record.locks": _bounded("share", "partition.max.record.locks"),
    "share.auto.offset.reset": Fallback(),
    "share.isolation.level": Fallback(),
    "share.renew.acknowledge.enable": Fallback(),
    "share.assignment.interval.ms": _bounded("share", "assignment.interval.ms"),
    "streams.session.timeout.ms": _bounded("streams", "session.timeout.ms"),
    "streams.heartbeat.interval.ms": _bounded("streams", "heartbeat.interval.ms"),
    "streams.num.standby.replicas": Fallback(
        "group.streams.num.standby.replicas", None, "group.streams.max.standby.replicas"
    ),
    "streams.initial.rebalance.delay.ms": Fallback("group.streams.initial.rebalance.delay.ms"),
    "streams.assignment.interval.ms": _bounded("streams", "assignment.interval.ms"),
    "errors.deadletterqueue.copy.record.enable": Fallback(),
    "errors.deadletterqueue.topic.name": Fallback(),
    "barnabas.share.redelivery.backoff.ms": Fallback(),
    "barnabas.share.redelivery.backoff.max.ms": Fallback(),
}

_SESSION_OVER_HEARTBEAT = (
    ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "share.heartbeat.interval.ms"),
    ("streams.session.timeout.ms", "streams.heartbeat.interval.ms"),
)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

# A year or a month has no certain length, so Java's durations end at days.
_DURATION = re.compile(
    r"P(?=.)(?:\+?\d{1,9}D)?(?:T(?=.)(?:\+?\d{1,9}H)?(?:\+?\d{1,9}M)?(?:\+?\d{1,9}(?:[.,]\d{0,9})?S)?)?", re.IGNORECASE
)


def group_value(name: str, overrides: Mapping[str, str], broker: Mapping[str, str]) -> Value:
    """The effective value. `broker` has the values of its file and its dynamic configs. Raises `SettingsError` for a
    value that cannot be parsed.
    """
    fallback = GROUP_KEYS[name]
    if name not in overrides:
        return _default(name, fallback, broker)
    value = definitions("group")[name].parse(overrides[name])
    return bounded(value, fallback, broker) if isinstance(value, int) and not isinstance(value, bool) else value


def bounded(value: int, fallback: Fallback, broker: Mapping[str, str]) -> int:
    """`value`, or the nearest bound."""
    if fallback.least is not None:
        value = max(value, _broker_number(fallback.least, broker))
    if fallback.most is not None:
        value = min(value, _broker_number(fallback.most, broker))
    return value


def validate_group_configs(overrides: Mapping[str, str], broker: Mapping[str, str]) -> None:
    """Raises `SettingsError` unless a group may have these overrides."""
    for name, text in overrides.items():
        if name not in GROUP_KEYS:
            near = closest_key(name, "group")
            raise SettingsError("unknown group config" + (f"; did you mean {near}?" if near else ""), name)
        value = definitions("group")[name].parse(text)
        if name == "share.auto.offset.reset":
            _check_offset_reset(text.strip())
        elif name == "errors.deadletterqueue.topic.name":
            _check_dead_letter_topic(text.strip())
        elif isinstance(value, int) and not isinstance(value, bool):
            _check_bounds(name, value, broker)
    for longer, shorter in _SESSION_OVER_HEARTBEAT:
        if longer in overrides or shorter in overrides:
            most = group_value(longer, overrides, broker)
            least = group_value(shorter, overrides, broker)
            assert isinstance(most, int) and isinstance(least, int)
            if most <= least:
                raise SettingsError(f"must be greater than {shorter} ({least})", longer, str(most))


def _check_bounds(name: str, value: int, broker: Mapping[str, str]) -> None:
    fallback = GROUP_KEYS[name]
    if fallback.least is not None and value < (least := _broker_number(fallback.least, broker)):
        raise SettingsError(f"must be at least {fallback.least} ({least})", name, str(value))
    if fallback.most is not None and value > (most := _broker_number(fallback.most, broker)):
        raise SettingsError(f"must be at most {fallback.most} ({most})", name, str(value))


def _check_offset_reset(text: str) -> None:
    if text in ("earliest", "latest"):
        return
    strategy, _, duration = text.partition(":")
    if strategy != "by_duration" or _DURATION.fullmatch(duration) is None:
        raise SettingsError(
            "unknown strategy", "share.auto.offset.reset", text, "earliest, latest or by_duration:PnDTnHnMn.nS"
        )


def _check_dead_letter_topic(text: str) -> None:
    if text.startswith("__") or text in (".", "..") or (text and _TOPIC_NAME.fullmatch(text) is None):
        key, allowed = "errors.deadletterqueue.topic.name", "empty, or a topic name that does not begin with __"
        raise SettingsError("no name of a dead-letter topic", key, text, allowed)


def _default(name: str, fallback: Fallback, broker: Mapping[str, str]) -> Value:
    if fallback.synonym is None:
        return definitions("group")[name].default_value
    return _broker_number(fallback.synonym, broker)


def _broker_number(key: str, broker: Mapping[str, str]) -> int:
    definition = definitions("broker")[key]
    value = definition.parse(broker[key]) if key in broker else definition.default_value
    assert isinstance(value, int)
    return value
