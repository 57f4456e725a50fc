"""The links of real nodes, and the two ways to break them: a proxy that knows messages, or packets that are dropped."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.driver import ProxyProcess
from barnabas.fault_proxy.rules import CLIENT, LinkState, MessageRule, Way
from worlds.cluster import LinkFault
from worlds.packets import Packets
from worlds.processes import in_thread
from worlds.world_options import NO_MESSAGES


class Links(Protocol):
    """Calls block, and raise ClusterError where it cannot be done."""

    def cut(self, source: str, target: str, *, is_cut: bool) -> None: ...
    def set_link(self, source: str, target: str, fault: LinkFault) -> None: ...
    def add_rule(self, rule: MessageRule) -> int: ...
    def clear_rule(self, number: int) -> int | None: ...
    def asked(self) -> Mapping[Way, int]: ...
    def heal(self) -> None: ...


class ProxyLinks:
    """Links through a proxy."""

    def __init__(self, proxy: ProxyProcess, brokers: Collection[str], controllers: Collection[str]) -> None:
        self._proxy = proxy
        self._brokers = brokers
        self._nodes = (*brokers, *controllers)

    def cut(self, source: str, target: str, *, is_cut: bool) -> None:
        self._set(source, target, cut=is_cut)

    def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        self._set(source, target, **asdict(fault))

    def _set(self, source: str, target: str, **changes: Any) -> None:
        check_names(self._nodes, source, target)
        # Clients do not speak to controllers: there is nothing to break.
        if CLIENT not in (source, target) or source in self._brokers or target in self._brokers:
            state: LinkState = replace(self._proxy.link(source, target), **changes)
            self._proxy.set_link(source, target, state)

    def add_rule(self, rule: MessageRule) -> int:
        return self._proxy.add_rule(rule)

    def clear_rule(self, number: int) -> int:
        return self._proxy.clear_rule(number)

    def asked(self) -> Mapping[Way, int]:
        return self._proxy.asked()

    def heal(self) -> None:
        self._proxy.heal()


class PacketLinks:
    """Links of nodes with addresses of their own."""

    def __init__(self, packets: Packets, nodes: Collection[str]) -> None:
        self._packets = packets
        self._nodes = nodes

    def cut(self, source: str, target: str, *, is_cut: bool) -> None:
        check_names(self._nodes, source, target)
        self._packets.cut(source, target, is_cut=is_cut)

    def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        check_names(self._nodes, source, target)
        self._packets.set_link(source, target, fault)

    def add_rule(self, rule: MessageRule) -> int:
        raise ClusterError(NO_MESSAGES)

    def clear_rule(self, number: int) -> int | None:
        raise ClusterError(NO_MESSAGES)

    def asked(self) -> Mapping[Way, int]:
        raise ClusterError(NO_MESSAGES)

    def heal(self) -> None:
        self._packets.heal()


def check_names(nodes: Collection[str], *names: str) -> None:
    for name in names:
        if name != CLIENT and name not in nodes:
            raise ClusterError(f"there is no node {name}; there are {', '.join(nodes)}")


class LinkFaults:
    """The part of `ClusterUnderTest` about links."""

    def __init__(self, links: Links) -> None:
        self.links = links

    async def cut(self, source: str, target: str) -> None:
        await in_thread(lambda: self.links.cut(source, target, is_cut=True))

    async def mend(self, source: str, target: str) -> None:
        await in_thread(lambda: self.links.cut(source, target, is_cut=False))

    async def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        await in_thread(lambda: self.links.set_link(source, target, fault))

    async def add_rule(self, rule: MessageRule) -> int:
        return await in_thread(lambda: self.links.add_rule(rule))

    async def clear_rule(self, number: int) -> int | None:
        return await in_thread(lambda: self.links.clear_rule(number))

    async def asked(self) -> Mapping[Way, int]:
        return await in_thread(self.links.asked)

    async def heal(self) -> None:
        await in_thread(self.links.heal)
