"""Core: settings that secure the connections of a client, by TLS and SASL. Names and defaults are Kafka's.

Secrets show as asterisks, also in errors. Settings of SASL without a SASL protocol, and of TLS without SSL, are ignored
as in Kafka.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from barnabas.client.errors import ConfigException
from barnabas.client.security_options import PASSWORD_MECHANISMS

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = (*PASSWORD_MECHANISMS, "OAUTHBEARER", "GSSAPI")

_LISTS = ("ssl_cipher_suites", "ssl_enabled_protocols")


class SecuritySettings(BaseModel):
    """The part of every client's settings that secures its connections."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

    sasl_mechanism: str = "GSSAPI"
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI."""
    sasl_jaas_config: SecretStr | None = None
    """A login module with its options: `…ScramLoginModule required username="alice" password="…";`."""
    sasl_plain_username: str | None = Field(None, min_length=1)
    """In place of `sasl_jaas_config`, for PLAIN and SCRAM. Not a setting of Kafka."""
    sasl_plain_password: SecretStr | None = None
    """In place of `sasl_jaas_config`, for PLAIN and SCRAM. Not a setting of Kafka."""
    sasl_login_callback_handler_class: Any = None
    """For OAUTHBEARER: a function without parameters that returns a token; it may be `async`."""
    sasl_login_connect_timeout_ms: int | None = Field(None, gt=0)
    sasl_login_read_timeout_ms: int | None = Field(None, gt=0)
    sasl_login_retry_backoff_ms: int = Field(100, ge=0)
    sasl_login_retry_backoff_max_ms: int = Field(10_000, ge=0)
    sasl_login_refresh_window_factor: float = Field(0.8, ge=0.5, le=1.0)
    sasl_login_refresh_window_jitter: float = Field(0.05, ge=0.0, le=0.25)
    sasl_login_refresh_min_period_seconds: int = Field(60, ge=0, le=900)
    sasl_login_refresh_buffer_seconds: int = Field(300, ge=0, le=3_600)
    sasl_kerberos_service_name: str | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    """`https://…` of the token endpoint, or `file:///…` of a token."""
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: SecretStr | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_scope_claim_name: str = "scope"
    sasl_oauthbearer_sub_claim_name: str = "sub"
    sasl_oauthbearer_header_urlencode: bool = False
    sasl_oauthbearer_jwt_retriever_class: str | None = None
    sasl_oauthbearer_assertion_file: str | None = None
    """A file with an assertion (RFC 7523), in place of the client's secret. Or one is made by the settings below."""
    sasl_oauthbearer_assertion_algorithm: str = "RS256"
    sasl_oauthbearer_assertion_private_key_file: str | None = None
    """PEM."""
    sasl_oauthbearer_assertion_private_key_passphrase: SecretStr | None = None
    sasl_oauthbearer_assertion_template_file: str | None = None
    """JSON with `header` and `payload`."""
    sasl_oauthbearer_assertion_claim_aud: str | None = None
    sasl_oauthbearer_assertion_claim_iss: str | None = None
    sasl_oauthbearer_assertion_claim_sub: str | None = None
    sasl_oauthbearer_assertion_claim_exp_seconds: int = Field(300, ge=0, le=86_400)
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = Field(60, ge=0, le=3_600)
    sasl_oauthbearer_assertion_claim_jti_include: bool = False

    ssl_protocol: str = "TLSv1.3"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = ()
    """Empty: those of the TLS library."""
    ssl_endpoint_identification_algorithm: str = "https"
    """`https`: the server's certificate must have the name that was dialled; empty: it need not."""
    ssl_keystore_type: str = "JKS"
    """PEM, PKCS12 or JKS."""
    ssl_keystore_location: str | None = None
    ssl_keystore_password: SecretStr | None = None
    ssl_keystore_key: SecretStr | None = None
    """The client's private key as PEM text."""
    ssl_keystore_certificate_chain: SecretStr | None = None
    """The client's certificate and those of its issuers as PEM text."""
    ssl_key_password: SecretStr | None = None
    ssl_truststore_type: str = "JKS"
    """PEM, PKCS12 or JKS."""
    ssl_truststore_location: str | None = None
    ssl_truststore_password: SecretStr | None = None
    ssl_truststore_certificates: SecretStr | None = None
    """The certificates of trusted issuers as PEM text."""

    @field_validator("security_protocol", mode="before")
    @classmethod
    def _known_protocol(cls, value: object) -> object:
        if not isinstance(value, str) or value.upper() not in SECURITY_PROTOCOLS:
            raise ValueError("must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
        return value.upper()

    @field_validator("ssl_endpoint_identification_algorithm", mode="before")
    @classmethod
    def _known_identification(cls, value: object) -> object:
        value = "" if value is None else value
        if not isinstance(value, str) or value.lower() not in ("", "https"):
            raise ValueError("must be https or empty")
        return value.lower()

    @field_validator("sasl_login_callback_handler_class")
    @classmethod
    def _token_function(cls, value: object) -> object:
        if isinstance(value, str) and value.endswith(".OAuthBearerLoginCallbackHandler"):
            return None  # Kafka's own: tokens come from the file or endpoint that other settings name
        if value is not None and not callable(value):
            raise ValueError("must be a function that returns a token")
        return value

    @field_validator(*_LISTS, mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, Sequence):
            return parts
        return tuple(part.strip() if isinstance(part, str) else part for part in parts if part != "")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        for name in ("sasl_plain_username", "sasl_plain_password"):
            if getattr(self, name) is None:
                continue
            if not self.authenticates:
                raise ValueError(
                    f"{name} needs security_protocol SASL_PLAINTEXT or SASL_SSL; got {self.security_protocol}"
                )
            if self.sasl_mechanism not in PASSWORD_MECHANISMS:
                raise ValueError(
                    f"{name} needs sasl_mechanism {', '.join(PASSWORD_MECHANISMS[:-1])} or {PASSWORD_MECHANISMS[-1]}; "
                    f"got {self.sasl_mechanism}"
                )
            if self.sasl_jaas_config is not None:
                raise ValueError(f"{name} and sasl_jaas_config exclude each other; got both")
        if not self.authenticates:
            return self
        if self.sasl_mechanism not in MECHANISMS:
            raise ValueError(
                f"sasl_mechanism must be {', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}; got {self.sasl_mechanism!r}"
            )
        if (self.sasl_plain_username is None) != (self.sasl_plain_password is None):
            there, lacking = ("username", "password") if self.sasl_plain_password is None else ("password", "username")
            raise ValueError(f"sasl_plain_{there} needs sasl_plain_{lacking}; got none")
        needs_password = self.sasl_mechanism in PASSWORD_MECHANISMS and self.sasl_plain_username is None
        if needs_password and self.sasl_jaas_config is None:
            raise ValueError(
                f"{self.sasl_mechanism} needs sasl_jaas_config, or sasl_plain_username and sasl_plain_password; "
                "got neither"
            )
        return self

    @property
    def encrypts(self) -> bool:
        """True if connections use TLS."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def authenticates(self) -> bool:
        """True if connections use SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def values_under(self, prefix: str) -> dict[str, str]:
        """The settings whose name in Kafka begins with `prefix` and that have a value, as texts, secrets included."""
        every = self._values(SecuritySettings.model_fields)
        return {key: value for key, value in every.items() if key.startswith(prefix)}

    def given_values(self) -> dict[str, str]:
        """The settings that were given, by their names in Kafka, as texts, secrets included."""
        return self._values(self.model_fields_set & set(SecuritySettings.model_fields))

    def _values(self, names: Iterable[str]) -> dict[str, str]:
        values = {name.replace("_", "."): getattr(self, name) for name in names}
        return {key: _text(value) for key, value in values.items() if value is not None and not callable(value)}

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The settings from keyword arguments. ConfigException: the setting, what is allowed, and the value."""
        try:
            return cls(**options)
        except ValidationError as error:
            raise ConfigException("; ".join(cls._describe(each) for each in error.errors())) from None

    @classmethod
    def _describe(cls, error: Any) -> str:
        name = ".".join(str(part) for part in error["loc"]) or "settings"
        if error["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name.replace(".", "_"), cls.model_fields, n=1)
            return f"unknown setting {name}" + (f"; did you mean {near[0]}?" if near else "")
        if error["type"] == "missing":
            return f"{name} is missing"
        reason = str(error["msg"]).removeprefix("Value error, ")
        if name == "settings":
            return reason
        if error["type"] == "string_pattern_mismatch":
            *others, last = error["ctx"]["pattern"].strip("^()$").split("|")
            reason = f"must be {', '.join(others)} or {last}"
        reason = re.sub("^(Input|String) should", "must", reason)
        if name in SECRETS:
            return f"{name} {reason}"
        return f"{name} {reason}" + ("" if "; got " in reason else f"; got {error['input']!r}")


NO_SECURITY = SecuritySettings()  # type: ignore[call-arg]  # every field has a default


SECRETS = frozenset(
    name for name, field in SecuritySettings.model_fields.items() if "SecretStr" in str(field.annotation)
)
"""Settings whose values never appear in an error, a log or a plan."""


def _text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)
