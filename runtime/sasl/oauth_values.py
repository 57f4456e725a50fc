"""The texts of settings of OAUTHBEARER that listeners and clients share."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from barnabas.runtime.world import Disk
from barnabas.settings.errors import SettingsError
from barnabas.settings.oauth import ALLOWED_FILES, ALLOWED_URLS

PREFIX = "sasl.oauthbearer."
KAFKAS = "org.apache.kafka.common.security.oauthbearer"
"""The package of Kafka's classes."""


def of_mechanism(values: Mapping[str, str]) -> dict[str, str]:
    """The values of a listener as they hold for this mechanism: its own (`oauthbearer.sasl.…`) take precedence."""
    own = {key.removeprefix("oauthbearer."): text for key, text in values.items() if key.startswith("oauthbearer.")}
    return {**values, **own}


def check_class(values: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> str:
    """The name of one of Kafka's classes; empty if there is none. Raises SettingsError for other classes: Python cannot
    load them."""
    name = values.get(key, "").strip()
    if name and name not in allowed:
        raise SettingsError("a class that is not known here", key, name, ", ".join(allowed))
    return name


def check_url(key: str, url: str, allowed: str | None) -> None:
    """Raises SettingsError if `url` is not one of the allowed URLs, a list with commas; None: all are."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "file" or (parts.scheme in ("http", "https") and bool(parts.hostname))
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError("not a URL that can be used", key, url, "http://…, https://… or file:///…")
    if allowed is not None and url not in [each.strip() for each in allowed.split(",")]:
        raise SettingsError(f"the URL is not in {ALLOWED_URLS}", key, url, allowed or "none; add it there")


def check_file(values: Mapping[str, str], key: str, disk: Disk, allowed: str | None) -> str:
    """The path of a file that is there, and among the allowed ones, a list with commas; None: all are. Raises
    SettingsError."""
    path = values.get(key, "").strip()
    if not path:
        raise SettingsError("missing, and an assertion needs it", key)
    path = os.path.abspath(path)
    if allowed is not None and path not in [each.strip() for each in allowed.split(",")]:
        raise SettingsError(f"the file is not in {ALLOWED_FILES}", key, path, allowed or "none; add it there")
    if not disk.exists(path):
        raise SettingsError("no such file", key, path)
    if disk.is_directory(path):
        raise SettingsError("a directory, not a file", key, path)
    return path


def path_of(url: str) -> str | None:
    """The path of a file URL; None for other URLs."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def tls_of(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """TLS to the provider by the truststore (PEM) in the options of the login module; None: the authorities of the
    system. Raises SettingsError."""
    path = options.get("ssl.truststore.location", "").strip() or None
    text = options.get("ssl.truststore.certificates", "").strip() or None
    if path is None and text is None:
        return None
    try:
        return ssl.create_default_context(cafile=path, cadata=text)
    except (OSError, ValueError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else "not certificates in PEM form"
        raise SettingsError(
            reason, "ssl.truststore.location" if path else "ssl.truststore.certificates", path
        ) from None
