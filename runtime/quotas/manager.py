"""Core: the sensors of one type of quota: created when a client first counts, forgotten after an hour of silence.

Anybody can send any client id, so the number of sensors is bounded: above it the one that was silent for longest is
forgotten, and starts again from nothing if it returns. Long names are kept as a digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.runtime.quotas.rate import MOST_THROTTLE_MS, Average, QuotaWindows, Rate
from barnabas.runtime.quotas.source import Client, LimitSource, QuotaType, Tags
from barnabas.runtime.quotas.token_bucket import TokenBucket

MOST_SENSORS = 5_000
SENSOR_EXPIRY_MS = 3_600_000
MOST_NAME_CHARS = 256
UNLIMITED = float("inf")


@dataclass(slots=True, eq=False)
class Sensor:
    """The use of the clients with the same tags, and their limit."""

    tags: Tags
    limit: float | None
    rate: Rate
    throttle_time: Average
    bucket: TokenBucket | None = None
    """The tokens of a quota of mutations."""
    last_ms: int = 0
    """Time of the last record."""
    throttled_until_ms: int = 0
    """The end of the longest throttle so far."""
    throttle_ms: int = 0
    """The last throttle."""
    throttles: int = 0
    is_gone: bool = False
    """It was forgotten."""


class QuotaManager:
    """One type of quota. Times are milliseconds on the monotonic clock."""

    def __init__(self, quota: QuotaType, windows: QuotaWindows, source: LimitSource, most: int = MOST_SENSORS) -> None:
        self.quota = quota
        self._windows = windows
        self._source = source
        self._most = most
        self._sensors: dict[Tags, Sensor] = {}
        """Those that were silent for longest come first."""
        self._of_client: dict[tuple[str, str, str], Sensor] = {}
        """By type and name of the principal, and client id."""
        self._longest_throttle_ms = windows.window_ms if quota is QuotaType.REQUEST else MOST_THROTTLE_MS

    @property
    def is_active(self) -> bool:
        """False while nobody has such a quota: nothing has to be recorded."""
        return self._source.is_active(self.quota)

    @property
    def sensors(self) -> int:
        """The number of sensors."""
        return len(self._sensors)

    def all(self) -> Iterator[Sensor]:
        """All sensors; those that were used last come first."""
        return reversed(self._sensors.values())

    def limits_changed(self) -> None:
        """Look up tags and limit of each client again, when it counts next."""
        self._of_client.clear()

    # -- counting

    def record(self, client: Client, amount: float, now_ms: int) -> int:
        """Count an amount; returns for how long the client has to be held back."""
        sensor = self.sensor(client, now_ms)
        sensor.rate.record(amount, now_ms)
        if sensor.limit is None:
            return 0
        return min(sensor.rate.throttle_ms(sensor.limit, now_ms), self._longest_throttle_ms)

    def record_only(self, client: Client, amount: float, now_ms: int) -> None:
        """Count an amount that holds nobody back by itself; a negative one takes back what was counted."""
        self.sensor(client, now_ms).rate.record(amount, now_ms)

    def most_at_once(self, client: Client, now_ms: int) -> float:
        """The amount that a client may use at once after a pause, without being held back."""
        if not self.is_active:
            return UNLIMITED
        limit = self.sensor(client, now_ms).limit
        return UNLIMITED if limit is None else limit * self._windows.full_seconds

    def is_unused(self, client: Client, now_ms: int) -> bool:
        """True if nothing was counted within the windows."""
        rate = self.sensor(client, now_ms).rate
        return rate.per_second(now_ms) <= 0

    def throttled(self, client: Client, throttle_ms: int, now_ms: int) -> Sensor:
        """Note that a client is held back by this quota."""
        sensor = self.sensor(client, now_ms)
        sensor.throttle_time.record(throttle_ms, now_ms)
        sensor.throttles += 1
        sensor.throttle_ms = throttle_ms
        sensor.throttled_until_ms = max(sensor.throttled_until_ms, now_ms + throttle_ms)
        return sensor

    # -- sensors

    def sensor(self, client: Client, now_ms: int) -> Sensor:
        """The sensor that counts for a client."""
        if self._source.may_reset and self._source.is_reset_required(self.quota):
            self.limits_changed()
        principal, client_id = client
        sensor = self._of_client.get((principal.type, principal.name, client_id))
        if sensor is None or sensor.is_gone:
            sensor = self._found(client, now_ms)
        if now_ms - sensor.last_ms >= self._windows.window_ms:
            self._sensors[sensor.tags] = self._sensors.pop(sensor.tags)
            sensor.last_ms = now_ms
        return sensor

    def _found(self, client: Client, now_ms: int) -> Sensor:
        if any(len(name) > MOST_NAME_CHARS for name in (client.principal.name, client.client_id)):
            return self._made(self._source.tags(self.quota, client), now_ms)
        if len(self._of_client) >= 2 * self._most:
            self._of_client.clear()
        principal, client_id = client
        sensor = self._made(self._source.tags(self.quota, client), now_ms)
        self._of_client[principal.type, principal.name, client_id] = sensor
        return sensor

    def _made(self, tags: Tags, now_ms: int) -> Sensor:
        limit = self._source.limit(self.quota, tags)
        tags = tuple((tag, shortened(value)) for tag, value in tags)
        sensor = self._sensors.get(tags)
        if sensor is None:
            self._make_room(now_ms)
            bucket = TokenBucket(self._windows) if self.quota is QuotaType.CONTROLLER_MUTATION else None
            sensor = self._sensors[tags] = Sensor(tags, limit, Rate(self._windows), Average(), bucket, now_ms)
        sensor.limit = limit
        return sensor

    def _make_room(self, now_ms: int) -> None:
        self.forget_silent(now_ms)
        while len(self._sensors) >= self._most:
            self._sensors.pop(next(iter(self._sensors))).is_gone = True

    def forget_silent(self, now_ms: int) -> None:
        """Forget sensors that were not used for an hour."""
        while self._sensors:
            first = next(iter(self._sensors.values()))
            if now_ms - first.last_ms <= SENSOR_EXPIRY_MS:
                return
            self._sensors.pop(first.tags).is_gone = True


def shortened(name: str) -> str:
    """The name, or its begin and a digest if it is long."""
    if len(name) <= MOST_NAME_CHARS:
        return name
    return f"{name[:64]}…{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
