"""Makes the contexts of OpenSSL for the two ends of a connection from options and stores."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from barnabas.runtime.tls.options import TlsConfigError, TlsOptions
from barnabas.runtime.tls.reasons import reason_of
from barnabas.runtime.tls.stores import KeyStore, ReadBytes, read_key_store, read_trust_store
from barnabas.runtime.tls.suites import openssl_name

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_MOST_FLIGHTS = 10
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The names in a certificate that a new one has to keep."""

    subject: x509.Name
    alternatives: frozenset[str]


@dataclass(frozen=True, slots=True)
class TlsContext:
    """A context of OpenSSL, and what it cannot express."""

    ssl: ssl.SSLContext
    suites: frozenset[str] = frozenset()
    """The allowed cipher suites of TLS 1.3, which OpenSSL does not let a program choose. Empty: all."""

    def allows(self, version: str | None, suite: str) -> bool:
        """False if a handshake ended with a suite of TLS 1.3 that is not listed."""
        return not self.suites or version != "TLSv1.3" or suite in self.suites


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts that were made of one reading of the stores."""

    server: TlsContext | None
    client: TlsContext | None
    names: CertificateNames | None
    """By the own certificate."""
    has_truststore: bool
    expires_ms: int | None
    """The end of the own certificate's validity."""


def make_contexts(options: TlsOptions, read_bytes: ReadBytes, now_ms: int, *, server: bool, client: bool) -> Contexts:
    """The contexts of the ends that are asked for. Raises TlsConfigError."""
    keys = read_key_store(options, read_bytes)
    trusted = read_trust_store(options, read_bytes)
    if keys is not None:
        _check_validity(keys.chain[0], now_ms)
    elif server:
        raise TlsConfigError("a listener with TLS needs a key store; set ssl.keystore.location or ssl.keystore.key")
    own = None if keys is None else keys.chain[0]
    accepting = _server_context(options, keys, trusted) if server else None
    dialling = _client_context(options, keys, trusted) if client else None
    if accepting is not None and dialling is not None:
        _check_mutual_trust(accepting.ssl, dialling.ssl)
    return Contexts(
        accepting,
        dialling,
        None if own is None else CertificateNames(own.subject, frozenset(_alternatives(own))),
        trusted is not None,
        None if own is None else _ms(own.not_valid_after_utc),
    )


def check_names(old: CertificateNames | None, new: CertificateNames | None, options: TlsOptions) -> None:
    """A new certificate has to be the same node's (KIP-978). Raises TlsConfigError."""
    if old is None or new is None:
        if (old is None) != (new is None):
            what = "removed from" if new is None else "added to"
            raise TlsConfigError(f"the key store cannot be {what} a running listener or channel; restart the node")
        return
    if not options.ssl_allow_dn_changes and _is_other(old.subject, new.subject):
        raise TlsConfigError(
            f"the subject of the new certificate is {new.subject.rfc4514_string()!r}, that of the old one "
            f"{old.subject.rfc4514_string()!r}; allowed: the same, unless ssl.allow.dn.changes=true"
        )
    missing = sorted(old.alternatives - new.alternatives)
    if not options.ssl_allow_san_changes and missing:
        raise TlsConfigError(
            f"the new certificate lacks the alternative names {', '.join(missing)}; allowed: all that the old one has, "
            "unless ssl.allow.san.changes=true"
        )


def _check_mutual_trust(accepting: ssl.SSLContext, dialling: ssl.SSLContext) -> None:
    """Nodes with the same options must be able to connect to each other. Raises TlsConfigError."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    checks_names = dialling.check_hostname
    dialling.check_hostname = False  # which name another node has is not known here
    try:
        client, server = dialling.wrap_bio(back, there), accepting.wrap_bio(there, back, server_side=True)
        for _ in range(_MOST_FLIGHTS):
            if sum([_advanced(client), _advanced(server)]) == 2:
                return
    except ssl.SSLError as error:
        raise TlsConfigError(
            f"a node with these certificates could not connect to one with the same: {reason_of(error)}"
        ) from error
    finally:
        dialling.check_hostname = checks_names
    raise AssertionError("a handshake ends, or it fails")


def _advanced(end: ssl.SSLObject) -> bool:
    """True if the handshake is over at this end."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _is_other(old: x509.Name, new: x509.Name) -> bool:
    return old != new and old.rfc4514_string().lower() != new.rfc4514_string().lower()


def _server_context(
    options: TlsOptions, keys: KeyStore | None, trusted: tuple[x509.Certificate, ...] | None
) -> TlsContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY[options.ssl_client_auth]
    return _completed(context, options, keys, trusted, options.ssl_enabled_protocols)


def _client_context(
    options: TlsOptions, keys: KeyStore | None, trusted: tuple[x509.Certificate, ...] | None
) -> TlsContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(options.ssl_endpoint_identification_algorithm)
    versions = options.ssl_enabled_protocols
    if options.ssl_protocol == "TLSv1.2":
        versions = tuple(each for each in versions if each == "TLSv1.2")
        if not versions:
            raise TlsConfigError("ssl.protocol=TLSv1.2 allows none of ssl.enabled.protocols; allowed: TLSv1.2 in both")
    return _completed(context, options, keys, trusted, versions)


def _completed(
    context: ssl.SSLContext,
    options: TlsOptions,
    keys: KeyStore | None,
    trusted: tuple[x509.Certificate, ...] | None,
    versions: tuple[str, ...],
) -> TlsContext:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    suites = _choose_suites(context, options)
    if suites.new is not None:
        versions = tuple(each for each in versions if (suites.new if each == "TLSv1.3" else suites.has_old))
        if not versions:
            raise TlsConfigError("ssl.cipher.suites has no suite of a version of ssl.enabled.protocols")
    chosen = sorted(_VERSIONS[each] for each in versions)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    # As in Java, every certificate of the trust store is trusted, not only roots.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_TRUSTED_FIRST
    try:
        if trusted is not None:
            context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in trusted))
        elif context.verify_mode != ssl.CERT_NONE:
            context.load_default_certs(
                ssl.Purpose.SERVER_AUTH if context.protocol == ssl.PROTOCOL_TLS_CLIENT else ssl.Purpose.CLIENT_AUTH
            )
        if keys is not None:
            with readable(keys.key_pem + keys.chain_pem) as path:
                context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise TlsConfigError(f"OpenSSL refuses the certificates: {error.reason or error}") from error
    return TlsContext(context, frozenset(suites.new or ()))


@dataclass(frozen=True, slots=True)
class _Suites:
    has_old: bool
    new: tuple[str, ...] | None
    """Suites of TLS 1.3; None if all suites are allowed."""


def _choose_suites(context: ssl.SSLContext, options: TlsOptions) -> _Suites:
    if not options.ssl_cipher_suites:
        return _Suites(True, None)
    every = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    every.set_ciphers("ALL:COMPLEMENTOFALL")
    versions = {each["name"]: each["protocol"] for each in every.get_ciphers()}
    names = []
    for name in options.ssl_cipher_suites:
        names.append(openssl_name(name))
        if names[-1] not in versions:
            raise TlsConfigError(f"ssl.cipher.suites: {name!r} is not a cipher suite of this machine's OpenSSL")
    old = [name for name in names if versions[name] != "TLSv1.3"]
    if old:
        context.set_ciphers(":".join(old))
    # OpenSSL's own order has the strongest suite of TLS 1.3 first, and most lists name that one.
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    return _Suites(bool(old), tuple(name for name in names if versions[name] == "TLSv1.3"))


@contextmanager
def readable(contents: bytes) -> Iterator[str]:
    """A path of a file with `contents`, because OpenSSL's context wants a path. On Linux it is on no disk."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as named:  # only the user may read it
            named.write(contents)
            named.flush()
            yield named.name
        return
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, contents)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _check_validity(certificate: x509.Certificate, now_ms: int) -> None:
    name = certificate.subject.rfc4514_string()
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now_ms > _ms(end):
        raise TlsConfigError(f"the certificate of {name!r} has expired on {end:%Y-%m-%d %H:%M} UTC")
    if now_ms < _ms(begin):
        raise TlsConfigError(f"the certificate of {name!r} is not valid before {begin:%Y-%m-%d %H:%M} UTC")


def _ms(moment: datetime) -> int:
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _alternatives(certificate: x509.Certificate) -> Iterator[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    for each in names:
        yield f"{type(each).__name__.removesuffix('Name')}:{each.value}"
