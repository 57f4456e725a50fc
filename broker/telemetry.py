"""Core: subscriptions to metrics of clients, and the metrics that they pushed (KIP-714).

Subscriptions are configs of the resource type CLIENT_METRICS. A client gets those that match it and pushes at their
interval; its last push is kept for `/metrics` of this broker. Knows no requests under way and no sockets.

Enabled only if `metric.reporters` names the reporter (`broker/parts.py`): Kafka, too, does not advertise these APIs
without a receiver.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.patterns import Pattern, PatternError
from barnabas.broker.pushed_metrics import Pushed, Series, pushed_families
from barnabas.kraft.metadata.image import CLIENT_METRICS_RESOURCE, ConfigResource
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.protocol.otlp import MalformedTelemetry, Point, read_metrics
from barnabas.protocol.primitives import ZERO_UUID, uuid_to_string
from barnabas.protocol.records.compression import Compression, decompress
from barnabas.protocol.records.crc import crc32c
from barnabas.runtime.families import Family
from barnabas.runtime.uuids import random_uuid
from barnabas.runtime.world import Chance

log = logging.getLogger(__name__)

DEFAULT_INTERVAL_MS = 300_000
ALL_METRICS = "*"
COMPRESSIONS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""In the order of preference."""
MAX_CLIENTS = 16_384
MAX_KEPT = 200_000
"""Values of all clients together. Above it, the values of the clients that pushed longest ago are dropped."""
MAX_KEPT_BYTES = 32 << 20
"""The same for the characters of their names and attributes."""
LEAST_EXPIRY_MS = 60_000
COST_OF_A_STEP = 1_000_000
"""Nanoseconds in which one step matches patterns with the labels of a client."""
DECOMPRESSED = 16
"""A push may decompress to this many times telemetry.max.bytes."""

_RESERVED = frozenset((ZERO_UUID, (1).to_bytes(16, "big")))
_AT_ONCE = frozenset((ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
"""Errors after which a client fetches its subscriptions again without waiting."""

Configs = Mapping[ConfigResource, Mapping[str, str]]


class Software(NamedTuple):
    """Name and version of a connection's client, from ApiVersions (KIP-511)."""

    name: str = ""
    version: str = ""


class Asker(NamedTuple):
    """The client of a request."""

    client_id: str
    address: str
    software: Software


@dataclass(frozen=True, slots=True)
class Subscription:
    """One CLIENT_METRICS resource."""

    metrics: tuple[str, ...]
    """Prefixes of names; `*` means all."""
    interval_ms: int
    match: tuple[tuple[str, Pattern], ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(name in labels and pattern.matches(labels[name]) for name, pattern in self.match)

    def cost(self, labels: Mapping[str, str]) -> int:
        """Upper bound of the cost of matching, in nanoseconds."""
        return sum(pattern.cost(labels.get(name, "")) for name, pattern in self.match)


class _Read(NamedTuple):
    """A config and its subscription; None if a pattern is invalid."""

    config: Mapping[str, str]
    subscription: Subscription | None


def read_subscription(name: str, config: Mapping[str, str]) -> Subscription | None:
    """None, with a log line, if a pattern is invalid: then the subscription matches no client."""
    match = []
    for part in _listed(config.get("match", "")):
        key, _, pattern = part.partition("=")
        try:
            match.append((key.strip(), Pattern(pattern.strip())))
        except PatternError as error:
            log.warning("client metrics subscription %s matches no client: %s: %s", name, part, error)
            return None
    interval_ms = int(config.get("interval.ms", DEFAULT_INTERVAL_MS))
    return Subscription(tuple(_listed(config.get("metrics", ""))), interval_ms, tuple(match))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


T = TypeVar("T")
InSteps = Generator[Callable[[], Any] | None, Any, T]
"""A request in progress. It yields slow work, and is sent the result or thrown the exception."""


@dataclass(slots=True)
class Instance:
    """One client instance, while it sends requests."""

    asker: Asker
    metrics: list[str] = field(default_factory=list)
    interval_ms: int = DEFAULT_INTERVAL_MS
    subscribed_to: Mapping[str, Mapping[str, str]] | None = None
    """The configs that the fields above and below follow."""
    subscription_id: int = 0
    got_ms: int | None = None
    pushed_ms: int | None = None
    seen_ms: int = 0
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    values: dict[Series, float] = field(default_factory=dict)
    size_bytes: int = 0
    """Characters of the names and attributes of the values."""

    def take(self, points: list[Point]) -> None:
        """A push replaces all values, but its sums may be deltas to add to the previous ones."""
        before = self.values
        self.forget_values()
        for name, attributes, value, is_delta in points:
            key = (name, attributes)
            if key not in self.values:
                self.size_bytes += len(name) + sum(len(label) + len(text) for label, text in attributes)
            self.values[key] = before.get(key, 0.0) + value if is_delta else value

    def forget_values(self) -> None:
        self.values, self.size_bytes = {}, 0

    def may_get(self, now_ms: int) -> bool:
        last = max((each for each in (self.got_ms, self.pushed_ms) if each is not None), default=None)
        if last is None or self.last_error in _AT_ONCE or now_ms - last >= self.interval_ms:
            self.got_ms = now_ms
            return True
        return False

    def may_push(self, now_ms: int) -> bool:
        """The first push after GetTelemetrySubscriptions may come at any time: clients add random jitter to it."""
        got, pushed = self.got_ms, self.pushed_ms
        may = pushed is None or (got is not None and got > pushed) or now_ms - pushed >= self.interval_ms
        if may:
            self.pushed_ms = now_ms
        return may


class ClientTelemetry:
    """Subscriptions and client instances of one broker."""

    def __init__(self, chance: Chance, max_bytes: int) -> None:
        self._chance = chance
        self._max_bytes = max_bytes
        self._configs: Configs = {}
        self._wanted: Mapping[str, Mapping[str, str]] = {}
        """Configs of the subscriptions, by name."""
        self._read: dict[str, _Read] = {}
        """Those of them that were read: the first client that may match a subscription waits for that."""
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()
        """By client instance id, least recently active first."""
        self._software: dict[int, Software] = {}
        """By connection."""
        self.refused = 0
        """Pushes that could not be read."""

    # -- subscriptions and connections

    def configs_are(self, configs: Configs) -> None:
        """Set the configs of the newest metadata. Clients get the change with their next request."""
        if configs is self._configs:
            return
        self._configs = configs
        found = ((name, config) for (kind, name), config in configs.items() if kind == CLIENT_METRICS_RESOURCE)
        wanted = {name: config for name, config in found if config}
        if wanted != self._wanted:
            self._wanted = dict(sorted(wanted.items()))
            self._read = {name: read for name, read in self._read.items() if wanted.get(name) == read.config}

    def connected(self, connection_id: int, name: str, version: str) -> None:
        """`name` and `version` are those of the client's software."""
        self._software[connection_id] = Software(name, version)

    def disconnected(self, connection_id: int) -> None:
        self._software.pop(connection_id, None)

    def software(self, connection_id: int) -> Software:
        return self._software.get(connection_id, Software())

    # -- requests

    def get(self, instance_id: bytes, asker: Asker, now_ms: int) -> InSteps[GetTelemetrySubscriptionsResponse]:
        """GetTelemetrySubscriptions, in steps. Raises KafkaError: THROTTLING_QUOTA_EXCEEDED."""
        if instance_id == ZERO_UUID:
            instance_id = random_uuid(self._chance)
        instance = yield from self._subscribed(instance_id, asker, now_ms)
        if not instance.may_get(now_ms):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "before the next push interval")
        instance.last_error = ErrorCode.NONE
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=[int(each) for each in COMPRESSIONS],
            push_interval_ms=instance.interval_ms,
            telemetry_max_bytes=self._max_bytes,
            # Prometheus expects cumulative counters.
            delta_temporality=False,
            requested_metrics=instance.metrics,
        )

    def push(self, request: PushTelemetryRequest, asker: Asker, now_ms: int) -> InSteps[None]:
        """PushTelemetry, in steps; the metrics are read away from the event loop. Raises KafkaError: INVALID_REQUEST,
        THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE,
        INVALID_RECORD.
        """
        if request.client_instance_id in _RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the request has no client instance id")
        instance = yield from self._subscribed(request.client_instance_id, asker, now_ms)
        try:
            self._check_push(request, instance, now_ms)
            if request.metrics:
                instance.take((yield partial(_read, request, DECOMPRESSED * self._max_bytes)))
                self._make_room()
        except MalformedTelemetry as error:
            self.refused += 1
            log.info("metrics of client %s are malformed: %s", uuid_to_string(request.client_instance_id), error)
            instance.last_error = ErrorCode.INVALID_RECORD
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = request.terminating
        instance.last_error = ErrorCode.NONE

    def _check_push(self, request: PushTelemetryRequest, instance: Instance, now_ms: int) -> None:
        if instance.terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client sent its terminating push already")
        if not instance.may_push(now_ms) and not request.terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "before the next push interval")
        if request.subscription_id != instance.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in (Compression.NONE, *COMPRESSIONS):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self._max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"more than {self._max_bytes} bytes")

    def _make_room(self) -> None:
        kept = kept_bytes = 0
        for instance in reversed(self._instances.values()):
            kept += len(instance.values)
            kept_bytes += instance.size_bytes
            if kept > MAX_KEPT or kept_bytes > MAX_KEPT_BYTES:
                instance.forget_values()

    # -- clients

    def _instance(self, instance_id: bytes, asker: Asker, now_ms: int) -> Instance:
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = Instance(asker)
            while len(self._instances) > MAX_CLIENTS:
                self._instances.popitem(last=False)
        instance.seen_ms = now_ms
        self._instances.move_to_end(instance_id)
        return instance

    def _subscribed(self, instance_id: bytes, asker: Asker, now_ms: int) -> InSteps[Instance]:
        """The instance, with the subscriptions of now. One whose subscriptions changed may ask and push at once."""
        instance = self._instance(instance_id, asker, now_ms)
        if instance.subscribed_to is not self._wanted:
            is_known, before = instance.subscribed_to is not None, instance.subscription_id
            yield from self._subscribe(instance_id, instance)
            if is_known and instance.subscription_id != before:
                instance.got_ms = instance.pushed_ms = None
        return instance

    def _subscribe(self, instance_id: bytes, instance: Instance) -> InSteps[None]:
        asker, wanted = instance.asker, self._wanted
        labels = {
            "client_instance_id": uuid_to_string(instance_id),
            "client_id": asker.client_id,
            "client_software_name": asker.software.name,
            "client_software_version": asker.software.version,
            "client_source_address": asker.address,
        }
        matching = yield from self._matching(wanted, labels)
        names = list(dict.fromkeys(name for each in matching for name in each.metrics))
        instance.metrics = [ALL_METRICS] if ALL_METRICS in names else names
        instance.interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        described = f"{instance.metrics} {instance.interval_ms}".encode() + instance_id
        instance.subscription_id = crc32c(described) - (1 << 31)
        instance.subscribed_to = wanted

    def _matching(
        self, wanted: Mapping[str, Mapping[str, str]], labels: Mapping[str, str]
    ) -> InSteps[list[Subscription]]:
        """The subscriptions that match a client. Clients choose their ids, and administrators the patterns: both may be
        long, so what takes long is read and matched elsewhere."""
        matching: list[Subscription] = []
        spent = 0
        for name, config in wanted.items():
            read = self._read.get(name)
            if read is None or read.config != config:
                read = _Read(config, (yield partial(read_subscription, name, config)))
                if self._wanted is wanted:
                    self._read[name] = read
            subscription = read.subscription
            if subscription is None:
                continue
            cost = subscription.cost(labels)
            if cost > COST_OF_A_STEP:
                matches = yield partial(subscription.matches, labels)
            else:
                matches = subscription.matches(labels)
                spent += cost
            if matches:
                matching.append(subscription)
            if spent > COST_OF_A_STEP:
                spent = 0
                yield None
        return matching

    def forget_silent(self, now_ms: int) -> None:
        """Remove client instances that ended, or moved to another broker."""
        silent = [
            instance_id
            for instance_id, instance in self._instances.items()
            if now_ms - instance.seen_ms >= max(LEAST_EXPIRY_MS, 3 * instance.interval_ms)
        ]
        for instance_id in silent:
            del self._instances[instance_id]

    # -- metrics

    def families(self, now_ms: int) -> Iterator[Family | None]:
        self.forget_silent(now_ms)
        text = "Client instances that push metrics to this broker, or get their subscriptions from it."
        yield Family.of("gauge", "kafka_server_clientmetrics_clientmetricsinstancecount", text, len(self._instances))
        text = "Pushes that could not be read."
        yield Family.of("counter", "kafka_server_clientmetrics_pluginerrors", text, self.refused)
        clients = list(self._instances.items())
        yield from pushed_families(
            Pushed(each.asker.client_id, uuid_to_string(instance_id), each.values) for instance_id, each in clients
        )


def _read(request: PushTelemetryRequest, limit_bytes: int) -> list[Point]:
    """Slow. Raises MalformedTelemetry."""
    data = request.metrics
    if request.compression_type != Compression.NONE:
        try:
            data = decompress(request.compression_type, data, limit_bytes)
        except KafkaError as error:
            raise MalformedTelemetry(str(error)) from None
    return read_metrics(data)
