"""Core: the quotas of one node's requests: counts each one, and decides for how long its sender is held back.

`request_percentage` limits the time of handlers. One thread serves all requests here, so 100 percent is all of it,
where Kafka has 100 percent for each of its threads. Requests of nodes hold nobody back; their time is counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.quotas.manager import UNLIMITED, QuotaManager, Sensor
from barnabas.runtime.quotas.parts import DIVIDED, QuotaParts, UseReport
from barnabas.runtime.quotas.rate import QuotaWindows, Rate
from barnabas.runtime.quotas.source import Client, LimitSource, QuotaType
from barnabas.runtime.quotas.token_bucket import TokenBucket
from barnabas.runtime.throttling import NO_LIMIT_BYTES
from barnabas.runtime.world import Clock

if TYPE_CHECKING:
    from barnabas.runtime.request import Request

EXEMPT = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.ALTER_PARTITION,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ENVELOPE,
    }
)
"""APIs of nodes. The request in an envelope counts for its own sender."""

REPLICA_STATE_SINCE = 15
"""The version of Fetch from which the replica id is in a structure of its own."""

VERIFY_ONLY_SINCE = 4
"""The version of AddPartitionsToTxn from which brokers send it."""

HEADER_BYTES = 10
"""Size of a request header without its client id and tagged fields."""


class Throttled(NamedTuple):
    """A client that a quota holds back."""

    quota: QuotaType
    sensor: Sensor
    throttle_ms: int
    part: float | None
    """The fraction of a limit of the whole cluster that this broker has; None if the limit is that of each broker."""


class RequestQuotas:
    """Quotas of users and client ids on one node; fits `runtime.throttling.Throttling`."""

    def __init__(
        self, windows: QuotaWindows, mutation_windows: QuotaWindows, clock: Clock, source: LimitSource
    ) -> None:
        self.stopwatch: Callable[[], float] = _stopped
        self.on_throttled: Callable[[Throttled], None] | None = None
        self._clock = clock
        self.managers = {
            quota: QuotaManager(
                quota, mutation_windows if quota is QuotaType.CONTROLLER_MUTATION else windows, source
            )
            for quota in QuotaType
        }
        self._produce = self.managers[QuotaType.PRODUCE]
        self._fetch = self.managers[QuotaType.FETCH]
        self._request = self.managers[QuotaType.REQUEST]
        self._mutations = self.managers[QuotaType.CONTROLLER_MUTATION]
        self._bytes_of: dict[int, QuotaManager] = {ApiKey.PRODUCE: self._produce, ApiKey.FETCH: self._fetch}
        self.exempt = Rate(windows)
        """Percent of the time that requests of nodes took."""
        self.is_active = False
        """False while no quota is set."""
        self.limits_changed()

    def divide(self, parts: QuotaParts) -> None:
        """The quotas that can hold for the whole cluster do; before any request."""
        for quota in DIVIDED:
            self.managers[quota].divide(parts)

    def report(self, parts: QuotaParts) -> UseReport:
        """The use of the quotas of the whole cluster since the last report."""
        active = [manager for quota in DIVIDED if (manager := self.managers[quota]).is_active]
        return parts.report(active, self._clock.now_ms())

    def limits_changed(self) -> None:
        """Look limits up again."""
        for manager in self.managers.values():
            manager.limits_changed()
        self.is_active = any(manager.is_active for manager in self.managers.values())

    def sensors(self) -> Iterator[tuple[QuotaType, Sensor]]:
        """All sensors; those that were used last come first within a type."""
        for quota, manager in self.managers.items():
            for sensor in manager.all():
                yield quota, sensor

    # -- Throttling

    def arrival_throttle_ms(self, request: Request) -> int:
        if request.api_key != ApiKey.PRODUCE or not self._produce.is_active:
            return 0
        client, now_ms = _client(request), self._clock.now_ms()
        throttle_ms = self._produce.record(client, request_bytes(request), now_ms)
        self._note(client, ((throttle_ms, self._produce),), now_ms)
        return throttle_ms

    def still_held_back(self, request: Request) -> Callable[[], int] | None:
        manager = self._bytes_of.get(request.api_key)
        if manager is None or not manager.is_divided:
            return None
        client = _client(request)
        return lambda: manager.throttle_ms(client, self._clock.now_ms())

    def throttle_ms(self, request: Request, message: Any, used: float, otherwise_ms: int) -> int:
        client, now_ms = _client(request), self._clock.now_ms()
        request_ms = 0
        if is_exempt(request, message):
            self._count_exempt(request, used, now_ms)
        elif self._request.is_active:
            request_ms = self._request.record(client, used * 100, now_ms)
        if request.api_key != ApiKey.PRODUCE:
            self._note(client, ((otherwise_ms, self._mutations), (request_ms, self._request)), now_ms)
        elif request_ms > otherwise_ms:
            # Else its bytes hold the client back for longer, which was noted when it arrived.
            self._note(client, ((request_ms, self._request),), now_ms)
        return max(request_ms, otherwise_ms)

    def fetch_throttle_ms(self, request: Request, size_bytes: int, used: float) -> tuple[int, bool]:
        client, now_ms = _client(request), self._clock.now_ms()
        request_ms = self._request.record(client, used * 100, now_ms) if self._request.is_active else 0
        bandwidth_ms, may_send = 0, False
        if self._fetch.is_active:
            most = self._fetch.most_at_once(client, now_ms)
            # Kafka would never send a batch that is larger than all windows allow. Here it is sent if nothing else was,
            # and paid for afterwards.
            may_send = size_bytes > most and self._fetch.is_unused(client, now_ms) and not request_ms
            bandwidth_ms = self._fetch.record(client, size_bytes, now_ms)
            if max(request_ms, bandwidth_ms) and not may_send:
                self._fetch.record_only(client, -size_bytes, now_ms)
        self._note(client, ((bandwidth_ms, self._fetch), (request_ms, self._request)), now_ms)
        return max(request_ms, bandwidth_ms), may_send

    def most_fetch_bytes(self, request: Request) -> int:
        most = self._fetch.most_at_once(_client(request), self._clock.now_ms())
        return NO_LIMIT_BYTES if most >= NO_LIMIT_BYTES else max(1, int(most))

    def used_later(self, request: Request, message: Any, used: float) -> None:
        now_ms = self._clock.now_ms()
        if is_exempt(request, message):
            self._count_exempt(request, used, now_ms)
        elif self._request.is_active:
            self._request.record_only(_client(request), used * 100, now_ms)

    def mutations(self, request: Request, *, strict: bool) -> MutationQuota | None:
        if not self._mutations.is_active:
            return None
        sensor = self._mutations.sensor(_client(request), self._clock.now_ms())
        return MutationQuota(sensor, self._clock, strict=strict)

    # -- counting

    def _count_exempt(self, request: Request, used: float, now_ms: int) -> None:
        if request.api_key != ApiKey.ENVELOPE:
            self.exempt.record(used * 100, now_ms)

    def _note(self, client: Client, throttles: tuple[tuple[int, QuotaManager], ...], now_ms: int) -> None:
        """Note the longest throttle for its own quota; at equal ones the last."""
        throttle_ms, manager = max(reversed(throttles), key=lambda each: each[0])
        if throttle_ms > 0 and manager.is_active:
            sensor = manager.throttled(client, throttle_ms, now_ms)
            if self.on_throttled is not None:
                self.on_throttled(Throttled(manager.quota, sensor, throttle_ms, manager.part_of(sensor, now_ms)))


class MutationQuota:
    """The tokens that one request may spend (KIP-599); fits `runtime.throttling.Mutations`."""

    __slots__ = ("_clock", "_recorded_ms", "_sensor", "_spent", "_strict", "_throttle_ms")

    def __init__(self, sensor: Sensor, clock: Clock, *, strict: bool) -> None:
        self._sensor = sensor
        self._clock = clock
        self._strict = strict
        self._spent = 0
        self._throttle_ms = self._recorded_ms = 0

    def spend(self, partitions: int) -> None:
        """Raises KafkaError THROTTLING_QUOTA_EXCEEDED if the quota is strict and there are no tokens."""
        bucket, limit, now_ms = self._bucket, self._limit, self._clock.now_ms()
        throttle_ms = bucket.throttle_ms(limit, now_ms) if limit != UNLIMITED else 0
        if self._strict and throttle_ms:
            self._throttle_ms, self._recorded_ms = throttle_ms, now_ms
            message = "the quota of partitions that are created and deleted is exceeded"
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{message}; retry after {throttle_ms} ms")
        self._record(partitions, now_ms)
        if not self._strict and limit != UNLIMITED:
            throttle_ms = bucket.throttle_ms(limit, now_ms)
            if throttle_ms:
                self._throttle_ms, self._recorded_ms = throttle_ms, now_ms

    def again(self) -> None:
        """Give back what was spent."""
        if self._spent:
            self._record(-self._spent, self._clock.now_ms())
        self._spent = self._throttle_ms = 0

    def throttle_ms(self) -> int:
        """The time from now on."""
        return max(0, self._throttle_ms - (self._clock.now_ms() - self._recorded_ms)) if self._throttle_ms else 0

    def _record(self, partitions: int, now_ms: int) -> None:
        self._spent += partitions
        self._sensor.rate.record(partitions, now_ms)
        if self._limit != UNLIMITED:
            self._bucket.record(partitions, self._limit, now_ms)

    @property
    def _bucket(self) -> TokenBucket:
        assert self._sensor.bucket is not None
        return self._sensor.bucket

    @property
    def _limit(self) -> float:
        return UNLIMITED if self._sensor.limit is None else self._sensor.limit


def is_exempt(request: Request, message: Any) -> bool:
    """True if the request holds nobody back: it comes from a node, or its sender waits for no answer."""
    api_key = request.api_key
    if api_key == ApiKey.PRODUCE:
        return message is not None and message.acks == 0
    if api_key == ApiKey.FETCH:
        if message is None:
            return False
        by_version = request.api_version >= REPLICA_STATE_SINCE
        return bool((message.replica_state.replica_id if by_version else message.replica_id) >= 0)
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return request.api_version >= VERIFY_ONLY_SINCE
    return api_key in EXEMPT


def request_bytes(request: Request) -> int:
    """The size of a request with its header, as Kafka counts it."""
    client_id = request.client_id
    size_bytes = HEADER_BYTES + len(request.body) + (0 if client_id is None else len(client_id.encode()))
    flexible_from = API_SPECS[ApiKey(request.api_key)].flexible_from
    return size_bytes + (flexible_from is not None and request.api_version >= flexible_from)


def _client(request: Request) -> Client:
    return Client(request.principal, request.client_id or "")


def _stopped() -> float:
    return 0.0
