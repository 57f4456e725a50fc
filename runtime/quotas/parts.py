"""Core: the parts that this broker has of the quotas of the whole cluster, and its reports of their use.

Once a window a broker reports the clients that used more than a tenth of limit / brokers here, and the active
controller answers with this broker's part of each limit (`kraft.controller.quota_division`). All amounts are fractions
of a limit: use 0.5 is half of it, part 0.25 a quarter. A client that was not reported may use a part of the reserve.

Without an answer for three windows no part is above 1 / brokers, and reports announce that all will be 1 / brokers.
They are from six windows later on: three until the controller counts a broker as silent whose reports do not arrive,
and three in which the parts of others end that the controller gave before. So the parts of all brokers together are
never above the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import nlargest
from itertools import islice
from typing import NamedTuple, Protocol

from barnabas.runtime.quotas.rate import Rate
from barnabas.runtime.quotas.source import QuotaType, Tags

RESERVE = 0.2
"""The fraction of each limit that is divided equally, so that a broker without recent use can begin."""
REPORTED_FROM = 0.1
"""A client is reported if it used this fraction of limit / brokers."""
MOST_REPORTED = 1_000
MOST_LOOKED_AT = 2_000
"""Sensors of one type that a report is chosen from: those that were used last."""
VALID_WINDOWS = 3
FALLBACK_WINDOWS = 6
LEAST_WINDOW_MS, MOST_WINDOW_MS = 100, 60_000
"""The bounds of the time between reports, as far as they count for the validity of parts."""
LOOK_AGAIN_MS = 1_000
"""The time for which a client is held back before its part is looked at again: it may have grown."""

DIVIDED = (QuotaType.PRODUCE, QuotaType.FETCH)
"""The quotas that can hold for the whole cluster. The time of an event loop is that of one broker, and the controller
counts mutations for all."""


class Used(Protocol):
    """`manager.Sensor`, as far as reports need it."""

    limit: float | None
    rate: Rate
    last_ms: int
    throttled_until_ms: int
    key: bytes


class Sensors(Protocol):
    """`manager.QuotaManager`, as far as reports need it."""

    @property
    def forgets_use_after_ms(self) -> int: ...

    def all(self) -> Iterable[Used]: ...


class ClientUse(NamedTuple):
    """The use of the clients of one sensor in a report."""

    key: bytes
    use: float
    """The rate of its windows."""
    part: float
    """The largest part that it may have here until the next report, unless the answer arrives."""
    is_held: bool
    """It was held back since the last report: it wants more."""


class UseReport(NamedTuple):
    """One report of a broker; each has a higher sequence number than those before it."""

    sequence: int
    window_ms: int
    other_part: float
    """`ClientUse.part` of all clients that are not in it."""
    uses: tuple[ClientUse, ...]


@dataclass(slots=True)
class _Sent:
    report: UseReport
    at_ms: int


class QuotaParts:
    """One per broker. Times are milliseconds on the monotonic clock."""

    def __init__(self, window_ms: int) -> None:
        """`window_ms`: the time between reports."""
        self.window_ms = min(max(window_ms, LEAST_WINDOW_MS), MOST_WINDOW_MS)
        self.brokers = 1
        """The registered brokers of the cluster."""
        self._parts: dict[bytes, float] = {}
        self._sequence = 0
        self._sent: _Sent | None = None
        self._last_sent_ms = 0
        self._heard_ms: int | None = None
        """Time at which the last answered report was sent."""
        self._announced_ms: int | None = None
        """Time of the first report after that which announced 1 / brokers."""

    def part_of(self, key: bytes, now_ms: int) -> float:
        """The fraction of its limit that the clients of a sensor may use here."""
        equal = 1 / self.brokers
        if self._heard_ms is None:
            return equal
        if self._announced_ms is not None and now_ms - self._announced_ms > FALLBACK_WINDOWS * self.window_ms:
            return equal
        part = self._parts.get(key, RESERVE * equal)
        return part if self.are_valid(now_ms) else min(part, equal)

    def are_valid(self, now_ms: int) -> bool:
        """True if the controller answered within three windows."""
        return self._heard_ms is not None and now_ms - self._heard_ms <= VALID_WINDOWS * self.window_ms

    def report(self, managers: Iterable[Sensors], now_ms: int) -> UseReport:
        """The report that is due. Clients that are not in it lose their parts now."""
        are_valid = self.are_valid(now_ms)
        found: list[ClientUse] = []
        for manager in managers:
            found += self._uses(manager, now_ms, are_valid=are_valid)
        chosen = nlargest(MOST_REPORTED, found, key=lambda each: (each.is_held, each.use))
        self._sequence += 1
        other_part = (RESERVE if are_valid else 1.0) / self.brokers
        report = UseReport(self._sequence, self.window_ms, other_part, tuple(chosen))
        if not are_valid and self._announced_ms is None:
            self._announced_ms = now_ms
        self._parts = {it.key: self._parts[it.key] for it in chosen if it.key in self._parts}
        self._sent = _Sent(report, now_ms)
        self._last_sent_ms = now_ms
        return report

    def _uses(self, manager: Sensors, now_ms: int, *, are_valid: bool) -> Iterable[ClientUse]:
        least, equal = REPORTED_FROM / self.brokers, 1 / self.brokers
        for sensor in islice(manager.all(), MOST_LOOKED_AT):
            idle_ms = now_ms - max(sensor.last_ms, sensor.throttled_until_ms)
            if idle_ms > manager.forgets_use_after_ms or not sensor.limit or sensor.limit < 0:
                continue
            use = sensor.rate.per_second(now_ms) / sensor.limit
            part = self.part_of(sensor.key, now_ms)
            is_held = sensor.throttled_until_ms > self._last_sent_ms or use > part
            if use > least or is_held:
                yield ClientUse(sensor.key, max(use, 0.0), part if are_valid else equal, is_held)

    def answered(self, sequence: int, parts: Sequence[float]) -> None:
        """The controller's answer: the parts of the report's clients, in its order. Others are ignored."""
        sent = self._sent
        if sent is None or sent.report.sequence != sequence or len(parts) != len(sent.report.uses):
            return
        self._parts = {it.key: part for it, part in zip(sent.report.uses, parts, strict=True)}
        self._heard_ms = sent.at_ms
        self._sent = self._announced_ms = None


def sensor_key(quota: QuotaType, tags: Tags) -> bytes:
    """The name of a sensor between nodes: 16 bytes, however long the names of its clients are."""
    digest = blake2b(quota.encode(), digest_size=16)
    for text in (text for pair in tags for text in pair):
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded) + encoded)
    return digest.digest()
