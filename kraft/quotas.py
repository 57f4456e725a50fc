"""The quotas of one node: limits from the metadata, counts of its requests, metrics and state."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any

from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.ip_quotas import IpQuotas
from barnabas.kraft.quota_callbacks import load_callback
from barnabas.kraft.quota_reports import answered_parts, report_use
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.families import Family
from barnabas.runtime.quotas.callback import CallbackLimits
from barnabas.runtime.quotas.connections import ConnectionQuotas
from barnabas.runtime.quotas.levels import QuotaLevels
from barnabas.runtime.quotas.parts import DIVIDED, QuotaParts
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.quotas.reports import (
    MOST_REPORTED,
    RATES,
    ThrottleNotes,
    parts,
    rates,
    throttle_times,
    throttled_clients,
    tokens,
)
from barnabas.runtime.quotas.requests import RequestQuotas
from barnabas.runtime.quotas.source import QuotaType
from barnabas.runtime.world import Clock, World
from barnabas.settings.node import NodeSettings

LABELS = ("user", "client_id")

OF_BROKERS = (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST)
OF_CONTROLLERS = (QuotaType.CONTROLLER_MUTATION,)
"""The types of quotas that each role reports; a controller alone reports its requests, too."""


class ClusterQuotas:
    """The quotas of a broker that hold for the whole cluster: reports and answers travel with its heartbeats."""

    def __init__(self, requests: RequestQuotas, clock: Clock, window_ms: int) -> None:
        self._requests = requests
        self._clock = clock
        self.parts = QuotaParts(window_ms)
        requests.divide(self.parts)

    def report(self, request: BrokerHeartbeatRequest) -> None:
        """Put the use of clients into a heartbeat."""
        report_use(request, self._requests.report(self.parts))

    def answered(self, response: BrokerHeartbeatResponse) -> None:
        """Take over the parts in its answer, if the controller gives any."""
        answer = answered_parts(response)
        if answer is not None:
            self.parts.answered(*answer)

    def families(self) -> Iterator[Family]:
        """Metrics of this broker's parts."""
        requests, now_ms = self._requests, self._clock.now_ms()
        name = "barnabas_quota_parts_valid"
        text = "1 if the active controller gave this broker its parts of quotas of the cluster within three windows"
        yield Family.of("gauge", name, text, int(self.parts.are_valid(now_ms)))
        for quota in DIVIDED:
            name = f"barnabas_quota_{quota.lower()}_part_ratio"
            text = f"this broker's part of {quota.key}, of the clients that used it last"
            yield Family("gauge", name, text, LABELS, parts(requests, quota, now_ms))


class NodeQuotas:
    """One for each role of a node."""

    def __init__(
        self, settings: NodeSettings, mutation_windows: QuotaWindows, world: World, decisions: Decisions, node: str
    ) -> None:
        """`node`: its name in notes. Raises SettingsError for a callback that cannot be loaded."""
        windows = QuotaWindows(settings.quota_window_num, settings.quota_window_size_seconds * 1000)
        self._clock = world.monotonic
        self._levels = QuotaLevels()
        self._addresses = IpQuotas()
        callback = load_callback(settings.raw)
        self._callback = None if callback is None else CallbackLimits(callback)
        source = self._callback or self._levels
        self.requests = RequestQuotas(windows, mutation_windows, world.monotonic, source)
        self.requests.stopwatch = world.stopwatch
        self.requests.on_throttled = ThrottleNotes(decisions, world.monotonic, node)
        self.of_cluster: ClusterQuotas | None = None
        """None if each broker has quotas of its own."""

    def hold_for_cluster(self, window_ms: int) -> ClusterQuotas:
        """The rates of bytes are those of the whole cluster. `window_ms`: the time between heartbeats."""
        self.of_cluster = ClusterQuotas(self.requests, self._clock, window_ms)
        return self.of_cluster

    def changed(self, delta: MetadataDelta) -> None:
        """Take over the quotas of a step of the metadata. Every step is given, the first one from the empty image."""
        if delta.changed_quotas:
            if self._callback is not None:
                self._callback.apply(delta.before.others.quotas, delta.changed_quotas)
            self._levels.apply(delta.changed_quotas)
            self._addresses.apply(delta.changed_quotas)
            self.requests.limits_changed()
        if self.of_cluster is not None and delta.changed_brokers:
            self.of_cluster.parts.brokers = max(1, len(delta.after.cluster.brokers))

    def ip_limit(self, host: str) -> float | None:
        """Connections per second that an address may open; None: without limit."""
        return self._addresses.ip_quota(host)

    def families(self, quotas: Collection[QuotaType] = tuple(QuotaType)) -> Iterator[Family]:
        """Metrics of these quotas, in Kafka's names."""
        requests, now_ms = self.requests, self._clock.now_ms()
        for manager in requests.managers.values():
            manager.forget_silent(now_ms)
        for quota in quotas:
            name, unit = RATES[quota]
            prefix = f"kafka_server_{quota.lower()}_"
            text = f"{unit} of the clients that used it last, while such quotas are set"
            yield Family("gauge", prefix + name, text, LABELS, rates(requests, quota, now_ms))
            text = "mean of the last times in ms for which clients were held back"
            yield Family("gauge", f"{prefix}throttle_time", text, LABELS, throttle_times(requests, quota, now_ms))
        if QuotaType.CONTROLLER_MUTATION in quotas:
            yield self._tokens(now_ms)
        if QuotaType.REQUEST in quotas:
            yield self._exempt(now_ms)
        if self.of_cluster is not None:
            yield from self.of_cluster.families()

    def _tokens(self, now_ms: int) -> Family:
        mutation = f"kafka_server_{QuotaType.CONTROLLER_MUTATION.lower()}_tokens"
        text = "partitions that may be created or deleted"
        return Family("gauge", mutation, text, LABELS, tokens(self.requests, now_ms))

    def _exempt(self, now_ms: int) -> Family:
        exempt = self.requests.exempt.per_second(now_ms)
        name = "kafka_server_request_exempt_request_time"
        return Family.of("gauge", name, "percent of the event loop for requests of nodes, while quotas are set", exempt)

    def state(self) -> list[dict[str, Any]]:
        """The clients that are held back now."""
        return throttled_clients(self.requests, self._clock.now_ms())


def connection_families(quotas: ConnectionQuotas, clock: Clock) -> Iterator[Family]:
    """Metrics of new connections, in Kafka's names."""
    now_ms = clock.now_ms()
    prefix, listeners = "kafka_server_socketservermetrics_", list(quotas.listeners.items())
    samples = [(("", ""), quotas.node_rate.per_second(now_ms))]
    samples += [((name, ""), use.rate.per_second(now_ms)) for name, use in listeners]
    samples += [(("", host), rate.per_second(now_ms)) for host, rate in islice(quotas.addresses(), MOST_REPORTED)]
    yield Family("gauge", f"{prefix}connection_creation_rate", "new connections a second", ("listener", "ip"), samples)
    for name, text, mean_of in (
        ("connection_accept_throttle_time", "rates of the listener and the node", attrgetter("throttle_time")),
        ("ip_connection_accept_throttle_time", "rates of addresses", attrgetter("ip_throttle_time")),
    ):
        means = [((listener,), mean_of(use).mean(now_ms)) for listener, use in listeners]
        known = [(labels, mean) for labels, mean in means if not math.isnan(mean)]
        yield Family("gauge", prefix + name, f"mean wait in ms because of {text}", ("listener",), known)
