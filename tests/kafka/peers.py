"""Stands in for the principal builders and authorizers of tests, which are Java classes.

Most builders look at nothing but the name of the listener, or at the certificate; some return what the test says at the
moment. Authorizers of tests allow everything, but for requests of one principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.kraft.authorizer.standard import StandardAuthorizer
from barnabas.kraft.node_security import NodeSecurity
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.request import Request
from barnabas.runtime.security import ListenerSecurity, Secured
from barnabas.runtime.world import Connection
from barnabas.settings.listeners import Listener
from tests.kafka import lists

HARNESS = "HARNESS"
"""A listener in plain text, which a broker gets that has none, or none with a super user. It is asked there whether it
is ready, and by the stand-ins. Peers without a login are super users then: no client of such a test is one."""
SAID_FILE = "principal"
"""In the folder of a cluster: the principal that the test said last, as `Type:name`."""

_BUILDER = "principal.builder.class"
_AUTHORIZER = "authorizer.class.name"
_MAPPING_RULES = "ssl.principal.mapping.rules"
_STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True)
class Peers:
    """The principals of the peers of a node's listeners in plain text."""

    by_listener: Mapping[str, str]
    """`Type:name` by name of the listener; `*` stands for all but HARNESS, and `lists.SAID` for what the test says."""

    def of(self, listener: str) -> str | None:
        """None: they are those of the connection."""
        return self.by_listener.get(listener) or (None if listener == HARNESS else self.by_listener.get(lists.ANY))


NOBODY = Peers({})


@dataclass(frozen=True, slots=True)
class Denial:
    """An authorizer that allows everything else."""

    principal: str
    api: str
    """Name of the requests that are denied; `*` stands for all."""

    def fits(self, request: Request) -> bool:
        is_denied = self.api in (lists.ANY, API_SPECS[ApiKey(request.api_key)].name)
        return is_denied and str(request.principal) == self.principal


@dataclass(frozen=True, slots=True)
class NamedPeers:
    """The security of a listener in plain text whose peers are one principal."""

    principal: str
    said: Path

    async def secure(self, connection: Connection) -> Secured:
        name = self.principal
        if name == lists.SAID:
            name = self.said.read_text() if self.said.exists() else str(ANONYMOUS)
        return Secured(connection, Principal.parse(name))


def take_builders(settings: dict[str, str]) -> Peers:
    """The principals that the builders of principals.tsv return. Their keys are removed; rules take the place of those
    that look at certificates."""
    builders = {settings.pop(key) for key in list(settings) if key.endswith(_BUILDER)}
    for builder, rules in lists.mapping_rules():
        if builder in builders:
            settings[_MAPPING_RULES] = rules
    return Peers({listener: text for builder, listener, text in lists.principals() if builder in builders})


def take_authorizer(settings: dict[str, str]) -> Denial | None:
    """The denial of the authorizer of authorizers.tsv, whose place Kafka's own takes. None without one of them."""
    for authorizer, principal, api in lists.authorizers():
        if settings.get(_AUTHORIZER) == authorizer:
            settings[_AUTHORIZER] = _STANDARD
            return Denial(principal, api)
    return None


def name_peers(peers: Peers, folder: Path) -> None:
    """In the process of one node, before it runs."""
    of_listener = NodeSecurity.of_listener

    def named(self: NodeSecurity, listener: Listener) -> ListenerSecurity | None:
        principal = peers.of(listener.name)
        return of_listener(self, listener) if principal is None else NamedPeers(principal, folder / SAID_FILE)

    setattr(NodeSecurity, of_listener.__name__, named)


def deny(denial: Denial) -> None:
    """In the process of one node, before it runs."""

    def allows(
        _self: StandardAuthorizer,
        request: Request,
        _operation: AclOperation,
        _resource_type: AclResourceType,
        _name: str,
        **_options: Any,
    ) -> bool:
        return not denial.fits(request)

    setattr(StandardAuthorizer, StandardAuthorizer.allows.__name__, allows)
