"""Core: where limits come from: types of quotas, clients, tags of sensors, and the port that a source of limits has.

Clients with the same tags share one sensor, and so one limit. By default the source is the quotas of the metadata
(`levels.py`); `client.quota.callback.class` replaces it (`callback.py`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from barnabas.runtime.identity import Principal

USER_TAG = "user"
CLIENT_ID_TAG = "client-id"

Tags = tuple[tuple[str, str], ...]
"""(tag, value) pairs in a fixed order. An empty value: the tag does not matter."""


class QuotaType(StrEnum):
    """The quotas of clients, by the names of Kafka's groups of metrics."""

    PRODUCE = "Produce"
    FETCH = "Fetch"
    REQUEST = "Request"
    CONTROLLER_MUTATION = "ControllerMutation"

    @property
    def key(self) -> str:
        """The key that sets it."""
        return QUOTA_KEYS[self]


QUOTA_KEYS = {
    QuotaType.PRODUCE: "producer_byte_rate",
    QuotaType.FETCH: "consumer_byte_rate",
    QuotaType.REQUEST: "request_percentage",
    QuotaType.CONTROLLER_MUTATION: "controller_mutation_rate",
}

CONNECTION_RATE_KEY = "connection_creation_rate"
"""The quota of an IP address (KIP-612)."""


class Client(NamedTuple):
    """The sender of a request, as quotas see it."""

    principal: Principal
    client_id: str


class LimitSource(Protocol):
    """Finds the sensor of a client, and the limit of a sensor."""

    may_reset: bool
    """`is_reset_required` has to be asked."""

    def is_active(self, quota: QuotaType) -> bool:
        """False if nobody has such a quota: then nothing is measured."""
        ...

    def tags(self, quota: QuotaType, client: Client) -> Tags:
        """The tags of the sensor that counts for the client."""
        ...

    def limit(self, quota: QuotaType, tags: Tags) -> float | None:
        """The limit of a sensor in units per second; None if it has none."""
        ...

    def is_reset_required(self, quota: QuotaType) -> bool:
        """True if tags and limits may have changed since the last call."""
        ...
