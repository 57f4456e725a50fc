"""The ways of the instances to the cluster: a proxy for each, so that its address stays and its messages can be met.

Requests that pass show which member of the group an instance is, and which transactional ids it uses.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import trio

from barnabas.client.security import channel_security
from barnabas.client.security_settings import SecuritySettings
from barnabas.fault_proxy.dialogue import Common, Seen
from barnabas.fault_proxy.fault_rule import FaultRule
from barnabas.fault_proxy.listeners import ClusterProxy, ProxyOptions
from barnabas.fault_proxy.requests import read_request
from barnabas.fault_proxy.rule_book import RuleBook
from barnabas.fault_proxy.rules import Faults, LinkState
from barnabas.fault_proxy.setup import ProxySetup, security_options
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.real import real_world

_OF_MEMBERS = (ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
_CUT = LinkState(cut=True)

Struck = list[tuple[ClusterProxy, int]]
"""Rules that were added, by proxy and number."""


class Ways:
    """All proxies of one run."""

    def __init__(self, proxies: Sequence[ClusterProxy]) -> None:
        self._proxies = proxies
        self._members: dict[str, int] = {}
        """Instances by member id."""
        self._transactional: dict[str, set[int]] = {}
        """Instances by transactional id."""
        for instance, proxy in enumerate(proxies):
            proxy.common.observers.append(partial(self._look, instance))

    @classmethod
    async def open(cls, nursery: trio.Nursery, servers: str, config: Mapping[str, Any], count: int, seed: int) -> Ways:
        """Proxies for `count` instances, as long as the nursery. `config` are client settings towards the cluster.
        Raises `ClusterError`."""
        to = ProxySetup(servers).addresses()
        proxies = []
        for number in range(count):
            world = real_world()
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

    def instance_of(self, member_id: str) -> int | None:
        """The instance that is this member of the group; None if that is not known."""
        return self._members.get(member_id)

    def shared_ids(self) -> Mapping[str, list[int]]:
        """Transactional ids that several instances have used, and these."""
        return {name: sorted(users) for name, users in self._transactional.items() if len(users) > 1}

    def _look(self, instance: int, seen: Seen) -> None:
        if seen.is_request and seen.api_key in (*_OF_MEMBERS, ApiKey.INIT_PRODUCER_ID):
            asked = read_request(seen.frame)
            if not asked.is_readable:
                return
            if seen.api_key != ApiKey.INIT_PRODUCER_ID:
                self._members[asked.decoded.member_id] = instance
            elif asked.decoded.transactional_id is not None:
                self._transactional.setdefault(asked.decoded.transactional_id, set()).add(instance)

    async def answered(self, instance: int, apis: Collection[ApiKey]) -> None:
        """Waits until an answer to one of these APIs passes to an instance."""
        passed = trio.Event()

        def look(seen: Seen) -> None:
            if not seen.is_request and seen.api_key in apis:
                passed.set()

        observers = self._proxies[instance].common.observers
        observers.append(look)
        try:
            await passed.wait()
        finally:
            observers.remove(look)

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
