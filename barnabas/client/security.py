"""The security of a client's connections, by its settings: TLS, SASL, both or none."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from barnabas.client.errors import ConfigException
from barnabas.client.security_options import PASSWORD_MECHANISMS, sasl_options, tls_options
from barnabas.client.security_settings import SecuritySettings
from barnabas.protocol.sasl.jwt_claims import unverified
from barnabas.protocol.sasl.mechanism import ClientMechanismFactory
from barnabas.protocol.sasl.oauthbearer import BearerToken
from barnabas.runtime.background import Background
from barnabas.runtime.sasl.authenticator import SaslChannelSecurity
from barnabas.runtime.sasl.mechanisms import SaslPorts, client_mechanism
from barnabas.runtime.sasl.options import SaslOptionsError
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.tls.channel import TlsChannelSecurity
from barnabas.runtime.tls.options import TlsConfigError
from barnabas.runtime.tls.reload import TlsHolder
from barnabas.runtime.world import World


def channel_security(
    settings: SecuritySettings, world: World, nursery: trio.Nursery | None = None
) -> ChannelSecurity | None:
    """The security of all connections of a client; None for PLAINTEXT. Reads the files that the settings name. Raises
    ConfigException.

    `nursery` runs what replaces certificates when their files change, and tokens before they expire. Without it, the
    certificates stay, and tokens are replaced when the next connection wants one.
    """
    background = None if nursery is None else Background(nursery)
    tls = _tls(settings, world, background) if settings.encrypts else None
    if not settings.authenticates:
        return tls
    return SaslChannelSecurity(sasl_mechanism(settings, world, background), tls)


def sasl_mechanism(
    settings: SecuritySettings, world: World, background: Background | None = None
) -> ClientMechanismFactory:
    """Begins the exchanges of the client's mechanism. Raises ConfigException."""
    ports = SaslPorts(world.chance.randbytes)
    if settings.sasl_mechanism not in PASSWORD_MECHANISMS:
        ports = _with_providers(settings, world, background)
    try:
        return client_mechanism(sasl_options(settings.values_under("sasl.")), ports)
    except SaslOptionsError as error:
        raise ConfigException(str(error)) from None


def _with_providers(settings: SecuritySettings, world: World, background: Background | None) -> SaslPorts:
    from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms

    callback = settings.sasl_login_callback_handler_class
    tokens = None if callback is None else _token_callback(callback, settings)
    providers = ProviderMechanisms(world, token_callback=tokens)
    if background is not None:
        background.spawn(providers.run)
    return SaslPorts(world.chance.randbytes, clients=providers.clients)


def _tls(settings: SecuritySettings, world: World, background: Background | None) -> TlsChannelSecurity:
    options = tls_options(settings.values_under("ssl."))
    try:
        holder = TlsHolder(options, world, client=True, name="client")
    except TlsConfigError as error:
        raise ConfigException(str(error)) from None
    if background is not None and options.files:
        background.spawn(holder.run)
    return TlsChannelSecurity(holder)


def _token_callback(callback: Callable[[], Any], settings: SecuritySettings) -> Callable[[], Awaitable[BearerToken]]:
    """The application's function may return the token as text, or may be a coroutine function."""
    scope, sub = settings.sasl_oauthbearer_scope_claim_name, settings.sasl_oauthbearer_sub_claim_name

    async def token() -> BearerToken:
        made = callback()
        found = await made if inspect.isawaitable(made) else made
        return found if isinstance(found, BearerToken) else unverified(found, scope_claim=scope, sub_claim=sub)

    return token
