"""Core: reports of a node about its quotas: samples of metrics, its state, notes of clients that are held back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from barnabas.runtime.decisions import DecisionKind, Decisions
from barnabas.runtime.quotas.levels import sanitized
from barnabas.runtime.quotas.manager import Sensor
from barnabas.runtime.quotas.requests import RequestQuotas, Throttled
from barnabas.runtime.quotas.source import CLIENT_ID_TAG, USER_TAG, QuotaType
from barnabas.runtime.world import Clock

MOST_REPORTED = 200
"""Sensors of one type on the page of metrics: those that were used last."""

MOST_IN_STATE = 20

NOTE_INTERVAL_MS = 60_000
"""A sensor's throttles are noted at most once in this time."""

MOST_NOTED = 1_000

NOTES_IN_AN_INTERVAL = 20
"""Notes of all sensors together: anybody can send many client ids."""

RATES = {
    QuotaType.PRODUCE: ("byte_rate", "bytes a second"),
    QuotaType.FETCH: ("byte_rate", "bytes a second"),
    QuotaType.REQUEST: ("request_time", "percent of the event loop"),
    QuotaType.CONTROLLER_MUTATION: ("mutation_rate", "partitions a second"),
}

UNITS = {quota: unit for quota, (_, unit) in RATES.items()}

Sample = tuple[tuple[str, str], float]


class ThrottleNotes:
    """Notes of clients that are held back, for `barnabas why`: the first of each sensor, then one a minute."""

    def __init__(self, decisions: Decisions, clock: Clock, node: str) -> None:
        self._decisions = decisions
        self._clock = clock
        self._node = node
        self._interval_began_ms = 0
        self._in_interval = 0
        self._noted: dict[tuple[QuotaType, tuple[tuple[str, str], ...]], int] = {}

    def __call__(self, throttled: Throttled) -> None:
        quota, sensor, throttle_ms, part = throttled
        key, now_ms = (quota, sensor.tags), self._clock.now_ms()
        last_ms = self._noted.get(key)
        if last_ms is not None and now_ms - last_ms < NOTE_INTERVAL_MS:
            return
        if now_ms - self._interval_began_ms >= NOTE_INTERVAL_MS:
            self._interval_began_ms, self._in_interval = now_ms, 0
        if self._in_interval >= NOTES_IN_AN_INTERVAL:
            return
        self._in_interval += 1
        self._noted.pop(key, None)
        if len(self._noted) >= MOST_NOTED:
            del self._noted[next(iter(self._noted))]
        self._noted[key] = now_ms
        limit = "" if sensor.limit is None else f" of {sensor.limit:g} {UNITS[quota]}"
        if part is not None:
            limit += f" of the whole cluster, of which this broker has {part:.1%},"
        who = described(sensor)
        self._decisions.note(
            DecisionKind.QUOTA,
            who,
            f"{who} is held back for {throttle_ms} ms by {self._node}",
            also=_parts(sensor),
            cause=f"the quota {quota.key}{limit} is exceeded",
            throttle_ms=throttle_ms,
            quota=quota.key,
            throttles=sensor.throttles,
        )


def described(sensor: Sensor) -> str:
    """The clients of a sensor as people read them."""
    return ", ".join(_parts(sensor)) or "every client"


def _parts(sensor: Sensor) -> list[str]:
    """`user alice`, `client-id app`: printable, as a client can choose any text."""
    return [f"{tag} {_printable(value)}" for tag, value in sensor.tags if value]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:80])


def throttled_clients(quotas: RequestQuotas, now_ms: int) -> list[dict[str, Any]]:
    """The clients that are held back now, the longest first."""
    held = [(quota, sensor) for quota, sensor in quotas.sensors() if sensor.throttled_until_ms > now_ms]
    held.sort(key=lambda each: each[1].throttled_until_ms, reverse=True)
    return [
        {
            **{tag.replace("-", "_"): value[:80] for tag, value in sensor.tags},
            "quota": quota.key,
            "limit": sensor.limit,
            **_part(quotas.managers[quota].part_of(sensor, now_ms)),
            "rate": round(sensor.rate.per_second(now_ms), 3),
            "throttle_ms": sensor.throttle_ms,
            "left_ms": sensor.throttled_until_ms - now_ms,
            "throttles": sensor.throttles,
        }
        for quota, sensor in held[:MOST_IN_STATE]
    ]


def _part(part: float | None) -> dict[str, float]:
    return {} if part is None else {"part": round(part, 4)}


def parts(quotas: RequestQuotas, quota: QuotaType, now_ms: int) -> Iterator[Sample]:
    """This broker's parts of limits of the whole cluster, as fractions."""
    for sensor in _reported(quotas, quota):
        part = quotas.managers[quota].part_of(sensor, now_ms)
        if part is not None and sensor.limit is not None:
            yield _labels(sensor), part


def rates(quotas: RequestQuotas, quota: QuotaType, now_ms: int) -> Iterator[Sample]:
    """The use of clients by (user, client id)."""
    for sensor in _reported(quotas, quota):
        yield _labels(sensor), sensor.rate.per_second(now_ms)


def throttle_times(quotas: RequestQuotas, quota: QuotaType, now_ms: int) -> Iterator[Sample]:
    """The mean of the last throttles in ms."""
    for sensor in _reported(quotas, quota):
        mean = sensor.throttle_time.mean(now_ms)
        if not math.isnan(mean):
            yield _labels(sensor), mean


def tokens(quotas: RequestQuotas, now_ms: int) -> Iterator[Sample]:
    """The tokens left of quotas of mutations."""
    for sensor in _reported(quotas, QuotaType.CONTROLLER_MUTATION):
        if sensor.bucket is not None and sensor.limit is not None:
            yield _labels(sensor), sensor.bucket.tokens(sensor.limit, now_ms)


def _reported(quotas: RequestQuotas, quota: QuotaType) -> Iterator[Sensor]:
    return islice(quotas.managers[quota].all(), MOST_REPORTED)


def _labels(sensor: Sensor) -> tuple[str, str]:
    tags = dict(sensor.tags)
    return sanitized(tags.get(USER_TAG, "")), tags.get(CLIENT_ID_TAG, "")
