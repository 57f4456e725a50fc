"""Core: the sensors of one type of quota: created when a client first counts, forgotten after an hour of silence.

Anybody can send any client id, so the number of sensors is bounded: above it the one that was silent for longest is
forgotten, and starts again from nothing if it returns. Long names are kept as a digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.runtime.quotas.parts import LOOK_AGAIN_MS, QuotaParts, sensor_key
from barnabas.runtime.quotas.rate import MOST_THROTTLE_MS, Average, QuotaWindows, Rate, rounded_ms
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
    """It holds for the whole cluster if the quota is divided between brokers; see `QuotaManager.limit_of`."""
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
    key: bytes = b""
    """Its name between nodes; empty unless the quota is divided."""
    owed: float = 0.0
    """The amount above a divided limit that was not waited for yet; at `owed_at_ms`."""
    owed_at_ms: int = 0


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
        self._parts: QuotaParts | None = None

    def divide(self, parts: QuotaParts) -> None:
        """Limits are those of the whole cluster from now on; before any sensor is made."""
        self._parts = parts

    @property
    def is_divided(self) -> bool:
        """Limits are those of the whole cluster, and this broker has parts of them."""
        return self._parts is not None

    @property
    def forgets_use_after_ms(self) -> int:
        """A sensor without a record for this long has no use within the windows."""
        return (self._windows.samples + 1) * self._windows.window_ms

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
        return self._throttle_ms(sensor, now_ms, amount)

    def throttle_ms(self, client: Client, now_ms: int) -> int:
        """The time for which a client has to be held back further, without another amount."""
        if not self.is_active:
            return 0
        sensor = self.sensor(client, now_ms)
        throttle_ms = self._throttle_ms(sensor, now_ms)
        if throttle_ms:
            sensor.throttled_until_ms = max(sensor.throttled_until_ms, now_ms + throttle_ms)
        return throttle_ms

    def _throttle_ms(self, sensor: Sensor, now_ms: int, amount: float = 0.0) -> int:
        limit = self.limit_of(sensor, now_ms)
        if limit is None:
            return 0
        throttle_ms = min(sensor.rate.throttle_ms(limit, now_ms), self._longest_throttle_ms)
        if self._parts is None:
            return throttle_ms
        # The windows forget an amount that a small part needs longer for, so it is kept beside them.
        left = max(0.0, sensor.owed - limit * (now_ms - sensor.owed_at_ms) / 1000)
        sensor.owed = min(left + amount, max(left, limit * throttle_ms / 1000))
        sensor.owed_at_ms = now_ms
        return _until_part_may_grow(sensor, limit, throttle_ms)

    def limit_of(self, sensor: Sensor, now_ms: int) -> float | None:
        """The limit of the sensor's clients on this broker, in units per second; None if it has none."""
        part = self.part_of(sensor, now_ms)
        return sensor.limit if part is None or sensor.limit is None else sensor.limit * part

    def part_of(self, sensor: Sensor, now_ms: int) -> float | None:
        """The fraction of its limit that this broker has; None if the limit is that of each broker."""
        return None if self._parts is None else self._parts.part_of(sensor.key, now_ms)

    def record_only(self, client: Client, amount: float, now_ms: int) -> None:
        """Count an amount that holds nobody back by itself; a negative one takes back what was counted."""
        self.sensor(client, now_ms).rate.record(amount, now_ms)

    def most_at_once(self, client: Client, now_ms: int) -> float:
        """The amount that a client may use at once after a pause, without being held back."""
        if not self.is_active:
            return UNLIMITED
        limit = self.limit_of(self.sensor(client, now_ms), now_ms)
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
            if self._parts is not None:
                sensor.key = sensor_key(self.quota, tags)
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


def _until_part_may_grow(sensor: Sensor, limit: float, throttle_ms: int) -> int:
    """The time of a throttle until the part of the limit is looked at again: a second, or as long as the whole limit
    would need."""
    if limit <= 0 or not sensor.limit:
        return min(throttle_ms, LOOK_AGAIN_MS)
    owed_ms = rounded_ms(sensor.owed / limit * 1000)
    return min(max(throttle_ms, owed_ms), max(LOOK_AGAIN_MS, rounded_ms(sensor.owed / sensor.limit * 1000)))


def shortened(name: str) -> str:
    """The name, or its begin and a digest if it is long."""
    if len(name) <= MOST_NAME_CHARS:
        return name
    return f"{name[:64]}…{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
