"""Core: the options of TLS and SASL that the settings of a client make, which are texts by Kafka's keys here. Loads no
event loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.errors import ConfigException
from barnabas.runtime.sasl.options import PASSWORD_KEY, USERNAME_KEY, ClientSaslOptions, SaslOptionsError
from barnabas.runtime.tls.options import TlsConfigError, TlsOptions

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""SASL mechanisms of a user name and a password."""

_OWN_KEYS = {"sasl.plain.username": USERNAME_KEY, "sasl.plain.password": PASSWORD_KEY}


def tls_options(values: Mapping[str, str]) -> TlsOptions:
    """Raises ConfigException."""
    try:
        return TlsOptions.of(values)
    except TlsConfigError as error:
        raise ConfigException(str(error)) from None


def sasl_options(values: Mapping[str, str]) -> ClientSaslOptions:
    """Raises ConfigException."""
    try:
        return ClientSaslOptions.of({_OWN_KEYS.get(key, key): value for key, value in values.items()})
    except SaslOptionsError as error:
        raise ConfigException(str(error)) from None
