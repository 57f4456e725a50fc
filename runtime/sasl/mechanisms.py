"""Core: the mechanisms of a listener and of a client, by their settings.

PLAIN and SCRAM are here. Others are registered by name in the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from barnabas.protocol.sasl.mechanism import Authenticated, ClientMechanismFactory, ServerMechanism, ServerMechanisms
from barnabas.protocol.sasl.plain import LOGIN_MODULE as PLAIN_LOGIN_MODULE
from barnabas.protocol.sasl.plain import PLAIN, PlainClient, PlainServer, users_of
from barnabas.protocol.sasl.scram import NONCE_BYTES, ScramClient, ScramIdentity, ScramServer
from barnabas.protocol.sasl.scram_credentials import LOGIN_MODULE as SCRAM_LOGIN_MODULE
from barnabas.protocol.sasl.scram_credentials import (
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
)
from barnabas.protocol.sasl.scram_messages import TOKEN_AUTHENTICATION, encode_base64
from barnabas.runtime.sasl.options import ClientSaslOptions, SaslOptions, SaslOptionsError

TOKEN_CREDENTIALS = 1000
"""Credentials of delegation tokens that are kept: making one takes some milliseconds."""

ScramLookup = Callable[[str, str], ScramCredential | None]
"""The credential by mechanism and user."""


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """A delegation token (KIP-48), as a client proves that it has it."""

    hmac: bytes = field(repr=False)
    """The SCRAM password is its Base64."""
    owner: str
    """Name of the principal that the client becomes."""
    expires_ms: int
    """On the wall clock."""


TokenLookup = Callable[[str], TokenCredential | None]
"""The token by its id."""

ServerFactory = Callable[[SaslOptions], Callable[[], ServerMechanism]]
"""Reads the settings of a listener once, and then begins an exchange at each call. Raises SaslOptionsError."""

ClientFactory = Callable[[ClientSaslOptions], ClientMechanismFactory]
"""Reads the settings of a client once, and then begins an exchange at each call. Raises SaslOptionsError."""


@dataclass(frozen=True, slots=True)
class SaslPorts:
    """The outside world of mechanisms, and those that are registered."""

    random_bytes: Callable[[int], bytes]
    """Fit for secrets: `World.chance.randbytes`."""
    servers: Mapping[str, ServerFactory] = field(default_factory=dict)
    """Further mechanisms of listeners, by name: OAUTHBEARER, GSSAPI."""
    clients: Mapping[str, ClientFactory] = field(default_factory=dict)
    """Further mechanisms of clients, by name."""
    secret: bytes | None = field(default=None, repr=False)
    """Derives what unknown users are answered. Nodes with the same one answer alike; None: a random one."""


def server_mechanisms(
    options: SaslOptions, scram_lookup: ScramLookup | None, token_lookup: TokenLookup | None, ports: SaslPorts
) -> ServerMechanisms:
    """The mechanisms of a listener. Raises SaslOptionsError.

    Without `scram_lookup` SCRAM is refused: the listener of a controller cannot have it, because the credentials are
    records that come by the listener.
    """
    secret = ports.secret or ports.random_bytes(32)
    mechanisms: ServerMechanisms = {}
    for name in options.mechanisms:
        if name in ports.servers:
            mechanisms[name] = ports.servers[name](options)
        elif name == PLAIN:
            mechanisms[name] = partial(PlainServer, users_of(options.module(PLAIN, PLAIN_LOGIN_MODULE)))
        elif name in SCRAM_MECHANISMS:
            if scram_lookup is None:
                raise SaslOptionsError(
                    f"{name} cannot be enabled on a listener of controllers: its credentials are records of the cluster"
                    " metadata, which controllers exchange over that listener"
                )
            users = _ScramUsers(SCRAM_MECHANISMS[name], scram_lookup, token_lookup, secret)
            mechanisms[name] = partial(users.begin, ports.random_bytes)
        else:
            raise SaslOptionsError(_unknown(name, [PLAIN, *SCRAM_MECHANISMS, *ports.servers]))
    return mechanisms


def client_mechanism(options: ClientSaslOptions, ports: SaslPorts) -> ClientMechanismFactory:
    """The mechanism of a client. Raises SaslOptionsError."""
    name = options.mechanism
    if name in ports.clients:
        return ports.clients[name](options)
    if name == PLAIN:
        username, password = options.credentials(PLAIN_LOGIN_MODULE)
        return lambda host: PlainClient(username, password)
    if name in SCRAM_MECHANISMS:
        username, password = options.credentials(SCRAM_LOGIN_MODULE)
        mechanism, random_bytes = SCRAM_MECHANISMS[name], ports.random_bytes
        login = options.login
        is_token = login is not None and login.options.get(TOKEN_AUTHENTICATION, "").lower() == "true"
        return lambda host: ScramClient(mechanism, username, password, random_bytes(NONCE_BYTES), is_token=is_token)
    raise SaslOptionsError(_unknown(name, [PLAIN, *SCRAM_MECHANISMS, *ports.clients]))


class _ScramUsers:
    """The users and the delegation tokens that may authenticate by one mechanism."""

    def __init__(
        self, mechanism: ScramMechanism, scram_lookup: ScramLookup, token_lookup: TokenLookup | None, secret: bytes
    ) -> None:
        self._mechanism = mechanism
        self._scram_lookup = scram_lookup
        self._token_lookup = token_lookup
        self._secret = secret
        self._of_tokens: dict[bytes, ScramCredential] = {}
        """By the hmac; the oldest first."""

    def begin(self, random_bytes: Callable[[int], bytes]) -> ServerMechanism:
        return ScramServer(self._mechanism, self._identify, self._secret, random_bytes(NONCE_BYTES))

    def _identify(self, name: str, is_token: bool) -> ScramIdentity | None:
        if is_token:
            return self._identify_token(name)
        credential = self._scram_lookup(self._mechanism.name, name)
        return None if credential is None else ScramIdentity(credential, Authenticated(name))

    def _identify_token(self, token_id: str) -> ScramIdentity | None:
        token = None if self._token_lookup is None else self._token_lookup(token_id)
        if token is None:
            return None
        result = Authenticated(token.owner, token_authenticated=True, expires_ms=token.expires_ms)
        return ScramIdentity(self._credential_of(token_id, token.hmac), result)

    def _credential_of(self, token_id: str, token_hmac: bytes) -> ScramCredential:
        kept = self._of_tokens
        credential = kept.get(token_hmac)
        if credential is None:
            salt = self._mechanism.hmac(self._secret, b"token\0" + token_id.encode())[:24]
            credential = credential_of_password(self._mechanism, encode_base64(token_hmac), salt)
            if len(kept) >= TOKEN_CREDENTIALS:
                del kept[next(iter(kept))]
            kept[token_hmac] = credential
        return credential


def _unknown(name: str, known: list[str]) -> str:
    return f"there is no SASL mechanism {name}; available: {', '.join(known)}"
