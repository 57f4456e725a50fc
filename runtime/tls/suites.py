"""Core: cipher suites of Java by their OpenSSL names."""

from __future__ import annotations

import re

_SUITE = re.compile(r"(?:TLS|SSL)_(?P<exchange>[A-Z0-9_]+?)_WITH_(?P<cipher>.+)")
_SIZED = re.compile(r"(AES|CAMELLIA|ARIA)_(128|256)")


def openssl_name(name: str) -> str:
    """The OpenSSL name of a suite: `TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA` is `ECDHE-RSA-AES128-SHA`. Names of TLS 1.3
    and names of OpenSSL stay as they are."""
    suite = _SUITE.fullmatch(name)
    if suite is None:
        return name
    cipher = _SIZED.sub(r"\1\2", suite["cipher"]).replace("_CBC_", "_")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    exchange = "" if suite["exchange"] == "RSA" else suite["exchange"] + "_"
    return (exchange + cipher).replace("_", "-")
