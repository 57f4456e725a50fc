"""Core: the settings of SASL, by Kafka's keys: those of a listener, and those of a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.protocol.sasl.jaas import JaasError, LoginModule, parse_jaas
from barnabas.protocol.sasl.session import DEFAULT_MAX_RECEIVE_BYTES
from barnabas.runtime.sasl.numbers import whole_number
from barnabas.settings.errors import SettingsError
from barnabas.settings.listener_values import JAAS_KEY, MECHANISMS_KEY

GSSAPI = "GSSAPI"
"""Kafka's default of all keys that name mechanisms."""

MECHANISM_KEY = "sasl.mechanism"
MAX_REAUTH_KEY = "connections.max.reauth.ms"
MAX_RECEIVE_KEY = "sasl.server.max.receive.size"
FAILED_DELAY_KEY = "connection.failed.authentication.delay.ms"
USERNAME_KEY = "sasl.username"
PASSWORD_KEY = "sasl.password"
"""The names of librdkafka; Kafka's own clients have both values in sasl.jaas.config."""


class SaslOptionsError(ValueError):
    """A setting of SASL is wrong. The text names the key, and contains no secret."""


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """The SASL of one listener, and of channels to listeners of that name."""

    mechanisms: tuple[str, ...] = (GSSAPI,)
    """In the order of sasl.enabled.mechanisms."""
    modules: Mapping[str, LoginModule] = field(default_factory=dict)
    """By mechanism: `<mechanism>.sasl.jaas.config`."""
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """By mechanism; 0: sessions do not expire, unless their credentials do."""
    max_receive_bytes: int = DEFAULT_MAX_RECEIVE_BYTES
    failed_delay_ms: int = 100
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All values of the listener, for mechanisms with keys of their own."""

    @classmethod
    def of(cls, values: Mapping[str, str], *, channel_mechanism: str | None = None) -> SaslOptions:
        """Read the values of a listener (`settings.listener_values`). Raises SaslOptionsError.

        `channel_mechanism` is that of the node's own channels, whose JAAS configuration is read, too.
        """
        names = [name.strip() for name in values.get(MECHANISMS_KEY, GSSAPI).split(",")]
        mechanisms = tuple(dict.fromkeys(filter(None, names)))
        if not mechanisms:
            raise SaslOptionsError(f"{MECHANISMS_KEY} must name a mechanism; it is empty")
        known = dict.fromkeys([*mechanisms, *([channel_mechanism] if channel_mechanism else [])])
        modules = {name: module for name in known if (module := _module(values, f"{name.lower()}.{JAAS_KEY}"))}
        try:
            max_reauth_ms = {name: _max_reauth_ms(values, name) for name in mechanisms}
            max_receive_bytes = whole_number(values, MAX_RECEIVE_KEY, DEFAULT_MAX_RECEIVE_BYTES)
            failed_delay_ms = whole_number(values, FAILED_DELAY_KEY, 100)
        except SettingsError as error:
            raise SaslOptionsError(str(error)) from None
        return cls(mechanisms, modules, max_reauth_ms, max_receive_bytes, failed_delay_ms, values)

    def module(self, mechanism: str, wanted: str) -> LoginModule:
        """The login module of a mechanism, which must be of the class `wanted`. Raises SaslOptionsError."""
        key = f"{mechanism.lower()}.{JAAS_KEY}"
        module = self.modules.get(mechanism)
        if module is None:
            raise SaslOptionsError(
                f"the mechanism {mechanism} needs {key} (listener.name.<listener>.{key} for one listener)"
            )
        return _checked(module, wanted, key)


@dataclass(frozen=True, slots=True)
class ClientSaslOptions:
    """The SASL of a client, or of a node's own channels."""

    mechanism: str = GSSAPI
    login: LoginModule | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All values, for mechanisms with keys of their own."""
    jaas_key: str = JAAS_KEY

    @classmethod
    def of(cls, values: Mapping[str, str]) -> ClientSaslOptions:
        """Read the settings of a client. Raises SaslOptionsError."""
        return cls(
            values.get(MECHANISM_KEY, GSSAPI).strip(),
            _module(values, JAAS_KEY),
            values.get(USERNAME_KEY),
            values.get(PASSWORD_KEY),
            values,
        )

    @classmethod
    def of_listener(cls, values: Mapping[str, str], mechanism: str) -> ClientSaslOptions:
        """Read the settings of a node's channels to a listener: the login of `<mechanism>.sasl.jaas.config` is used on
        both ends. Raises SaslOptionsError."""
        key = f"{mechanism.lower()}.{JAAS_KEY}"
        return cls(mechanism, _module(values, key), None, None, values, key)

    def credentials(self, wanted: str) -> tuple[str, str]:
        """(username, password). Raises SaslOptionsError. `wanted` is the class of the login module."""
        if self.login is None and self.username is not None and self.password is not None:
            return self.username, self.password
        options = self.module(wanted).options
        username, password = options.get("username"), options.get("password")
        if not username or password is None:
            raise SaslOptionsError(f"{self.jaas_key} must have the options username and password")
        return username, password

    def module(self, wanted: str) -> LoginModule:
        """The login module, which must be of the class `wanted`. Raises SaslOptionsError."""
        if self.login is None:
            raise SaslOptionsError(f"the mechanism {self.mechanism} needs {self.jaas_key}")
        return _checked(self.login, wanted, self.jaas_key)


def _module(values: Mapping[str, str], key: str) -> LoginModule | None:
    if key not in values:
        return None
    try:
        return parse_jaas(values[key])
    except JaasError as error:
        raise SaslOptionsError(f"{key}: {error}") from None


def _checked(module: LoginModule, wanted: str, key: str) -> LoginModule:
    """Shaded clients have the class under a longer name."""
    if module.name.rpartition(".")[2] != wanted.rpartition(".")[2]:
        raise SaslOptionsError(f"{key} must be of the login module {wanted}; got {module.name}")
    return module


def _max_reauth_ms(values: Mapping[str, str], mechanism: str) -> int:
    own = f"{mechanism.lower()}.{MAX_REAUTH_KEY}"
    return whole_number(values, own if own in values else MAX_REAUTH_KEY, 0)
