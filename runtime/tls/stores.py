"""Reads keys and certificates from PEM, PKCS12 and JKS, in files or in the options themselves.

The format of a file is found by its first bytes: a store named `.jks` is PKCS12 in most cases, and Java opens either
under both types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from barnabas.runtime.tls import jks
from barnabas.runtime.tls.options import TlsConfigError, TlsOptions

ReadBytes = Callable[[str], bytes]

_BLOCK = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----\s*((?:[A-Za-z-]+:[^\r\n]*[\r\n]+)*)([A-Za-z0-9+/=\s]*?)-----END \1-----"
)
_LINE_CHARS = 64


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key with its certificates, its own first."""

    key_pem: bytes = field(repr=False)
    """PKCS#8, not encrypted."""
    chain: tuple[x509.Certificate, ...]

    @property
    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)


def read_key_store(options: TlsOptions, read_bytes: ReadBytes) -> KeyStore | None:
    """The key store that `options` name; None if they name none. Raises TlsConfigError."""
    _check_key_store_options(options)
    if options.ssl_keystore_key is not None:
        chain = options.ssl_keystore_certificate_chain or ""
        return _pem_key_store(options.ssl_keystore_key, chain, options.ssl_key_password, "ssl.keystore.key")
    if not options.ssl_keystore_location:
        return None
    place = f"ssl.keystore.location={options.ssl_keystore_location}"
    data = _contents(options.ssl_keystore_location, place, read_bytes)
    if _is_pem(data) or options.ssl_keystore_type == "PEM":
        text = data.decode("ascii", errors="replace")
        return _pem_key_store(text, text, options.ssl_key_password, place)
    password = options.ssl_keystore_password
    if password is None:
        raise TlsConfigError(f"{place}: the key store has no password; set ssl.keystore.password")
    if data.startswith(jks.MAGICS):
        return _java_key_store(data, password, options.ssl_key_password, place)
    return _pkcs12_key_store(data, password, place)


def read_trust_store(options: TlsOptions, read_bytes: ReadBytes) -> tuple[x509.Certificate, ...] | None:
    """The trusted certificates that `options` name; None if they name none. Raises TlsConfigError."""
    if options.ssl_truststore_certificates is not None:
        if options.ssl_truststore_location:
            raise TlsConfigError("ssl.truststore.location and ssl.truststore.certificates are both set; allowed: one")
        return _certificates(options.ssl_truststore_certificates, "ssl.truststore.certificates")
    if not options.ssl_truststore_location:
        if options.ssl_truststore_password is not None:
            raise TlsConfigError("ssl.truststore.password is set, but ssl.truststore.location is not")
        return None
    place = f"ssl.truststore.location={options.ssl_truststore_location}"
    data = _contents(options.ssl_truststore_location, place, read_bytes)
    if _is_pem(data) or options.ssl_truststore_type == "PEM":
        return _certificates(data.decode("ascii", errors="replace"), place)
    password = options.ssl_truststore_password
    found: tuple[x509.Certificate, ...]
    if data.startswith(jks.MAGICS):
        try:
            store = jks.read_store(data, password)
        except jks.BadStore as error:
            raise TlsConfigError(f"{place}: {_of_password(str(error), 'ssl.truststore.password')}") from None
        found = tuple(_certificate(der, place) for der in store.certificates)
    else:
        _, own, others = _opened_pkcs12(data, password, place, "ssl.truststore.password")
        found = (*((own,) if own is not None else ()), *others)
    if not found:
        raise TlsConfigError(f"{place}: the store has no trusted certificate")
    return found


def _check_key_store_options(options: TlsOptions) -> None:
    """The combinations that Kafka refuses."""
    if options.ssl_keystore_key is not None:
        if options.ssl_keystore_certificate_chain is None:
            raise TlsConfigError("ssl.keystore.key is set, but ssl.keystore.certificate.chain is not")
        if options.ssl_keystore_location:
            raise TlsConfigError("ssl.keystore.location and ssl.keystore.key are both set; allowed: one")
    elif options.ssl_keystore_certificate_chain is not None:
        raise TlsConfigError("ssl.keystore.certificate.chain is set, but ssl.keystore.key is not")
    elif options.ssl_keystore_password is not None and not options.ssl_keystore_location:
        raise TlsConfigError("ssl.keystore.password is set, but ssl.keystore.location is not")


def _contents(path: str, place: str, read_bytes: ReadBytes) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise TlsConfigError(f"{place}: cannot be read: {error.strerror or error}") from error


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


# -- PEM


def _blocks(text: str) -> Iterator[tuple[str, bytes]]:
    """(label, block) of each block of PEM. Values of a properties file may have all of it on one line."""
    for found in _BLOCK.finditer(text):
        label, headers, body = found.groups()
        digits = "".join(body.split())
        lines = [digits[start : start + _LINE_CHARS] for start in range(0, len(digits), _LINE_CHARS)]
        head = f"{headers.strip()}\n\n" if headers else ""
        yield label, f"-----BEGIN {label}-----\n{head}{chr(10).join(lines)}\n-----END {label}-----\n".encode()


def _certificates(text: str, place: str) -> tuple[x509.Certificate, ...]:
    found = []
    for label, block in _blocks(text):
        if label == "CERTIFICATE":
            try:
                found.append(x509.load_pem_x509_certificate(block))
            except ValueError as error:
                raise TlsConfigError(f"{place}: a certificate is damaged: {_one_line(error)}") from error
    if not found:
        raise TlsConfigError(f"{place}: no certificate found; allowed: PEM with BEGIN CERTIFICATE")
    return tuple(found)


def _pem_key_store(key_text: str, chain_text: str, password: str | None, place: str) -> KeyStore:
    keys = [block for label, block in _blocks(key_text) if label.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise TlsConfigError(f"{place}: {len(keys)} private keys found; allowed: one, in PEM with BEGIN PRIVATE KEY")
    [block] = keys
    is_encrypted = b"ENCRYPTED" in block
    if is_encrypted and password is None:
        raise TlsConfigError(f"{place}: the private key is encrypted; set ssl.key.password")
    try:
        # To validate an RSA key takes a tenth of a second, at each start; OpenSSL refuses one that does not fit.
        key = load_pem_private_key(
            block,
            password.encode() if is_encrypted and password is not None else None,
            unsafe_skip_rsa_key_validation=True,
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        problem = "the password is wrong (ssl.key.password), or the key is damaged" if is_encrypted else "is damaged"
        raise TlsConfigError(f"{place}: the private key cannot be read: {problem}") from error
    place = "ssl.keystore.certificate.chain" if place == "ssl.keystore.key" else place
    return _fitting(key, _certificates(chain_text, place), place)


# -- PKCS12 and JKS


def _opened_pkcs12(
    data: bytes, password: str | None, place: str, key: str
) -> tuple[PrivateKeyTypes | None, x509.Certificate | None, list[x509.Certificate]]:
    try:
        return pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if data[:1] != b"\x30":
            problem = "it is no key store; allowed: PEM, PKCS12, JKS"
        elif password is None:
            problem = f"it needs a password; set {key}"
        else:
            problem = f"the password is wrong ({key}), or the file is damaged"
        raise TlsConfigError(f"{place}: {problem}") from error


def _pkcs12_key_store(data: bytes, password: str, place: str) -> KeyStore:
    key, own, others = _opened_pkcs12(data, password, place, "ssl.keystore.password")
    if key is None or own is None:
        raise TlsConfigError(f"{place}: the key store has no private key with a certificate")
    return _fitting(key, (own, *_in_order(own, others)), place)


def _in_order(own: x509.Certificate, others: list[x509.Certificate]) -> Iterator[x509.Certificate]:
    """The issuer of each certificate behind it, as TLS wants a chain. Others are left out."""
    left = [each for each in others if each != own]
    last = own
    while last.issuer != last.subject:
        issuer = next((each for each in left if each.subject == last.issuer), None)
        if issuer is None:
            return
        left.remove(issuer)
        yield issuer
        last = issuer


def _java_key_store(data: bytes, password: str, key_password: str | None, place: str) -> KeyStore:
    try:
        keys = jks.read_store(data, password).keys
        if not keys:
            raise TlsConfigError(f"{place}: the key store has no private key")
        key = load_der_private_key(jks.decrypt(keys[0], password if key_password is None else key_password), None)
    except jks.BadStore as error:
        raise TlsConfigError(f"{place}: {_of_password(str(error), 'ssl.keystore.password')}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TlsConfigError(f"{place}: the private key is damaged") from error
    return _fitting(key, tuple(_certificate(der, place) for der in keys[0].chain), place)


def _certificate(der: bytes, place: str) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError as error:
        raise TlsConfigError(f"{place}: a certificate is damaged: {_one_line(error)}") from error


def _fitting(key: PrivateKeyTypes, chain: tuple[x509.Certificate, ...], place: str) -> KeyStore:
    if not chain:
        raise TlsConfigError(f"{place}: the private key has no certificate")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != chain[0].public_key().public_bytes(*form):
        raise TlsConfigError(
            f"{place}: the private key does not fit the first certificate, {chain[0].subject.rfc4514_string()}"
        )
    return KeyStore(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), chain)


def _of_password(problem: str, key: str) -> str:
    return problem.replace("the password is wrong,", f"the password is wrong ({key}),")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
