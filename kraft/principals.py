"""Core: the principal and the address of a client, as a broker puts them into an Envelope (KIP-590)."""

from __future__ import annotations

import ipaddress

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.principal_data import DefaultPrincipalData
from barnabas.protocol.schema import decode_prefix, encode
from barnabas.runtime.identity import ANONYMOUS, Principal

VERSION = (0).to_bytes(2, "big")
LOOPBACK = bytes((127, 0, 0, 1))


def written_principal(principal: Principal) -> bytes:
    """An int16 version, then DefaultPrincipalData in it."""
    if principal is ANONYMOUS:
        return _ANONYMOUS
    return VERSION + encode(
        DefaultPrincipalData(
            type=principal.type, name=principal.name, token_authenticated=principal.token_authenticated
        ),
        0,
    )


def read_principal(data: bytes | bytearray | memoryview | None) -> Principal:
    """Raises MalformedMessage."""
    if data is None or len(data) < 2 or bytes(data[:2]) != VERSION:
        raise MalformedMessage("the principal of an envelope must have version 0")
    body = memoryview(bytearray(data))[2:]
    read, _ = decode_prefix(DefaultPrincipalData, body, 0, 0, None)
    return Principal(read.name, read.type, read.token_authenticated)


def written_host(host: str) -> bytes:
    """The 4 or 16 bytes of an address; a name (as simulated hosts have) counts as loopback."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return LOOPBACK


def client_host(address: bytes | bytearray | memoryview) -> str:
    """Raises MalformedMessage."""
    try:
        return str(ipaddress.ip_address(bytes(address)))
    except ValueError as error:
        raise MalformedMessage(f"the address of a client must have 4 or 16 bytes; got {len(address)}") from error


_ANONYMOUS = VERSION + encode(DefaultPrincipalData(type=ANONYMOUS.type, name=ANONYMOUS.name), 0)
