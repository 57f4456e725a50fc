"""Core: hosts of brokers in plans. A partition has at most one replica on a host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.admin import BrokerNode

Hosts = Mapping[int, str]
"""Hosts by broker, of those that share one."""
NO_HOSTS: Hosts = MappingProxyType({})


def hosts_of(nodes: Iterable[BrokerNode]) -> Hosts:
    return {node.node_id: node.shared_host for node in nodes if node.shared_host is not None}


def shares_host(broker: int, others: Iterable[int], hosts: Hosts) -> bool:
    """True if `broker` is on the host of one of `others`."""
    host = hosts.get(broker)
    return host is not None and any(hosts.get(other) == host for other in others if other != broker)
