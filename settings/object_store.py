"""The settings of the object store behind tiered storage: its address, credentials, times.

Keys that Kafka does not have, as Kafka leaves the store to a plug-in. Passwords show in no `repr`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

STORE_PREFIX = "barnabas.remote.store."

STORE_URL = STORE_PREFIX + "url"
STORE_ENDPOINT = STORE_PREFIX + "endpoint"
STORE_REGION = STORE_PREFIX + "region"
STORE_ACCESS_KEY = STORE_PREFIX + "access.key"
STORE_SECRET_KEY = STORE_PREFIX + "secret.key"
STORE_TIMEOUT = STORE_PREFIX + "timeout.ms"
STORE_RETRIES = STORE_PREFIX + "retries"
STORE_VERIFY = STORE_PREFIX + "verify"

Verify = Literal["checksum", "full"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """An object store and how to reach it."""

    url: str
    """`file:///path` or `s3://bucket/prefix`."""
    endpoint: str | None = None
    """`http://host:port` of an S3 server other than Amazon's."""
    region: str = "us-east-1"
    access_key: str | None = field(default=None, repr=False)
    """None, and no secret key: credentials come from the environment, as in the tools of Amazon."""
    secret_key: str | None = field(default=None, repr=False)
    timeout_ms: int = 30_000
    """For one request over the network."""
    retries: int = 3
    """Further attempts of a request that failed in a way that may pass."""
    verify: Verify = "checksum"
    """How a stored object is proven: the checksum of the store is compared, or all bytes are read back."""
