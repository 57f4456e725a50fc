"""The mechanisms that need more than a user's name and password: OAUTHBEARER and GSSAPI. Registered in `SaslPorts`."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.protocol.sasl.gssapi import MECHANISM as GSSAPI
from barnabas.protocol.sasl.jaas import LoginModule
from barnabas.protocol.sasl.mechanism import ClientMechanismFactory, ServerMechanism
from barnabas.protocol.sasl.oauthbearer import MECHANISM as OAUTHBEARER
from barnabas.runtime.background import Background
from barnabas.runtime.sasl.kerberos import LOGIN_MODULE as KERBEROS_LOGIN_MODULE
from barnabas.runtime.sasl.kerberos import kerberos_listener, kerberos_login
from barnabas.runtime.sasl.mechanisms import ClientFactory, ServerFactory
from barnabas.runtime.sasl.options import ClientSaslOptions, SaslOptions, SaslOptionsError
from barnabas.runtime.world import World
from barnabas.settings.errors import SettingsError

if TYPE_CHECKING:
    from barnabas.runtime.sasl.oauth_client import TokenCallback

OAUTH_LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class ProviderMechanisms:
    """The mechanisms of one node or client. `run` keeps their keys and tokens up to date."""

    def __init__(
        self, world: World, *, allowed: str | None = None, token_callback: TokenCallback | None = None
    ) -> None:
        """`allowed`: the only places a token may come from, if the settings do not say so; None: all.
        `token_callback`: a function of the application that returns a token, in place of settings."""
        self._world = world
        self._allowed = allowed
        self._token_callback = token_callback
        self._begun, self._runs = trio.open_memory_channel[Callable[[], Awaitable[None]]](math.inf)
        self.servers: Mapping[str, ServerFactory] = {OAUTHBEARER: self._oauth_server, GSSAPI: _kerberos_server}
        self.clients: Mapping[str, ClientFactory] = {OAUTHBEARER: self._oauth_client, GSSAPI: self._kerberos_client}

    async def run(self) -> None:
        """Run what the mechanisms need, also of those that are made later, until cancelled."""
        async with trio.open_nursery() as nursery:
            background = Background(nursery)
            async for run in self._runs:
                background.spawn(run)

    def _oauth_server(self, options: SaslOptions) -> Callable[[], ServerMechanism]:
        from barnabas.runtime.sasl.oauth_server import oauth_listener  # its libraries take 9 MiB

        module = options.module(OAUTHBEARER, OAUTH_LOGIN_MODULE) if OAUTHBEARER in options.modules else None
        try:
            listener = oauth_listener(options.values, _options(module), self._world)
        except SettingsError as error:
            raise SaslOptionsError(str(error)) from None
        self._begun.send_nowait(listener.run)
        return listener.mechanism

    def _oauth_client(self, options: ClientSaslOptions) -> ClientMechanismFactory:
        from barnabas.runtime.sasl.oauth_client import oauth_login

        module = None if options.login is None else options.module(OAUTH_LOGIN_MODULE)
        try:
            login = oauth_login(
                options.values,
                _options(module),
                self._world,
                callback=self._token_callback,
                allowed=self._allowed,
            )
        except SettingsError as error:
            raise SaslOptionsError(str(error)) from None
        self._begun.send_nowait(login.run)
        return login

    def _kerberos_client(self, options: ClientSaslOptions) -> ClientMechanismFactory:
        module = None if options.login is None else options.module(KERBEROS_LOGIN_MODULE)
        try:
            return kerberos_login(options.values, _options(module), self._world.run_blocking)
        except SettingsError as error:
            raise SaslOptionsError(str(error)) from None


def _kerberos_server(options: SaslOptions) -> Callable[[], ServerMechanism]:
    module = options.module(GSSAPI, KERBEROS_LOGIN_MODULE)
    try:
        return kerberos_listener(options.values, module.options).mechanism
    except SettingsError as error:
        raise SaslOptionsError(str(error)) from None


def _options(module: LoginModule | None) -> Mapping[str, str]:
    return {} if module is None else module.options
