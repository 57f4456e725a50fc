"""Stands in for the principal builders of tests: principals by the name of the listener."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.kraft.node_security import NodeSecurity
from barnabas.runtime.identity import Principal
from barnabas.runtime.security import ListenerSecurity, Secured
from barnabas.runtime.world import Connection
from barnabas.settings.listeners import Listener
from tests.kafka import lists

_KEY = "principal.builder.class"


@dataclass(frozen=True, slots=True)
class NamedPeers:
    """The security of a listener in plain text whose peers are one principal."""

    principal: Principal

    async def secure(self, connection: Connection) -> Secured:
        return Secured(connection, self.principal)


def take_builders(settings: dict[str, str]) -> dict[str, Principal]:
    """The principal of each listener, by the builders of principals.tsv, whose keys are removed."""
    builders = {settings.pop(key) for key in list(settings) if key.endswith(_KEY)}
    return {listener: Principal.parse(text) for builder, listener, text in lists.principals() if builder in builders}


def name_peers(principals: Mapping[str, Principal]) -> None:
    """In the process of one node, before it runs."""
    of_listener = NodeSecurity.of_listener

    def named(self: NodeSecurity, listener: Listener) -> ListenerSecurity | None:
        principal = principals.get(listener.name)
        return NamedPeers(principal) if principal is not None else of_listener(self, listener)

    setattr(NodeSecurity, of_listener.__name__, named)
