"""Parses the addresses in configuration values: listeners, voters, endpoints.

Resolves no name and opens no socket. Raises `SettingsError` without a place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.settings.errors import SettingsError

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_\-]+)://(?P<host>\[[0-9a-fA-F:.%]+\]|[^\[\]:/]*):(?P<port>\d{1,5})")
_ENDPOINT = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^\[\]:/@]+):(?P<port>\d{1,5})")
_VOTER = re.compile(r"(?P<id>\d{1,10})@(?P<rest>.+)")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Listener:
    """A name and an address. An empty host means all interfaces, port 0 any free port."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.name}://{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Voter:
    """A controller that votes, and its address."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id}@{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address without a name or id."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_listeners(key: str, texts: Sequence[str], protocols: Mapping[str, str]) -> list[Listener]:
    """Parse `NAME://host:port` each; names must be unique. `protocols` has the security protocol of each name."""
    listeners: list[Listener] = []
    for text in texts:
        found = _LISTENER.fullmatch(text)
        if found is None or int(found["port"]) > 65535:
            raise SettingsError("not a listener address", key, text, "NAME://host:port")
        name = found["name"].upper()
        if name not in protocols:
            raise SettingsError(
                f"listener {name} has no protocol; set one in listener.security.protocol.map",
                key,
                text,
            )
        listeners.append(
            Listener(name, found["host"].strip("[]"), int(found["port"]), protocols[name]),
        )
    _refuse_twice(key, [listener.name for listener in listeners], "listener name")
    return listeners


def protocol_code(listener: Listener) -> int:
    """The security protocol of a listener as registrations have it."""
    return SECURITY_PROTOCOLS.index(listener.security_protocol)


def refuse_shared_ports(key: str, listeners: Sequence[Listener]) -> None:
    """Raises `SettingsError` if two listeners have the same port. Port 0 is another free port for each."""
    _refuse_twice(key, [str(listener.port) for listener in listeners if listener.port], "port")


def _refuse_twice(key: str, names: Sequence[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{what} {name} must be given only once", key)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse `NAME:PROTOCOL,…`; returns protocols by upper-case name."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, colon, protocol = (each.strip().upper() for each in pair.partition(":"))
        if not colon or not name or protocol not in SECURITY_PROTOCOLS:
            raise SettingsError(
                "not a listener name with its protocol", key, pair, "NAME:" + "|".join(SECURITY_PROTOCOLS)
            )
        if name in protocols:
            raise SettingsError(f"listener name {name} must be given only once", key)
        protocols[name] = protocol
    return protocols


def parse_voters(texts: Sequence[str]) -> list[Voter]:
    """Parse `101@host:port` each; ids must be unique."""
    key = "controller.quorum.voters"
    voters: list[Voter] = []
    for text in texts:
        found = _VOTER.fullmatch(text)
        endpoint = _ENDPOINT.fullmatch(found["rest"]) if found else None
        if found is None or endpoint is None or not 0 < int(endpoint["port"]) < 65536 or int(found["id"]) >= 1 << 31:
            raise SettingsError("not a voter", key, text, "id@host:port, for example 101@127.0.0.1:9192")
        voters.append(Voter(int(found["id"]), endpoint["host"].strip("[]"), int(endpoint["port"])))
    _refuse_twice(key, [str(voter.id) for voter in voters], "voter")
    return voters


def parse_endpoints(key: str, texts: Sequence[str]) -> list[Endpoint]:
    """Parse `host:port` each."""
    endpoints: list[Endpoint] = []
    for text in texts:
        found = _ENDPOINT.fullmatch(text)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise SettingsError("not an address", key, text, "host:port")
        endpoints.append(Endpoint(found["host"].strip("[]"), int(found["port"])))
    return endpoints
