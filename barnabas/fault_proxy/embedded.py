"""A proxy in a thread of the caller's process: `barnabas.proxy()`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from barnabas.cluster.errors import WrongArgument
from barnabas.fault_proxy.fault_rule import Drop, FaultRule, make_rule, parse_rule
from barnabas.fault_proxy.link_rule import make_link
from barnabas.fault_proxy.listeners import ClusterProxy
from barnabas.fault_proxy.rule_book import Rule
from barnabas.fault_proxy.setup import Config, ProxySetup, running_proxy
from barnabas.portal import Held, Portal

log = logging.getLogger(__name__)

T = TypeVar("T")

Direction = Literal["both", "requests", "responses"]


class ProxiedServers(str):
    """The bootstrap servers of a proxy: a string that every client takes, and the faults of the proxy. Any thread may
    call."""

    __slots__ = ("_portal", "_proxy")

    _proxy: ClusterProxy
    _portal: Portal

    def __new__(cls, proxy: ClusterProxy, portal: Portal) -> ProxiedServers:
        servers = super().__new__(cls, proxy.bootstrap_servers)
        servers._proxy = proxy
        servers._portal = portal
        return servers

    def fail(
        self,
        api: str | int,
        *,
        topic: str | None = None,
        error: str | int | None = None,
        drop: Drop | None = None,
        times: int | None = None,
        **more: Any,
    ) -> Rule:
        """Add a rule: what happens to requests of an API. `more` are further fields of `FaultRule`, such as `client`,
        `cut`, `delay_ms`, `applied`, `after`, `every` or `probability`. Raises `WrongArgument`."""
        given = {"api": api, "topic": topic, "error": error, "drop": drop, "times": times, **more}
        given = {name: value for name, value in given.items() if value is not None}
        return self.add(make_rule(given, "rule"))

    def add(self, rule: FaultRule | str) -> Rule:
        """Add a rule, or that of a line such as `Produce topic=orders error=NOT_LEADER_OR_FOLLOWER times=2`."""
        fault = parse_rule(rule) if isinstance(rule, str) else rule
        return self._call(lambda: self._proxy.common.rules.add(fault))

    @property
    def rules(self) -> list[Rule]:
        return self._call(lambda: self._proxy.common.rules.rules)

    def remove(self, rule: Rule | int) -> None:
        """End a rule. Raises `WrongArgument` if there is none of this number."""
        number = rule if isinstance(rule, int) else rule.number
        if self._call(lambda: self._proxy.common.rules.remove(number)) is None:
            known = ", ".join(str(each.number) for each in self.rules) or "none"
            raise WrongArgument(f"rules are {known}; got {number}")

    def clear(self) -> None:
        """End all rules."""
        self._call(self._proxy.common.rules.clear)

    def cut(self, broker: str | int = "", direction: Direction = "both") -> None:
        """Let nothing pass to and from a broker (`host:port` or id), or all of them; neither end notices. `requests`
        or `responses` cuts one way. Raises `ClusterError` for an unknown broker."""
        self.link(broker, direction, cut=True)

    def link(self, broker: str | int = "", direction: Direction = "both", **state: Any) -> None:
        """Break the ways to a broker otherwise: fields of `LinkRule`, such as `bytes_per_second` or `latency_ms`."""
        rule = make_link({"broker": broker, "direction": direction, **state}, "link")
        self._call(lambda: self._proxy.set_link(rule.state, rule.broker, rule.direction))

    def heal(self) -> None:
        """End cuts and other faults of links. Rules stay."""
        self._call(self._proxy.heal)

    def never_struck(self) -> list[str]:
        """A line for each rule that did nothing."""
        return self._call(self._proxy.common.rules.never_struck)

    def _call(self, function: Callable[[], T]) -> T:
        return self._portal.call_now(function)


@contextmanager
def proxy(
    to: str,
    *,
    listen: int | str = 0,
    config: Config | None = None,
    advertise: str | None = None,
    seed: int | None = None,
) -> Iterator[ProxiedServers]:
    """A proxy before any Kafka cluster, in this process, as long as the block.

    `to`: its bootstrap servers. `listen`: a port, or `host:port`; 0 is any free one. `config`: client settings towards
    the cluster, under Kafka's names, as a mapping or a properties file. `advertise`: host that clients are given.
    `seed` fixes the chance of rules. Rules that did nothing are logged at the end. Raises
    `barnabas.cluster.errors.ClusterError`, whose message is one line.
    """
    portal = Portal()
    portal.start()
    try:
        held = Held(portal, running_proxy(ProxySetup(str(to), listen, advertise, config, seed)))
        running = held.open()
        try:
            yield ProxiedServers(running, portal)
        finally:
            for line in running.common.rules.never_struck():
                log.warning("%s", line)
            held.close()
    finally:
        portal.stop()
