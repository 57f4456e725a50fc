"""Certificate authorities and certificates for clusters that have no others."""

from __future__ import annotations

import ipaddress
import ssl
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from barnabas.security.certificates import Certificate, Purpose, make_authority, make_certificate, make_key
from tests.key_stores import encrypted_key_pem, key_store_pkcs12

pytestmark = pytest.mark.feature("SE-02")

NOW_MS = 1_700_000_000_000


@cache
def authority() -> Certificate:
    return make_authority("test authority", NOW_MS, days=36_500)


@cache
def made(**purpose: bool) -> Certificate:
    names = ("broker.example.org", "10.0.0.7", "::1")
    return make_certificate(authority(), "broker", NOW_MS, names=names, purpose=Purpose(**purpose, days=36_500))


def test_a_certificate_has_its_names_and_its_authority() -> None:
    own = made()
    names = own.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.example.org"]
    addresses = names.get_values_for_type(x509.IPAddress)
    assert addresses == [ipaddress.ip_address("10.0.0.7"), ipaddress.ip_address("::1")]
    own.certificate.verify_directly_issued_by(authority().certificate)
    assert own.certificate.not_valid_before_utc.timestamp() * 1000 == NOW_MS - 3_600_000


def test_it_comes_back_from_pem() -> None:
    own = made()
    again = Certificate.from_pem(own.key_store_pem)
    assert again.certificate == own.certificate
    assert again.key_pem == own.key_pem
    encrypted = encrypted_key_pem(own, "secret") + own.chain_pem
    assert Certificate.from_pem(encrypted, "secret").key_pem == own.key_pem
    with pytest.raises((ValueError, TypeError)):
        Certificate.from_pem(encrypted)
    assert "PRIVATE" not in repr(own)


def test_an_intermediate_authority_stands_in_the_chain() -> None:
    between = make_authority("between", NOW_MS, days=36_500, issuer=authority())
    own = make_certificate(between, "leaf", NOW_MS, purpose=Purpose(days=36_500))
    chain = x509.load_pem_x509_certificates(own.chain_pem)
    assert chain == [own.certificate, between.certificate]
    store = pkcs12.load_pkcs12(key_store_pkcs12(own, "secret"), b"secret")
    assert store.cert is not None
    assert store.cert.certificate == own.certificate
    assert {each.certificate for each in store.additional_certs} == {between.certificate, authority().certificate}


@pytest.mark.parametrize(
    ("purpose", "serves", "calls"),
    [({}, True, True), ({"client": False}, True, False), ({"server": False}, False, True)],
)
def test_a_purpose_is_kept(purpose: dict[str, bool], serves: bool, calls: bool) -> None:
    assert accepted(made(**purpose), as_server=True) == serves
    assert accepted(made(**purpose), as_server=False) == calls


def accepted(own: Certificate, *, as_server: bool) -> bool:
    """True if the other end accepts the certificate."""
    from barnabas.runtime.tls.contexts import readable

    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.verify_mode = ssl.CERT_NONE if as_server else ssl.CERT_REQUIRED
    for context, certificate in ((server, own if as_server else made()), (client, own)):
        context.load_verify_locations(cadata=authority().certificate_pem.decode())
        with readable(certificate.key_store_pem) as path:
            context.load_cert_chain(path)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_hostname="broker.example.org"),
        server.wrap_bio(there, back, server_side=True),
    )
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError:
            return False
    return True


def test_keys_may_be_given() -> None:
    key = make_key()
    own = make_certificate(authority(), "broker", NOW_MS, key=key)
    assert own.key is key
