"""Core: the quota of a client, looked up in an image (KIP-13, KIP-55, KIP-546, KIP-612).

Each key is looked up for itself: a client's `producer_byte_rate` may come from its user, and its `request_percentage`
from the default of all clients.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.kraft.metadata.image import ClientQuotas, QuotaEntity

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"


class QuotaLevel(IntEnum):
    """The kind of entity that a quota belongs to; the first that has a value counts."""

    USER_AND_CLIENT = 0
    USER_AND_DEFAULT_CLIENT = 1
    USER = 2
    DEFAULT_USER_AND_CLIENT = 3
    DEFAULT_USER_AND_DEFAULT_CLIENT = 4
    DEFAULT_USER = 5
    CLIENT = 6
    DEFAULT_CLIENT = 7


class QuotaMatch(NamedTuple):
    """The quota of a client for one key."""

    value: float
    level: QuotaLevel


_ANY_CLIENT = (CLIENT_ID, None)
_ANY_USER = (USER, None)
_DEFAULT_BOTH: QuotaEntity = (_ANY_CLIENT, _ANY_USER)
_DEFAULT_USER: QuotaEntity = (_ANY_USER,)
_DEFAULT_CLIENT: QuotaEntity = (_ANY_CLIENT,)


def quota_for(quotas: ClientQuotas, user: str, client_id: str, key: str) -> QuotaMatch | None:
    """The quota that counts for a client; None if it has none. `user` is the name of its principal.

    It takes 1 to 2 µs: a caller of every request keeps the match until `image.others.quotas` is another object."""
    if not quotas:
        return None
    this_client, this_user = (CLIENT_ID, client_id), (USER, user)
    entities: tuple[QuotaEntity, ...] = (
        (this_client, this_user),
        (_ANY_CLIENT, this_user),
        (this_user,),
        (this_client, _ANY_USER),
        _DEFAULT_BOTH,
        _DEFAULT_USER,
        (this_client,),
        _DEFAULT_CLIENT,
    )
    for level, entity in enumerate(entities):
        values = quotas.get(entity)
        if values is not None:
            value = values.get(key)
            if value is not None:
                return QuotaMatch(_limit(value), QuotaLevel(level))
    return None


class IpQuotas:
    """The connection rates of IP addresses. Mutable; `apply` carries it from one image to the next.

    An address has many spellings (IPv6, IPv4 in IPv6), so quotas are kept by address, not by the text of the entity.
    """

    def __init__(self, quotas: ClientQuotas | None = None) -> None:
        self._rates: dict[str, float] = {}
        self._default: float | None = None
        self.apply(quotas or {})

    def apply(self, changed: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Take the entities of an image, or the changed ones of a delta (`MetadataDelta.changed_quotas`)."""
        for entity, values in changed.items():
            if len(entity) != 1 or entity[0][0] != IP:
                continue
            rate = None if values is None else values.get(CONNECTION_CREATION_RATE)
            name = entity[0][1]
            if name is None:
                self._default = None if rate is None else _limit(rate)
            elif rate is None:
                self._rates.pop(canonical_ip(name), None)
            else:
                self._rates[canonical_ip(name)] = _limit(rate)

    def ip_quota(self, ip: str) -> float | None:
        """Connections per second that an address may open; None: without limit."""
        if not self._rates:
            return self._default
        return self._rates.get(canonical_ip(ip), self._default)


def canonical_ip(text: str) -> str:
    """The one spelling of an address; any other text (a host's name) stays as it is."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _limit(value: float) -> float:
    """Kafka's controllers also accept NaN, which limits nobody here."""
    return math.inf if math.isnan(value) else value
