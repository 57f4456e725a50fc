"""Core: mechanisms of clients that need something before their first token: a bearer token, a Kerberos ticket."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class NotPrepared(Exception):
    """There are no credentials. The text is one line and contains no secret."""


@runtime_checkable
class PreparedMechanism(Protocol):
    """A ClientMechanism whose `prepare` is awaited before `first`, in each exchange."""

    async def prepare(self) -> None:
        """Get the credentials, from outside if need be. Raises NotPrepared. The caller bounds the time."""
