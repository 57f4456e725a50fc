"""Delayed delivery of the records of topics whose config wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.delayed.deliveries import DelayedDeliveries, DelayedPorts

if TYPE_CHECKING:
    from barnabas.broker.parts import BrokerParts


def delayed_deliveries(parts: BrokerParts) -> DelayedDeliveries:
    return DelayedDeliveries(DelayedPorts(parts.world, parts.background, parts.wheel, parts.decisions))
