"""Core: GSSAPI (RFC 4752): both ends of an exchange. The tokens themselves are Kerberos's; a context makes them.

When the context is established, the server offers its layers of security and the client chooses one. Kafka has none:
TLS protects the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from barnabas.protocol.sasl.kerberos_names import KerberosName, NoShortName, ShortNames
from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused

MECHANISM = "GSSAPI"

_NO_LAYER = 1
_OFFER = bytes([_NO_LAYER, 0, 0, 0])
"""No layer of security, and no size of messages in it."""


class GssError(Exception):
    """Kerberos refused. The text is for the log of this end."""


class GssContext(Protocol):
    """A security context that is being established with a peer."""

    @property
    def complete(self) -> bool: ...

    @property
    def initiator(self) -> str:
        """The name of the client, once the context is complete: `alice@EXAMPLE.COM`."""

    def step(self, token: bytes) -> bytes:
        """Take a token of the peer, empty at the beginning, and return the next one, which may be empty. Raises
        GssError."""

    def wrap(self, message: bytes) -> bytes:
        """Sign a message. Raises GssError."""

    def unwrap(self, token: bytes) -> bytes:
        """Check a signed message. Raises GssError."""


class _State(Enum):
    CONTEXT = auto()
    LAYER = auto()
    DONE = auto()


class GssapiServer:
    """The server's side of one exchange. Any failure ends it."""

    def __init__(self, context: GssContext, names: ShortNames, log_failure: Callable[[str], None]) -> None:
        self._context = context
        self._names = names
        self._log_failure = log_failure
        self._state = _State.CONTEXT
        self._offered = False
        self._result: Authenticated | None = None

    @property
    def result(self) -> Authenticated | None:
        return self._result

    def receive(self, token: bytes) -> bytes:
        try:
            if self._state is _State.CONTEXT:
                return self._establish(token)
            if self._state is _State.LAYER:
                return self._finish(token)
        except (GssError, NoShortName, ValueError) as error:
            self._log_failure(str(error))
        self._state = _State.DONE
        raise SaslRefused

    def _establish(self, token: bytes) -> bytes:
        if not self._context.complete:
            answer = self._context.step(token)
            if answer or not self._context.complete:
                return answer
        elif token:
            raise GssError("the client sent a token after its context was complete")
        self._state = _State.LAYER
        return self._context.wrap(_OFFER)

    def _finish(self, token: bytes) -> bytes:
        choice = self._context.unwrap(token)
        if len(choice) < len(_OFFER) or choice[0] != _NO_LAYER:
            raise GssError("the client wants a layer of security that was not offered")
        # Like Kafka, take the name of the ticket, whatever authorization id follows the choice.
        name = self._names.of(KerberosName.parse(self._context.initiator))
        self._state = _State.DONE
        self._result = Authenticated(name)
        return b""


class GssapiClient:
    """The client's side of one exchange."""

    name = MECHANISM

    def __init__(self, context: GssContext) -> None:
        self._context = context
        self._state = _State.CONTEXT

    @property
    def complete(self) -> bool:
        return self._state is _State.DONE

    def first(self) -> bytes:
        return self._step(b"")

    def receive(self, challenge: bytes) -> bytes | None:
        if self._state is _State.LAYER:
            self._state = _State.DONE
            if challenge:
                raise SaslRefused("the server sent more than the exchange has")
            return None
        if self._state is _State.DONE:
            raise SaslRefused("the exchange has ended")
        return self._choose(challenge) if self._context.complete else self._step(challenge)

    def _step(self, token: bytes) -> bytes:
        try:
            return self._context.step(token)
        except GssError as error:
            raise SaslRefused(str(error)) from None

    def _choose(self, challenge: bytes) -> bytes:
        try:
            offer = self._context.unwrap(challenge)
            if len(offer) != len(_OFFER) or not offer[0] & _NO_LAYER:
                raise GssError("the server insists on a layer of security")
            answer = self._context.wrap(_OFFER)
        except GssError as error:
            raise SaslRefused(str(error)) from None
        self._state = _State.LAYER
        return answer
