"""Core: the options of TLS, named as Kafka's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

VERSIONS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("JKS", "PKCS12", "PEM")
CLIENT_AUTH = ("none", "requested", "required")

_OWN_ENGINES = ("DefaultSslEngineFactory", "CommonNameLoggingSslEngineFactory")


class TlsConfigError(Exception):
    """Options, or the files that they name, that cannot be used. The text is one line, and contains no secret."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The options of one listener or of one kind of outgoing connection."""

    ssl_keystore_type: str = "JKS"
    ssl_keystore_location: str = ""
    ssl_keystore_password: str | None = field(default=None, repr=False)
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)
    """A private key in PEM (KIP-651)."""
    ssl_keystore_certificate_chain: str | None = field(default=None, repr=False)
    ssl_truststore_type: str = "JKS"
    ssl_truststore_location: str = ""
    ssl_truststore_password: str | None = field(default=None, repr=False)
    ssl_truststore_certificates: str | None = field(default=None, repr=False)
    ssl_protocol: str = "TLSv1.3"
    """The highest version of outgoing connections."""
    ssl_enabled_protocols: tuple[str, ...] = VERSIONS
    ssl_cipher_suites: tuple[str, ...] = ()
    """Names of Java or of OpenSSL. Empty: all. Python cannot choose among the suites of TLS 1.3: a handshake that ends
    with one that is not listed fails."""
    ssl_endpoint_identification_algorithm: str = "https"
    """Empty: the name of the server is not compared with its certificate."""
    ssl_client_auth: str = "none"
    ssl_principal_mapping_rules: str = "DEFAULT"
    ssl_allow_dn_changes: bool = False
    """Another keystore may have another name as its subject."""
    ssl_allow_san_changes: bool = False
    """Another keystore may lack alternative names that this one has."""

    @classmethod
    def of(cls, values: Mapping[str, str]) -> TlsOptions:
        """The options among `values`, which are texts by Kafka's keys. Raises TlsConfigError."""
        _refuse_foreign_engines(values)
        secrets = {
            key: values.get(_kafka_key(key))
            for key in (
                "ssl_keystore_password",
                "ssl_key_password",
                "ssl_keystore_key",
                "ssl_keystore_certificate_chain",
                "ssl_truststore_password",
                "ssl_truststore_certificates",
            )
        }
        return cls(
            ssl_keystore_type=_one_of(values, "ssl.keystore.type", "JKS", STORE_TYPES),
            ssl_keystore_location=values.get("ssl.keystore.location", "").strip(),
            ssl_truststore_type=_one_of(values, "ssl.truststore.type", "JKS", STORE_TYPES),
            ssl_truststore_location=values.get("ssl.truststore.location", "").strip(),
            ssl_protocol=_one_of(values, "ssl.protocol", "TLSv1.3", (*VERSIONS, "TLS")),
            ssl_enabled_protocols=_protocols(values),
            ssl_cipher_suites=_list(values, "ssl.cipher.suites"),
            ssl_endpoint_identification_algorithm=_one_of(
                values, "ssl.endpoint.identification.algorithm", "https", ("https", "")
            ),
            ssl_client_auth=_one_of(values, "ssl.client.auth", "none", CLIENT_AUTH),
            ssl_principal_mapping_rules=values.get("ssl.principal.mapping.rules", "DEFAULT"),
            ssl_allow_dn_changes=_one_of(values, "ssl.allow.dn.changes", "false", ("true", "false")) == "true",
            ssl_allow_san_changes=_one_of(values, "ssl.allow.san.changes", "false", ("true", "false")) == "true",
            **secrets,
        )

    @property
    def has_truststore(self) -> bool:
        return bool(self.ssl_truststore_location) or self.ssl_truststore_certificates is not None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that these options name."""
        return tuple(filter(None, (self.ssl_keystore_location, self.ssl_truststore_location)))

    def reconfigured(self, values: Mapping[str, str]) -> TlsOptions:
        """These options with the stores of `values`; the other options can change only with a restart. Raises
        TlsConfigError."""
        fresh = TlsOptions.of(values)
        stores = {
            each.name: getattr(fresh, each.name)
            for each in fields(TlsOptions)
            if each.name.startswith(("ssl_keystore_", "ssl_truststore_", "ssl_key_"))
        }
        return replace(self, **stores)


def _kafka_key(name: str) -> str:
    return name.replace("_", ".")


def _list(values: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in values.get(key, "").split(","))))


def _protocols(values: Mapping[str, str]) -> tuple[str, ...]:
    protocols = _list(values, "ssl.enabled.protocols") or VERSIONS
    for each in protocols:
        if each not in VERSIONS:
            raise _not_allowed("ssl.enabled.protocols", each, VERSIONS)
    return protocols


def _one_of(values: Mapping[str, str], key: str, default: str, allowed: tuple[str, ...]) -> str:
    """The value in the spelling of `allowed`."""
    text = values.get(key, default).strip()
    if not text and "" not in allowed:
        return default
    for each in allowed:
        if each.lower() == text.lower():
            return each
    raise _not_allowed(key, text, allowed)


def _not_allowed(key: str, value: str, allowed: tuple[str, ...]) -> TlsConfigError:
    choice = ", ".join(each or "empty" for each in allowed)
    return TlsConfigError(f"{key}={value!r} is not supported; allowed: {choice}")


def _refuse_foreign_engines(values: Mapping[str, str]) -> None:
    engine = values.get("ssl.engine.factory.class", "").strip()
    if engine and engine.rpartition(".")[2] not in _OWN_ENGINES:
        raise TlsConfigError(f"ssl.engine.factory.class={engine!r} is not supported; allowed: unset")
