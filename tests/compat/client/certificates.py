"""Certificates of a test: an authority, and what it signs. RSA keys, new in each run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from barnabas.security.certificates import Certificate, Purpose, make_authority, make_certificate
from tests.key_stores import encrypted_key_pem, key_store_pkcs12


@dataclass(frozen=True)
class Certified:
    """A key with its certificate, signed by its issuer."""

    own: Certificate

    @property
    def certificate_pem(self) -> str:
        return self.own.certificate_pem.decode()

    @property
    def chain_pem(self) -> str:
        [issuer] = self.own.issuers
        return self.certificate_pem + Certificate(self.own.key, issuer).certificate_pem.decode()

    def key_pem(self, password: str | None = None) -> str:
        """The key as PKCS#8, which is the only form that Kafka reads."""
        return (self.own.key_pem if password is None else encrypted_key_pem(self.own, password)).decode()

    def pkcs12(self, password: str) -> bytes:
        return key_store_pkcs12(self.own, password, "barnabas")

    def write_pem(self, path: Path) -> Path:
        """Key and chain in one file."""
        path.write_text(self.key_pem() + self.chain_pem)
        return path


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "Test Authority") -> None:
        self._own = make_authority(name, _now_ms(), days=1)

    @property
    def pem(self) -> str:
        return self._own.certificate_pem.decode()

    def sign(self, common_name: str, hosts: tuple[str, ...] = ()) -> Certified:
        """A certificate for these names and addresses."""
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Barnabas"),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        return Certified(make_certificate(self._own, subject, _now_ms(), names=hosts, purpose=Purpose(days=1)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
