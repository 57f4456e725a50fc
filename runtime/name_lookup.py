"""Looks names of hosts up."""

from __future__ import annotations

import socket


def addresses_of(name: str) -> list[str]:
    """The IP addresses of a host, each once. Slow. Raises OSError."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(str(error)) from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
