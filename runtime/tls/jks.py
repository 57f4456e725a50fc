"""Core: reads the key stores of Java's own format, JKS, and the certificates of JCEKS.

A JKS store is a list of entries and a digest of them that is salted with the password. Private keys are encrypted by a
key stream of SHA-1, which is weak: `keytool` has written PKCS12 since Java 9, whatever the name of the file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import islice

from barnabas.runtime.tls.der import elements

MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""The first bytes of JKS and of JCEKS."""

_WHITENER = b"Mighty Aphrodite"
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_DIGEST_BYTES = 20


class BadStore(ValueError):
    """A store that cannot be read, or with another password."""


@dataclass(frozen=True, slots=True)
class JavaKey:
    """A private key, encrypted, and the certificates that belong to it in DER, its own first."""

    alias: str
    encrypted: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JavaStore:
    """The entries of a store, in the order of the file."""

    keys: tuple[JavaKey, ...]
    certificates: tuple[bytes, ...]
    """Trusted certificates in DER."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        taken = self._data[self.position : self.position + count]
        if len(taken) < count:
            raise BadStore("the file is cut off")
        self.position += count
        return taken

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        return self.take(self.number(2)).decode(errors="replace")

    def certificate(self, version: int) -> bytes:
        if version == 2:
            kind = self.text()
            if kind != "X.509":
                raise BadStore(f"it has a certificate of the type {kind!r}; allowed: X.509")
        return self.take(self.number())


def read_store(data: bytes, password: str | None) -> JavaStore:
    """The entries of a store. Without a password its integrity is not checked. Raises BadStore."""
    if password is not None and not _is_intact(data, password):
        raise BadStore("the password is wrong, or the file is damaged")
    reader = _Reader(data)
    magic = reader.take(4)
    version = reader.number()
    if magic not in MAGICS or version not in {1, 2}:
        raise BadStore("it is no JKS store")
    keys: list[JavaKey] = []
    certificates: list[bytes] = []
    for _ in range(reader.number()):
        tag, alias = reader.number(), reader.text()
        reader.take(8)  # the time of its creation
        if tag == _KEY_ENTRY:
            encrypted = reader.take(reader.number())
            chain = tuple(reader.certificate(version) for _ in range(reader.number()))
            keys.append(JavaKey(alias, encrypted, chain))
        elif tag == _CERTIFICATE_ENTRY:
            certificates.append(reader.certificate(version))
        else:
            raise BadStore(f"the entry {alias!r} is neither a private key nor a certificate")
    return JavaStore(tuple(keys), tuple(certificates))


def decrypt(key: JavaKey, password: str) -> bytes:
    """The private key in PKCS#8 DER. Raises BadStore."""
    # EncryptedPrivateKeyInfo: a sequence of the algorithm, and of the encrypted bytes in an octet string at its end.
    try:
        [(_, _, body)] = islice(elements(key.encrypted), 1)
        [(_, algorithm, _), (_, _, protected)] = islice(elements(body), 2)
    except ValueError:
        raise BadStore("the file is damaged") from None
    if b"\x2b\x06\x01\x04\x01\x2a\x02\x11\x01\x01" not in algorithm:
        raise BadStore(
            f"the private key {key.alias!r} is encrypted as in JCEKS; convert the store: keytool -importkeystore "
            "-deststoretype pkcs12"
        )
    secret = password.encode("utf-16-be")
    salt, masked = protected[:_DIGEST_BYTES], protected[_DIGEST_BYTES:-_DIGEST_BYTES]
    digest = protected[-_DIGEST_BYTES:]
    stream, block = bytearray(), salt
    while len(stream) < len(masked):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(a ^ b for a, b in zip(masked, stream, strict=False))
    if hashlib.sha1(secret + plain, usedforsecurity=False).digest() != digest:
        raise BadStore("the password of the private key is wrong (ssl.key.password)")
    return plain


def _is_intact(data: bytes, password: str) -> bool:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    salted = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body, usedforsecurity=False).digest()
    return salted == digest
