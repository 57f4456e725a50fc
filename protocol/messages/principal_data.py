"""The principal of a forwarded request."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, STRING, Message, field


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """A principal inside an Envelope request (KIP-590). Version 0; flexible."""

    type: str = field(STRING, "0+", default="")
    name: str = field(STRING, "0+", default="")
    token_authenticated: bool = field(BOOL, "0+", default=False)
