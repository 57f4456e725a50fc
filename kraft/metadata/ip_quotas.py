"""Core: the connection rates of IP addresses, looked up in an image (KIP-612)."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping

from barnabas.kraft.metadata.image import ClientQuotas, QuotaEntity
from barnabas.runtime.quotas.source import CONNECTION_RATE_KEY

IP = "ip"
"""The type of entity."""


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
            rate = None if values is None else values.get(CONNECTION_RATE_KEY)
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
