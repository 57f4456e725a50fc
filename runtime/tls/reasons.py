"""Core: the errors of OpenSSL in plain English, on one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

_ALERT = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_ALERT_(\w+)|(?:TLSV1|TLSV13)_(UNRECOGNIZED_NAME|UNSUPPORTED_EXTENSION)")

_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer sent no certificate, and ssl.client.auth is required",
    "NO_SHARED_CIPHER": "the peer offers no cipher suite that is enabled here (ssl.cipher.suites)",
    "UNSUPPORTED_PROTOCOL": "the peer offers no version of TLS that is enabled here (ssl.enabled.protocols)",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS, or no version that is enabled here (ssl.enabled.protocols)",
    "HTTP_REQUEST": "the peer speaks HTTP without TLS",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "a record was damaged on its way",
}

_ALERTS = {
    "UNKNOWN_CA": "the peer does not trust our certificate (alert unknown ca)",
    "CERTIFICATE_UNKNOWN": "the peer does not trust our certificate (alert certificate unknown)",
    "BAD_CERTIFICATE": "the peer refused our certificate, or wants one (alert bad certificate)",
    "CERTIFICATE_EXPIRED": "the peer says that our certificate has expired",
    "CERTIFICATE_REQUIRED": "the peer wants a certificate (ssl.keystore.*), and we sent none",
    "PROTOCOL_VERSION": "the peer speaks TLS, but no version that is enabled here (ssl.enabled.protocols)",
    "HANDSHAKE_FAILURE": "the peer agrees to no cipher suite of ours, or wants a certificate (alert handshake failure)",
}


def reason_of(error: ssl.SSLError) -> str:
    """The reason of a failure."""
    verification = getattr(error, "verify_message", "")
    if verification:
        return f"the peer's certificate was refused: {verification.rstrip('.')}"
    reason = error.reason or ""
    alert = _ALERT.fullmatch(reason)
    if alert is not None:
        name = alert[1] or alert[2]
        return _ALERTS.get(name, f"the peer sent the alert {_words(name)}")
    return _REASONS.get(reason) or _words(reason) or "the peer broke off"


def _words(name: str) -> str:
    return name.lower().replace("_", " ")
