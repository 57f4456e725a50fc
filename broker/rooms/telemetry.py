"""Metrics that clients push (KIP-714)."""

from __future__ import annotations

from functools import partial

from barnabas.broker.apis.telemetry import get_telemetry_subscriptions, push_telemetry
from barnabas.broker.telemetry import ClientTelemetry
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.rooms import Handlers
from barnabas.runtime.world import Clock


def telemetry_handlers(telemetry: ClientTelemetry, monotonic: Clock) -> Handlers:
    return {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: partial(get_telemetry_subscriptions, telemetry, monotonic),
        ApiKey.PUSH_TELEMETRY: partial(push_telemetry, telemetry, monotonic),
    }
