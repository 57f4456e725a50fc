"""Key stores and trust stores that operators have, made of our certificates."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, pkcs12

from barnabas.security.certificates import Certificate


def encrypted_key_pem(own: Certificate, password: str) -> bytes:
    """The private key in PKCS#8."""
    return own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))


def key_store_pkcs12(own: Certificate, password: str, alias: str = "kafka") -> bytes:
    """A key store for `ssl.keystore.type=PKCS12`."""
    encryption = BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(
        alias.encode(), own.key, own.certificate, list(own.issuers), encryption
    )


def trust_store_pkcs12(certificates: Sequence[Certificate], password: str) -> bytes:
    """A trust store that Java reads: each certificate carries Java's mark of trust."""
    trusted = [
        pkcs12.PKCS12Certificate(each.certificate, f"ca{index}".encode()) for index, each in enumerate(certificates)
    ]
    return pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(password.encode()))
