"""Core: how many connections a server takes, and how fast: in all, by listener, by address (KIP-402, KIP-612).

The listener between brokers is protected while there are others: it does not wait for the node's maximum nor for its
rate. A connection that comes faster than its listener or the node allows waits, and delays those behind it. One that
comes faster than its address allows is held for a while and closed; it does not count for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from barnabas.runtime.quotas.rate import Average, QuotaWindows, Rate
from barnabas.runtime.server_limits import NO_LIMIT, ServerLimits
from barnabas.runtime.world import Clock

MOST_ADDRESSES = 10_000
"""Addresses whose rates are kept: those that connected last."""

ADDRESS_EXPIRY_MS = 3_600_000


@dataclass(slots=True)
class ListenerUse:
    """The connections of one listener."""

    rate: Rate
    connections: int = 0
    throttle_time: Average = field(default_factory=Average)
    """Waits because of the rate of the listener or of the node."""
    ip_throttle_time: Average = field(default_factory=Average)


class ConnectionQuotas:
    """The connections of one server. Times are milliseconds on the monotonic clock."""

    def __init__(self, limits: ServerLimits, clock: Clock) -> None:
        self.limits = limits
        """May be replaced at any time."""
        self.ip_limit: Callable[[str], float | None] = lambda _host: None
        """Connections per second that an address may open."""
        self.names: Mapping[str, str] = {}
        """By address, the name by which `max.connections.per.ip.overrides` has it."""
        self._windows = QuotaWindows(limits.quota_window_num, limits.quota_window_ms)
        self._clock = clock
        self.node_rate = Rate(self._windows)
        self._total = 0
        self.listeners: dict[str, ListenerUse] = {}
        self._per_host: Counter[str] = Counter()
        self._addresses: dict[str, Rate] = {}
        """Those that connected last come last."""

    def add_listener(self, name: str) -> None:
        self.listeners.setdefault(name, ListenerUse(Rate(self._windows)))

    # -- numbers

    def has_room(self, listener: str) -> bool:
        """True if one more connection of the listener may be served."""
        limits = self.limits
        if self.listeners[listener].connections >= limits.max_connections_of(listener):
            return False
        return self._is_protected(listener) or self._total < limits.max_connections

    @property
    def excess(self) -> int:
        """The number of connections above those that the node may have; some that are not protected have to go."""
        return max(0, self._total - self.limits.max_connections)

    def may_go(self, listener: str) -> bool:
        """True if a connection of the listener may be closed for another one."""
        return not self._is_protected(listener)

    def limit_of(self, host: str) -> int:
        """The most connections that an address may have."""
        limits = self.limits
        name = self.names.get(host, host)
        return limits.max_connections_per_ip_overrides.get(name, limits.max_connections_per_ip)

    def opened(self, listener: str, host: str) -> bool:
        """Count a connection, unless its address has too many."""
        if self._per_host[host] >= self.limit_of(host):
            return False
        self._per_host[host] += 1
        self._total += 1
        self.listeners[listener].connections += 1
        return True

    def closed(self, listener: str, host: str) -> None:
        self._total -= 1
        self.listeners[listener].connections -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    # -- rates

    def throttle_ms(self, listener: str) -> int:
        """Count a new connection of a listener; returns for how long it and those behind it wait."""
        limits, now_ms, use = self.limits, self._clock.now_ms(), self.listeners[listener]
        throttle_ms = 0
        if not self._is_protected(listener):
            throttle_ms = self._count(self.node_rate, limits.max_connection_creation_rate, now_ms)
        of_listener_ms = self._count(use.rate, limits.max_creation_rate_of(listener), now_ms)
        throttle_ms = max(throttle_ms, of_listener_ms)
        if throttle_ms:
            use.throttle_time.record(throttle_ms, now_ms)
        return throttle_ms

    def ip_throttle_ms(self, listener: str, host: str) -> int:
        """Count a new connection of an address. Returns for how long it is held before it is closed; 0 if it is served.
        One that is closed does not count."""
        limit = self.ip_limit(host)
        if limit is None:
            return 0
        now_ms, use, rate = self._clock.now_ms(), self.listeners[listener], self._rate_of(host)
        throttle_ms = self._count(rate, limit, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
            use.rate.record(-1, now_ms)
            if not self._is_protected(listener):
                self.node_rate.record(-1, now_ms)
            use.ip_throttle_time.record(throttle_ms, now_ms)
        return throttle_ms

    def addresses(self) -> Iterator[tuple[str, Rate]]:
        """The rates of addresses that have a limit; those that connected last come first."""
        return reversed(self._addresses.items())

    def _count(self, rate: Rate, limit: float, now_ms: int) -> int:
        rate.record(1, now_ms)
        if limit >= NO_LIMIT:
            return 0
        return min(rate.throttle_ms(limit, now_ms), self._windows.window_ms)

    def _rate_of(self, host: str) -> Rate:
        now_ms, addresses = self._clock.now_ms(), self._addresses
        rate = addresses.pop(host, None)
        if rate is None:
            rate = Rate(self._windows)
        addresses[host] = rate
        while len(addresses) > 1:
            oldest = next(iter(addresses))
            if len(addresses) <= MOST_ADDRESSES and now_ms - addresses[oldest].last_ms <= ADDRESS_EXPIRY_MS:
                break
            del addresses[oldest]
        return rate

    def _is_protected(self, listener: str) -> bool:
        return listener == self.limits.inter_broker_listener_name and len(self.listeners) > 1
