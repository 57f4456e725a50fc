"""The settings of the object store of tiered storage: its address, credentials, times.

Kafka leaves the store to a plug-in, so these keys are ours; its own LocalTieredStorage names a directory, too.
Passwords show in no `repr`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from barnabas.settings.errors import SettingsError

_PREFIX = "barnabas.remote.store."
STORE_URL = _PREFIX + "url"
STORE_ENDPOINT = _PREFIX + "endpoint"
STORE_REGION = _PREFIX + "region"
STORE_ACCESS_KEY = _PREFIX + "access.key"
STORE_SECRET_KEY = _PREFIX + "secret.key"
STORE_TIMEOUT = _PREFIX + "timeout.ms"
STORE_RETRIES = _PREFIX + "retries"
STORE_VERIFY = _PREFIX + "verify"

KEYS_OF_STORE = frozenset(
    {
        STORE_URL,
        STORE_ENDPOINT,
        STORE_REGION,
        STORE_ACCESS_KEY,
        STORE_SECRET_KEY,
        STORE_TIMEOUT,
        STORE_RETRIES,
        STORE_VERIFY,
    }
)

LOCAL_TIERED_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
"""The plug-in in the test jar of Kafka's storage."""
_LOCAL_ROOT = "kafka-tiered-storage"
"""The directory that it makes below its `dir`."""
_MANAGER_CLASS = "remote.log.storage.manager.class.name"
_MANAGER_PREFIX = "remote.log.storage.manager.impl.prefix"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_URLS = "file:///path or s3://bucket/prefix"
_SECRET = "[hidden]"

Verify = Literal["checksum", "full"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """An object store and how to reach it. Raises `SettingsError` for values that make no sense."""

    url: str
    """`file:///path` or `s3://bucket/prefix`."""
    endpoint: str | None = None
    """`http://host:port` of an S3 server other than Amazon's."""
    region: str = "us-east-1"
    access_key: str | None = field(default=None, repr=False)
    """None, and no secret key: credentials come from the environment, as in Amazon's tools."""
    secret_key: str | None = field(default=None, repr=False)
    timeout_ms: int = 30_000
    """Timeout of one request over the network."""
    retries: int = 3
    """Further attempts of a request that failed in a way that may pass."""
    verify: Verify = "checksum"
    """The way in which a stored object is proven: compare the store's checksum, or read all bytes back."""
    creates_directory: bool = False
    """The directory is made if it is missing, as Kafka's LocalTieredStorage does."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
                raise SettingsError("not the URL of a directory", STORE_URL, self.url, _URLS)
        elif parts.scheme != "s3" or parts.query or parts.fragment:
            shown = _SECRET if parts.username or parts.password else self.url
            raise SettingsError("not the URL of a store", STORE_URL, shown, _URLS)
        elif parts.username or parts.password:
            problem = f"credentials do not belong into the URL; set {STORE_ACCESS_KEY} and {STORE_SECRET_KEY}"
            raise SettingsError(problem, STORE_URL, _SECRET, _URLS)
        elif not _BUCKET.fullmatch(parts.netloc):
            raise SettingsError("not the name of a bucket", STORE_URL, self.url, _URLS)
        if (self.access_key is None) != (self.secret_key is None):
            pair = (STORE_ACCESS_KEY, STORE_SECRET_KEY)
            given, lacking = pair if self.secret_key is None else reversed(pair)
            raise SettingsError(f"set {lacking}, too", given, _SECRET)
        if self.endpoint is not None:
            endpoint = urlsplit(self.endpoint)
            if endpoint.scheme not in ("http", "https") or not endpoint.hostname or endpoint.username:
                shown = _SECRET if endpoint.username else self.endpoint
                raise SettingsError("not the address of an S3 server", STORE_ENDPOINT, shown, "http(s)://host:port")

    @property
    def is_directory(self) -> bool:
        return self.url.startswith("file:")

    @property
    def directory(self) -> str:
        return unquote(urlsplit(self.url).path)

    @property
    def bucket(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def prefix(self) -> str:
        """The first part of all keys in the bucket, without slashes at its ends."""
        return unquote(urlsplit(self.url).path).strip("/")


def store_settings(raw: Mapping[str, str]) -> StoreSettings | None:
    """The store that the keys of a node name; None: none of them does. Raises `SettingsError` without a place."""
    values = {key: raw[key].strip() for key in KEYS_OF_STORE if raw.get(key, "").strip()}
    if STORE_URL not in values:
        return _local_tiered_storage(raw)
    verify = values.get(STORE_VERIFY, "checksum")
    if verify not in ("checksum", "full"):
        raise SettingsError("not a way to verify", STORE_VERIFY, verify, "checksum or full")
    return StoreSettings(
        url=values[STORE_URL],
        endpoint=values.get(STORE_ENDPOINT),
        region=values.get(STORE_REGION, "us-east-1"),
        access_key=values.get(STORE_ACCESS_KEY),
        secret_key=values.get(STORE_SECRET_KEY),
        timeout_ms=_whole_number(values, STORE_TIMEOUT, 30_000, 100, 600_000),
        retries=_whole_number(values, STORE_RETRIES, 3, 0, 20),
        verify="full" if verify == "full" else "checksum",
    )


def _local_tiered_storage(raw: Mapping[str, str]) -> StoreSettings | None:
    """The directory of Kafka's own plug-in, if the file names it."""
    if raw.get(_MANAGER_CLASS, "").strip() != LOCAL_TIERED_STORAGE:
        return None
    key = raw.get(_MANAGER_PREFIX, "rsm.config.").strip() + "dir"
    directory = raw.get(key, "").strip()
    if not directory.startswith("/"):
        raise SettingsError("must be set", key, directory or None, "the path of a directory, from /")
    return StoreSettings(f"file://{quote(directory.rstrip('/'))}/{_LOCAL_ROOT}", creates_directory=True)


def _whole_number(values: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    text = values.get(key, str(default))
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise SettingsError("not a whole number in range", key, text, f"{least} to {most}")
    return int(text)
