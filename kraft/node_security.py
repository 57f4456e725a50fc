"""TLS and SASL of the listeners of one node, and of its channels to other nodes.

A node without them does not load their code: `runtime/tls/` and `runtime/sasl/` are imported where a listener or a
channel is secured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import trio

from barnabas.kraft.metadata.delegation_tokens import token_of
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.runtime.families import Family
from barnabas.runtime.security import ChannelSecurity, ListenerSecurity
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.definitions import without_listener
from barnabas.settings.errors import SettingsError
from barnabas.settings.listener_values import JAAS_KEY, MECHANISMS_KEY, values_of_listener
from barnabas.settings.listeners import Listener
from barnabas.settings.node import NodeSettings

if TYPE_CHECKING:
    from barnabas.protocol.sasl.scram_credentials import ScramCredential
    from barnabas.runtime.sasl.altered import AlterableMechanisms
    from barnabas.runtime.sasl.mechanisms import SaslPorts, TokenCredential
    from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms
    from barnabas.runtime.sasl.server import AuthenticationCounts, SaslListener
    from barnabas.runtime.tls.listener import TlsListenerSecurity
    from barnabas.runtime.tls.reload import TlsHolder

log = logging.getLogger(__name__)

INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"

SaslRefusal = Callable[[Mapping[str, str]], Generator[None, Any, str | None]]
"""`NodeSecurity.sasl_refusal`"""


class NodeSecurity:
    """Made once, when the node starts."""

    def __init__(
        self, settings: NodeSettings, world: World, image: Callable[[], MetadataImage] | None = None
    ) -> None:
        """`image` has the users of SCRAM and the delegation tokens; None on the listeners of controllers.

        Raises SettingsError for keys, certificates and logins that cannot be used.
        """
        self._settings = settings
        self._world = world
        self._image = image
        self.holders: dict[str, TlsHolder] = {}
        """Certificates, by listener."""
        self.tls: dict[str, TlsListenerSecurity] = {}
        """Handshakes, by listener."""
        self._alterable: dict[str, AlterableMechanisms] = {}
        """Mechanisms, by listener."""
        self.listeners = {listener.name: self._of_listener(listener) for listener in settings.listeners}
        """None for PLAINTEXT."""
        self._dynamic: Mapping[str, str] = {}
        """The dynamic configs of certificates that are in use."""
        self._dynamic_sasl: Mapping[str, str] = {}
        """The dynamic configs of mechanisms that were last applied."""

    def of_listener(self, listener: Listener) -> ListenerSecurity | None:
        """None for PLAINTEXT."""
        return self.listeners[listener.name]

    @cached_property
    def _mechanisms(self) -> ProviderMechanisms:
        from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms

        return ProviderMechanisms(self._world, allowed="")

    @property
    def _has_sasl(self) -> bool:
        settings = self._settings
        names = {listener.name for listener in settings.listeners} | {settings.controller_listener_names[0]}
        if isinstance(settings, BrokerSettings):
            names.add(settings.inter_broker_listener_name)
        return any(settings.listener_security_protocol_map[name].startswith("SASL") for name in names)

    @cached_property
    def between_brokers(self) -> ChannelSecurity | None:
        """Security of channels to other brokers; None: PLAINTEXT."""
        settings = self._settings
        assert isinstance(settings, BrokerSettings)
        return self._of_channels(settings.inter_broker_listener_name, INTER_BROKER_MECHANISM)

    @cached_property
    def to_controllers(self) -> ChannelSecurity | None:
        """Security of channels to controllers; None: PLAINTEXT."""
        return self._of_channels(self._settings.controller_listener_names[0], "sasl.mechanism.controller.protocol")

    async def run(self) -> None:
        """Take over certificates whose files change, and keys and tokens of OAUTHBEARER, until cancelled."""
        async with trio.open_nursery() as nursery:
            if self._has_sasl:
                nursery.start_soon(self._mechanisms.run)
            for holder in self.holders.values():
                nursery.start_soon(holder.run)

    def sasl_configs_are(self, dynamic: Mapping[str, str]) -> Generator[None, Any, None]:
        """Use the mechanisms and the users of PLAIN that the dynamic configs of this node name (KIP-226), for new
        connections and for re-authentications. Yields after each listener."""
        wanted = _of_mechanisms(dynamic)
        if wanted == self._dynamic_sasl:
            return
        from barnabas.runtime.sasl.options import SaslOptionsError
        from barnabas.runtime.sasl.server import SaslListener

        before, self._dynamic_sasl = self._dynamic_sasl, wanted
        for name, alterable in self._alterable.items():
            values = self._values(name, wanted)
            if values == self._values(name, before):
                continue
            listener = self.listeners[name]
            assert isinstance(listener, SaslListener)
            try:
                listener.rules = alterable.rules(values)
            except SaslOptionsError as error:
                log.error("listener %s: mechanisms and users stay, the altered ones cannot be used: %s", name, error)
            else:
                log.info("listener %s: altered mechanisms and users: %s", name, ", ".join(listener.rules.mechanisms))
            yield

    def sasl_refusal(self, dynamic: Mapping[str, str]) -> Generator[None, Any, str | None]:
        """The reason why a listener cannot use these dynamic configs of this node; None if all can. Yields after each
        listener."""
        from barnabas.runtime.sasl.options import SaslOptionsError

        wanted = _of_mechanisms(dynamic)
        for name, alterable in self._alterable.items():
            values = self._values(name, wanted)
            if values == self._values(name, self._dynamic_sasl):
                continue
            try:
                alterable.rules(values)
            except SaslOptionsError as error:
                return f"listener {name}: {error}"
            yield
        return None

    async def configs_are(self, dynamic: Mapping[str, str]) -> None:
        """Use the certificates that the dynamic configs of this node name (KIP-226), for new connections."""
        wanted = {key: text for key, text in dynamic.items() if without_listener(key).startswith("ssl.")}
        if wanted == self._dynamic:
            return
        from barnabas.runtime.tls.options import TlsConfigError

        self._dynamic = wanted
        for name, holder in self.holders.items():
            try:
                prepared = await holder.prepare_aside(values_of_listener({**self._settings.raw, **wanted}, name))
            except TlsConfigError as error:
                log.error("listener %s: the old certificates stay, the altered ones cannot be used: %s", name, error)
                continue
            if self._dynamic is not wanted:
                return  # later configs are being prepared
            holder.adopt(prepared)

    def _of_listener(self, listener: Listener) -> ListenerSecurity | None:
        protocol = listener.security_protocol
        if protocol == "PLAINTEXT":
            return None
        from barnabas.runtime.sasl.options import SaslOptionsError
        from barnabas.runtime.tls.listener import TlsListenerSecurity
        from barnabas.runtime.tls.options import TlsConfigError

        try:
            tls = None
            if protocol.endswith("SSL"):
                tls = self.tls[listener.name] = TlsListenerSecurity(self._holder(listener.name, protocol))
            return self._sasl(listener.name, tls) if protocol.startswith("SASL") else tls
        except (TlsConfigError, SaslOptionsError) as error:
            raise SettingsError(f"{listener.name}: {error}", "listeners", str(listener)) from None

    def _sasl(self, name: str, tls: TlsListenerSecurity | None) -> SaslListener:
        from barnabas.runtime.sasl.altered import AlterableMechanisms
        from barnabas.runtime.sasl.mechanisms import server_mechanisms
        from barnabas.runtime.sasl.options import SaslOptions
        from barnabas.runtime.sasl.server import SaslListener

        options = SaslOptions.of(self._values(name))
        scram, tokens = (None, None) if self._image is None else (self._scram_credential, self._token)
        make = partial(server_mechanisms, scram_lookup=scram, token_lookup=tokens, ports=self._ports)
        mechanisms = make(options)
        self._alterable[name] = AlterableMechanisms(options, mechanisms, make, self._required_mechanism(name))
        return SaslListener.of(self._world, options, mechanisms, tls)

    def _required_mechanism(self, listener_name: str) -> str | None:
        """The mechanism of brokers' channels to a listener; None for a listener of clients."""
        settings = self._settings
        if not isinstance(settings, BrokerSettings) or settings.inter_broker_listener_name != listener_name:
            return None
        from barnabas.runtime.sasl.options import GSSAPI

        return self._values(listener_name).get(INTER_BROKER_MECHANISM, GSSAPI).strip()

    def _of_channels(self, listener_name: str, mechanism_key: str) -> ChannelSecurity | None:
        protocol = self._settings.listener_security_protocol_map[listener_name]
        if protocol == "PLAINTEXT":
            return None
        from barnabas.runtime.sasl.authenticator import SaslChannelSecurity
        from barnabas.runtime.sasl.mechanisms import client_mechanism
        from barnabas.runtime.sasl.options import GSSAPI, ClientSaslOptions, SaslOptionsError
        from barnabas.runtime.tls.channel import TlsChannelSecurity
        from barnabas.runtime.tls.options import TlsConfigError

        values = self._values(listener_name)
        try:
            tls = TlsChannelSecurity(self._holder(listener_name, protocol)) if protocol.endswith("SSL") else None
            if not protocol.startswith("SASL"):
                return tls
            mechanism = values.get(mechanism_key, GSSAPI).strip()
            login = ClientSaslOptions.of_listener(values, mechanism)
            return SaslChannelSecurity(client_mechanism(login, self._ports), tls)
        except (TlsConfigError, SaslOptionsError) as error:
            raise SettingsError(f"{listener_name}: {error}", mechanism_key, values.get(mechanism_key, "")) from None

    def _holder(self, listener_name: str, protocol: str) -> TlsHolder:
        """One for both ends: a node's listener and its channels to listeners of that name."""
        from barnabas.runtime.tls.listener import options_of_listener
        from barnabas.runtime.tls.reload import TlsHolder

        holder = self.holders.get(listener_name)
        if holder is None:
            options = options_of_listener(self._settings.raw, listener_name, protocol)
            is_served = listener_name in [listener.name for listener in self._settings.listeners]
            holder = TlsHolder(options, self._world, server=is_served, client=True, name=f"listener {listener_name}")
            self.holders[listener_name] = holder
        return holder

    def _values(self, listener_name: str, dynamic: Mapping[str, str] | None = None) -> dict[str, str]:
        """The values of a listener by the node's file, with dynamic ones in their place."""
        return values_of_listener({**self._settings.raw, **(dynamic or {})}, listener_name)

    @cached_property
    def _ports(self) -> SaslPorts:
        from barnabas.runtime.sasl.mechanisms import SaslPorts

        return SaslPorts(
            self._world.chance.randbytes,
            servers=self._mechanisms.servers,
            clients=self._mechanisms.clients,
        )

    def _scram_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        assert self._image is not None
        from barnabas.protocol.sasl.scram_credentials import SCRAM_MECHANISMS, ScramCredential

        record = self._image().others.scram.get((user, SCRAM_MECHANISMS[mechanism].type))
        if record is None:
            return None
        return ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )

    def _token(self, token_id: str) -> TokenCredential | None:
        from barnabas.runtime.sasl.mechanisms import TokenCredential

        assert self._image is not None
        secret = self._settings.delegation_token_secret_key
        login = token_of(self._image(), token_id, secret) if secret else None
        return None if login is None else TokenCredential(login.hmac, login.owner.name, login.expiry_ms)


def _of_mechanisms(dynamic: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in dynamic.items() if is_of_mechanisms(key)}


def is_of_mechanisms(key: str) -> bool:
    """True for the keys of a listener's mechanisms, which may be altered while the node runs."""
    return without_listener(key) in (MECHANISMS_KEY, JAAS_KEY)


def security_families(securities: Sequence[NodeSecurity]) -> Iterator[Family]:
    """Metrics of authentications, by listener, and of certificates. A combined node has a security of each role."""
    listeners = {
        name: _counts(it) for each in securities for name, it in each.listeners.items() if it is not None
    }
    if listeners:
        from barnabas.runtime.sasl.server import authentication_families
        from barnabas.runtime.tls.metrics import certificate_families, handshake_families

        yield from authentication_families(listeners)
        yield from handshake_families({name: it for each in securities for name, it in each.tls.items()})
        yield from certificate_families({name: it for each in securities for name, it in each.holders.items()})


def _counts(security: ListenerSecurity) -> AuthenticationCounts:
    """Failed authentications include failed TLS handshakes, as in Kafka."""
    from barnabas.runtime.sasl.server import AuthenticationCounts, SaslListener
    from barnabas.runtime.tls.listener import TlsListenerSecurity

    if isinstance(security, TlsListenerSecurity):
        return AuthenticationCounts(security.successful_authentications, security.failed_authentications)
    assert isinstance(security, SaslListener)
    counts, tls = security.counts, security.inner
    if isinstance(tls, TlsListenerSecurity):
        return replace(counts, failed=counts.failed + tls.failed_authentications)
    return counts
