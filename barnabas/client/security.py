"""The security of a client's connections, by its settings: TLS, SASL, both or none."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from barnabas.client.errors import ConfigException
from barnabas.client.security_options import sasl_options, tls_options
from barnabas.client.security_settings import SecuritySettings
from barnabas.protocol.sasl.jwt_claims import unverified
from barnabas.protocol.sasl.mechanism import ClientMechanismFactory
from barnabas.protocol.sasl.oauthbearer import BearerToken
from barnabas.runtime.sasl.authenticator import SaslChannelSecurity
from barnabas.runtime.sasl.mechanisms import SaslPorts, client_mechanism
from barnabas.runtime.sasl.options import SaslOptionsError
from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.tls.channel import TlsChannelSecurity
from barnabas.runtime.tls.options import TlsConfigError
from barnabas.runtime.tls.reload import TlsHolder
from barnabas.runtime.world import World


def channel_security(settings: SecuritySettings, world: World) -> ChannelSecurity | None:
    """The security of all connections of a client; None for PLAINTEXT. Reads the files that the settings name. Raises
    ConfigException.
    """
    tls = None
    if settings.encrypts:
        try:
            tls = TlsChannelSecurity(TlsHolder(tls_options(settings), world, client=True, name="client"))
        except TlsConfigError as error:
            raise ConfigException(str(error)) from None
    if not settings.authenticates:
        return tls
    return SaslChannelSecurity(sasl_mechanism(settings, world), tls)


def sasl_mechanism(settings: SecuritySettings, world: World) -> ClientMechanismFactory:
    """Begins the exchanges of the client's mechanism. Raises ConfigException."""
    callback = settings.sasl_login_callback_handler_class
    tokens = None if callback is None else _token_callback(callback, settings)
    ports = SaslPorts(world.chance.randbytes, clients=ProviderMechanisms(world, token_callback=tokens).clients)
    try:
        return client_mechanism(sasl_options(settings), ports)
    except SaslOptionsError as error:
        raise ConfigException(str(error)) from None


def _token_callback(callback: Callable[[], Any], settings: SecuritySettings) -> Callable[[], Awaitable[BearerToken]]:
    """The application's function may return the token as text, or may be a coroutine function."""
    scope, sub = settings.sasl_oauthbearer_scope_claim_name, settings.sasl_oauthbearer_sub_claim_name

    async def token() -> BearerToken:
        made = callback()
        found = await made if inspect.isawaitable(made) else made
        return found if isinstance(found, BearerToken) else unverified(found, scope_claim=scope, sub_claim=sub)

    return token
