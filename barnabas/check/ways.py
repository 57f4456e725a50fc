"""The ways of the instances to the cluster: a proxy for each, so that its address stays and its messages can be met.

To a cluster on this machine each proxy dials from an address of its own, so the description of a group shows which
instance a member is.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from barnabas.client.security import channel_security
from barnabas.client.security_settings import SecuritySettings
from barnabas.fault_proxy.dialogue import Common
from barnabas.fault_proxy.fault_rule import FaultRule
from barnabas.fault_proxy.listeners import ClusterProxy, ProxyOptions
from barnabas.fault_proxy.rule_book import RuleBook
from barnabas.fault_proxy.rules import Faults, LinkState
from barnabas.fault_proxy.setup import ProxySetup, security_options
from barnabas.runtime.network import RealNetwork
from barnabas.runtime.real import real_world

SOURCE_NETWORK = "127.66.0"
"""Proxies dial from addresses of this part of the loopback network; the last number is one above the instance's."""
_CUT = LinkState(cut=True)

Struck = list[tuple[ClusterProxy, int]]
"""Rules that were added, by proxy and number."""


class Ways:
    """All proxies of one run."""

    def __init__(self, proxies: Sequence[ClusterProxy]) -> None:
        self._proxies = proxies

    @classmethod
    async def open(cls, nursery: trio.Nursery, servers: str, config: Mapping[str, Any], count: int, seed: int) -> Ways:
        """Proxies for `count` instances, as long as the nursery. `config` are client settings towards the cluster.
        Raises `ClusterError`."""
        to = ProxySetup(servers).addresses()
        is_here = all(host.startswith("127.") or host == "localhost" for host, _port in to)
        proxies = []
        for number in range(count):
            network = RealNetwork(f"{SOURCE_NETWORK}.{number + 1}" if is_here else None)
            world = replace(real_world(), network=network)
            security = channel_security(SecuritySettings.of(security_options(config)), world, nursery)
            chance = random.Random(f"way/{seed}/{number}")
            common = Common(Faults(), RuleBook(chance), chance)
            proxy = ClusterProxy(world, ProxyOptions(to, security=security), common)
            await nursery.start(proxy.run)
            proxies.append(proxy)
        return cls(proxies)

    def bootstrap_of(self, instance: int) -> str:
        """Bootstrap servers for an instance."""
        return self._proxies[instance].bootstrap_servers

    def instance_at(self, host: str) -> int | None:
        """The instance whose connections reach the cluster from this address; None if that is not known."""
        network, _dot, last = host.strip("/").rpartition(".")
        return int(last) - 1 if network == SOURCE_NETWORK and last.isdigit() else None

    # ---- faults

    def cut(self, instance: int) -> None:
        """Nothing passes between an instance and the cluster, and neither notices."""
        self._proxies[instance].set_link(_CUT)

    def cut_broker(self, node_id: int) -> None:
        """Nothing passes between the instances and a broker. Raises `ClusterError` for an unknown one."""
        for proxy in self._proxies:
            proxy.set_link(_CUT, str(node_id))

    def add(self, rules: Sequence[FaultRule]) -> Struck:
        """Adds rules to all proxies."""
        return [(proxy, proxy.common.rules.add(rule).number) for proxy in self._proxies for rule in rules]

    def remove(self, added: Struck) -> int:
        """Removes rules; returns the number of requests that they struck."""
        removed = [proxy.common.rules.remove(number) for proxy, number in added]
        return sum(rule.struck for rule in removed if rule is not None)

    def heal(self) -> None:
        """Undoes all faults."""
        for proxy in self._proxies:
            proxy.heal()
            proxy.common.rules.clear()
