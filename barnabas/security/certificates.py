"""Makes certificate authorities and certificates, for clusters that have no others and for tests.

The caller gives the time and stores the files. Keys are RSA unless another one is given: every Kafka client can use
them, and messages signed with them always have the same size.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

RSA_BITS = 2048
BACKDATED = timedelta(hours=1)
"""Certificates are valid from this long ago, for clocks that are behind."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its private key, and the certificates up to its authority."""

    key: PrivateKey = field(repr=False)
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...] = ()

    @property
    def key_pem(self) -> bytes:
        """The private key in PKCS#8, not encrypted."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def chain_pem(self) -> bytes:
        """The certificate, and the intermediate ones behind it."""
        between = (each for each in self.issuers if each.issuer != each.subject)
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, *between))

    @property
    def key_store_pem(self) -> bytes:
        """A key store for `ssl.keystore.type=PEM`."""
        return self.key_pem + self.chain_pem

    @classmethod
    def from_pem(cls, data: bytes, password: str | None = None) -> Certificate:
        """A key and its certificate, and any after it. Raises ValueError."""
        key = load_pem_private_key(data, None if password is None else password.encode())
        if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
            raise ValueError("the private key must be one of RSA or of an elliptic curve")
        first, *others = x509.load_pem_x509_certificates(data)
        return cls(key, first, tuple(others))


def make_authority(
    name: str, now_ms: int, *, days: int = 3650, key: PrivateKey | None = None, issuer: Certificate | None = None
) -> Certificate:
    """An authority that signs itself, or an intermediate one below `issuer`."""
    key = key or make_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, key, issuer, now_ms, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return _signed(builder.add_extension(usage, critical=True), key, issuer)


@dataclass(frozen=True, slots=True)
class Purpose:
    """The uses of a certificate, and how long it lasts."""

    server: bool = True
    client: bool = True
    days: int = 825


def make_certificate(
    authority: Certificate,
    subject: str | x509.Name,
    now_ms: int,
    *,
    names: Sequence[str] = (),
    purpose: Purpose | None = None,
    key: PrivateKey | None = None,
) -> Certificate:
    """A certificate that `authority` signs. `subject` is a common name or a whole subject; `names` are the host names
    and IP addresses that it is for."""
    key = key or make_key()
    purpose = purpose or Purpose()
    if isinstance(subject, str):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    builder = _builder(subject, key, authority, now_ms, purpose.days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    uses = [
        *([ExtendedKeyUsageOID.SERVER_AUTH] if purpose.server else []),
        *([ExtendedKeyUsageOID.CLIENT_AUTH] if purpose.client else []),
    ]
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
    return _signed(builder, key, authority)


def make_key(bits: int = RSA_BITS) -> rsa.RSAPrivateKey:
    """An RSA key; it takes some 100 ms."""
    return rsa.generate_private_key(65537, bits)


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(
    subject: x509.Name, key: PrivateKey, issuer: Certificate | None, now_ms: int, days: int
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    issuer_key = key if issuer is None else issuer.key
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, key: PrivateKey, issuer: Certificate | None) -> Certificate:
    if issuer is None:
        return Certificate(key, builder.sign(key, SHA256()))
    return Certificate(key, builder.sign(issuer.key, SHA256()), (issuer.certificate, *issuer.issuers))
