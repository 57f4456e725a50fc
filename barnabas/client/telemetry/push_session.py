"""Core: when a client asks for its subscription, when it pushes, what, and what each response means (KIP-714).

    SubscriptionNeeded ⇄ PushNeeded ─► Ended
            └────────────────────────────┘
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.protocol.otlp import Sample, write_metrics
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.records.compression import Compression, compress
from barnabas.runtime.world import Chance

DEFAULT_INTERVAL_MS = 300_000
LEAST_INTERVAL_MS = 100
"""The least interval that Kafka allows in a subscription."""
DEFAULT_MAX_BYTES = 1_048_576
ALL_METRICS = "*"
FIRST_PUSH = (0.5, 1.5)
"""The first push comes after a random time between these parts of the interval: clients that a broker's restart brought
together do not push together.
"""

_AT_ONCE = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_LATER = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})

Series = tuple[str, tuple[tuple[str, str], ...]]


class PushState(Enum):
    SUBSCRIPTION_NEEDED = "SubscriptionNeeded"
    PUSH_NEEDED = "PushNeeded"
    ENDED = "Ended"
    """Nothing is sent any more."""


_S = PushState
TRANSITIONS: Mapping[PushState, tuple[PushState, ...]] = {
    _S.SUBSCRIPTION_NEEDED: (_S.SUBSCRIPTION_NEEDED, _S.PUSH_NEEDED, _S.ENDED),
    _S.PUSH_NEEDED: (_S.SUBSCRIPTION_NEEDED, _S.PUSH_NEEDED, _S.ENDED),
    _S.ENDED: (),
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """A broker's demands."""

    subscription_id: int
    interval_ms: int
    max_bytes: int
    is_delta: bool
    accepted: Sequence[int]
    """Codecs, in the order of the broker's preference."""
    prefixes: tuple[str, ...]
    """Prefixes of names; empty if nothing is asked for."""

    def wants(self, name: str) -> bool:
        return name.startswith(self.prefixes)


class PushSession:
    """One client instance."""

    def __init__(self, chance: Chance, now_ms: int, wall_ms: int) -> None:
        self._chance = chance
        self.state = PushState.SUBSCRIPTION_NEEDED
        self.due_ms = now_ms
        """Time of the next request."""
        self.instance_id = ZERO_UUID
        """Given by the first broker."""
        self.subscription: Subscription | None = None
        self._began_ms = self._since_ms = wall_ms
        self._accepted: dict[Series, float] = {}
        """Sums at the last push that a broker accepted; deltas count from there."""
        self._pushing: dict[Series, float] = {}
        self._pushing_ms = wall_ms
        self._refused_codecs: set[int] = set()
        self._hurried = False
        """The last request was sent at once, after an error."""

    def _go(self, state: PushState, due_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state.value} to {state.value}"
        self.state, self.due_ms = state, due_ms

    def end(self) -> None:
        self.state = PushState.ENDED

    # ---- the subscription

    def subscription_request(self) -> GetTelemetrySubscriptionsRequest:
        return GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id)

    def subscribed(self, response: GetTelemetrySubscriptionsResponse, now_ms: int) -> None:
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self._failed(code, now_ms)
            return
        if response.client_instance_id == ZERO_UUID:
            self.end()  # no push could say who it is from
            return
        self.instance_id = response.client_instance_id
        before, self.subscription = self.subscription, _read(response)
        interval_ms = self.subscription.interval_ms
        if before is not None and before.is_delta != self.subscription.is_delta:
            self._accepted, self._since_ms = {}, self._began_ms
        if not self.subscription.prefixes:
            self._hurried = False
            self._go(PushState.SUBSCRIPTION_NEEDED, now_ms + interval_ms)
            return
        least, most = FIRST_PUSH
        wait_ms = 0 if self._hurried else round(interval_ms * (least + (most - least) * self._chance.random()))
        self._go(PushState.PUSH_NEEDED, now_ms + wait_ms)

    # ---- the push

    def push_request(
        self, samples: Iterable[Sample], resource: Mapping[str, str], wall_ms: int, *, terminating: bool = False
    ) -> PushTelemetryRequest:
        """A request with as many of the wanted samples as it may carry."""
        subscription = self.subscription
        assert subscription is not None, "a push needs a subscription"
        wanted = [each for each in samples if subscription.wants(each.name) and math.isfinite(each.value)]
        self._pushing = {(each.name, each.attributes): each.value for each in wanted if each.is_sum}
        self._pushing_ms = wall_ms
        if subscription.is_delta:
            wanted = [self._since_last(each) for each in wanted]
        codec = self._codec(subscription)
        while True:
            data = write_metrics(
                wanted, resource, is_delta=subscription.is_delta, began_ms=self._since_ms, now_ms=wall_ms
            )
            packed = data if codec is Compression.NONE else compress(codec, data)
            if len(packed) <= subscription.max_bytes or not wanted:
                break
            wanted = wanted[: len(wanted) // 2]
        carried = {(each.name, each.attributes) for each in wanted}
        self._pushing = {series: value for series, value in self._pushing.items() if series in carried}
        return PushTelemetryRequest(
            client_instance_id=self.instance_id,
            subscription_id=subscription.subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=packed,
        )

    def pushed(self, response: PushTelemetryResponse, now_ms: int) -> None:
        code = error_code(response.error_code)
        subscription = self.subscription
        assert subscription is not None, "it was pushed for one"
        if code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
            self._refused_codecs.add(self._codec(subscription))
        if code is not ErrorCode.NONE:
            self._failed(code, now_ms)
            return
        self._hurried = False
        if subscription.is_delta:
            self._accepted.update(self._pushing)
            self._since_ms = self._pushing_ms
        self._go(PushState.PUSH_NEEDED, now_ms + subscription.interval_ms)

    def unanswered(self, now_ms: int) -> None:
        """The broker did not respond; a broker may be asked again after the interval."""
        self._hurried = False
        self._go(PushState.SUBSCRIPTION_NEEDED, now_ms + self._interval_ms)

    # ---- inside

    @property
    def _interval_ms(self) -> int:
        return DEFAULT_INTERVAL_MS if self.subscription is None else self.subscription.interval_ms

    def _failed(self, code: ErrorCode, now_ms: int) -> None:
        if code in _AT_ONCE and not self._hurried:
            self._hurried = True
            self._go(PushState.SUBSCRIPTION_NEEDED, now_ms)
        elif code in _AT_ONCE or code in _LATER:
            # A broker that always refuses is not asked without end.
            self._hurried = False
            self._go(PushState.SUBSCRIPTION_NEEDED, now_ms + self._interval_ms)
        else:
            self.end()  # a retry would be refused, too

    def _codec(self, subscription: Subscription) -> Compression:
        for number in subscription.accepted:
            if number in Compression.__members__.values() and number not in self._refused_codecs:
                return Compression(number)
        return Compression.NONE

    def _since_last(self, sample: Sample) -> Sample:
        if not sample.is_sum:
            return sample
        return sample._replace(value=sample.value - self._accepted.get((sample.name, sample.attributes), 0.0))


def _read(response: GetTelemetrySubscriptionsResponse) -> Subscription:
    interval_ms = response.push_interval_ms
    wanted = response.requested_metrics
    return Subscription(
        subscription_id=response.subscription_id,
        interval_ms=max(LEAST_INTERVAL_MS, interval_ms) if interval_ms > 0 else DEFAULT_INTERVAL_MS,
        max_bytes=response.telemetry_max_bytes if response.telemetry_max_bytes > 0 else DEFAULT_MAX_BYTES,
        is_delta=response.delta_temporality,
        accepted=tuple(response.accepted_compression_types),
        prefixes=("",) if wanted == [ALL_METRICS] else tuple(wanted),
    )
