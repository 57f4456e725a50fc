"""Certificates of a test: an authority, and what it signs. RSA keys, new in each run."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certified:
    """A key with its certificate, signed by `issuer`."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def chain_pem(self) -> str:
        return self.certificate_pem + self.issuer.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        """The key as PKCS#8, which is the only form that Kafka reads."""
        how = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    def pkcs12(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"barnabas", self.key, self.certificate, [self.issuer], BestAvailableEncryption(password.encode())
        )

    def write_pem(self, path: Path) -> Path:
        """Key and chain in one file."""
        path.write_text(self.key_pem() + self.chain_pem)
        return path


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "Test Authority") -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.BasicConstraints(ca=True, path_length=0)
        self.certificate = (
            _builder(self.name, self.name, self.key).add_extension(usage, critical=True).sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def sign(self, common_name: str, hosts: tuple[str, ...] = ()) -> Certified:
        """A certificate for these names and addresses."""
        key = rsa.generate_private_key(65537, 2048)
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Barnabas"),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        builder = _builder(subject, self.name, key)
        if hosts:
            names = x509.SubjectAlternativeName([_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Certified(key, builder.sign(self.key, hashes.SHA256()), self.certificate)


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
