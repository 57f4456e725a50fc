"""The metrics of TLS: handshakes under way, changed certificates, and when they expire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.runtime.families import Family
from barnabas.runtime.tls.listener import TlsListenerSecurity
from barnabas.runtime.tls.reload import TlsHolder


def handshake_families(listeners: Mapping[str, TlsListenerSecurity]) -> Iterator[Family]:
    """`listeners` by name."""
    under_way = [((name,), security.handshakes_under_way) for name, security in listeners.items()]
    yield Family("gauge", "barnabas_tls_handshakes", "TLS handshakes under way.", ("listener",), under_way)


def certificate_families(holders: Mapping[str, TlsHolder]) -> Iterator[Family]:
    """`holders` by the name of a listener or of a kind of channels."""
    label = ("name",)
    expiries = [((name,), held.expires_ms / 1000) for name, held in holders.items() if held.expires_ms is not None]
    text = "The end of the own certificate's validity, in s since 1970."
    yield Family("gauge", "barnabas_tls_certificate_expiry_seconds", text, label, expiries)
    reloads = [((name,), held.reloads) for name, held in holders.items()]
    yield Family("counter", "barnabas_tls_reloads", "Changed certificates that are in use.", label, reloads)
    failures = [((name,), held.failed_reloads) for name, held in holders.items()]
    yield Family("counter", "barnabas_tls_failed_reloads", "Changed files that cannot be used.", label, failures)
