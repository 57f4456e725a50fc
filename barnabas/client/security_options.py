"""Core: the options of TLS and SASL that the settings of a client make. Loads no event loop."""

from __future__ import annotations

from barnabas.client.errors import ConfigException
from barnabas.client.security_settings import SecuritySettings
from barnabas.runtime.sasl.options import PASSWORD_KEY, USERNAME_KEY, ClientSaslOptions, SaslOptionsError
from barnabas.runtime.tls.options import TlsConfigError, TlsOptions


def tls_options(settings: SecuritySettings) -> TlsOptions:
    """Raises ConfigException."""
    try:
        return TlsOptions.of(settings.values_under("ssl."))
    except TlsConfigError as error:
        raise ConfigException(str(error)) from None


def sasl_options(settings: SecuritySettings) -> ClientSaslOptions:
    """Raises ConfigException."""
    values = settings.values_under("sasl.")
    if settings.sasl_plain_username is not None and settings.sasl_plain_password is not None:
        values[USERNAME_KEY] = settings.sasl_plain_username
        values[PASSWORD_KEY] = settings.sasl_plain_password.get_secret_value()
    try:
        return ClientSaslOptions.of(values)
    except SaslOptionsError as error:
        raise ConfigException(str(error)) from None
