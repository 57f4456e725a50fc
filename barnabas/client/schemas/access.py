"""The address of a registry, its login and its certificates, from the settings of a client. Reads files."""

from __future__ import annotations

import base64
import re
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import SecretStr

from barnabas.client.errors import ConfigException
from barnabas.client.schemas.lookup import RegistryLookup
from barnabas.client.security_options import PASSWORD_MECHANISMS, sasl_options, tls_options
from barnabas.client.security_settings import SecuritySettings
from barnabas.protocol.sasl.plain import LOGIN_MODULE as PLAIN_LOGIN_MODULE
from barnabas.protocol.sasl.plain import PLAIN
from barnabas.protocol.sasl.scram_credentials import LOGIN_MODULE as SCRAM_LOGIN_MODULE
from barnabas.runtime.sasl.options import SaslOptionsError
from barnabas.runtime.tls.options import TlsConfigError

PREFIX = "schema_registry_"
SOURCES = ("URL", "USER_INFO", "SASL_INHERIT")
_NO_TOKEN = re.compile(r"[^!-~]")


def registry_of(settings: Mapping[str, Any], setting: str) -> RegistryLookup:
    """`setting` needs the registry. Raises ConfigException."""
    text = settings.get(f"{PREFIX}url") or ""
    urls = [each.strip() for each in text.split(",") if each.strip()]
    if not urls or not all(each.startswith(("http://", "https://")) for each in urls):
        raise ConfigException(
            f"{setting} needs schema_registry_url, such as http://127.0.0.1:8081; got {shown(text)!r}"
        )
    authorization = _authorization(settings, urls)
    tls = _tls(settings) if any(each.startswith("https://") for each in urls) else None
    return RegistryLookup([_without_user(each) for each in urls], authorization, tls)


def _authorization(settings: Mapping[str, Any], urls: list[str]) -> str:
    """The header; empty if there is none."""
    token = settings.get(f"{PREFIX}bearer_auth_token") or ""
    if token:
        if _NO_TOKEN.search(token):
            raise ConfigException("schema_registry_bearer_auth_token must be ASCII without spaces")
        return f"Bearer {token}"
    info = _user_info(settings, urls)
    if not info:
        return ""
    if ":" not in info:
        raise ConfigException("schema_registry_basic_auth_user_info must be user:password; the colon is missing")
    return "Basic " + base64.b64encode(info.encode()).decode()


def _user_info(settings: Mapping[str, Any], urls: list[str]) -> str:
    given: str = settings.get(f"{PREFIX}basic_auth_user_info") or ""
    source = settings.get(f"{PREFIX}basic_auth_credentials_source") or ("USER_INFO" if given else "URL")
    if source not in SOURCES:
        raise ConfigException(
            f"schema_registry_basic_auth_credentials_source must be {', '.join(SOURCES[:-1])} or {SOURCES[-1]}; "
            f"got {source!r}"
        )
    if source == "USER_INFO":
        if not given:
            raise ConfigException(
                "schema_registry_basic_auth_credentials_source USER_INFO needs schema_registry_basic_auth_user_info"
            )
        return given
    if source == "URL":
        return next((unquote(urlsplit(each).netloc.rpartition("@")[0]) for each in urls if "@" in each), "")
    return _user_of_sasl(settings)


def _user_of_sasl(settings: Mapping[str, Any]) -> str:
    fields = {name: settings[name] for name in SecuritySettings.model_fields if name in settings}
    security = SecuritySettings.of({name: value for name, value in fields.items() if value is not None})
    if not security.authenticates or security.sasl_mechanism not in PASSWORD_MECHANISMS:
        raise ConfigException(
            "schema_registry_basic_auth_credentials_source SASL_INHERIT needs a connection to Kafka by "
            f"{', '.join(PASSWORD_MECHANISMS[:-1])} or {PASSWORD_MECHANISMS[-1]}"
        )
    wanted = PLAIN_LOGIN_MODULE if security.sasl_mechanism == PLAIN else SCRAM_LOGIN_MODULE
    try:
        return ":".join(sasl_options(security.values_under("sasl.")).credentials(wanted))
    except SaslOptionsError as error:
        raise ConfigException(str(error)) from None


def _tls(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """None: the issuers that the system trusts."""
    values = {
        name.removeprefix(PREFIX).replace("_", "."): _text(value)
        for name, value in settings.items()
        if name.startswith(f"{PREFIX}ssl_") and value is not None
    }
    options = tls_options(values)
    if not options.files and not options.has_truststore and options.ssl_endpoint_identification_algorithm:
        return None
    from barnabas.runtime.tls.contexts import make_contexts

    now_ms = int(time.time() * 1000)
    try:
        contexts = make_contexts(options, lambda path: Path(path).read_bytes(), now_ms, server=False, client=True)
    except TlsConfigError as error:
        raise ConfigException(f"schema registry: {error}") from None
    assert contexts.client is not None
    return contexts.client.ssl


def _text(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def shown(urls: str) -> str:
    """Addresses without users and passwords."""
    return re.sub(r"//[^/@,]*@", "//", urls)
