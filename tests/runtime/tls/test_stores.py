"""Keys and certificates from every format that Kafka reads, and errors of one line."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from barnabas.runtime.tls import jks
from barnabas.runtime.tls.options import TlsConfigError, TlsOptions
from barnabas.runtime.tls.stores import KeyStore, read_key_store, read_trust_store
from barnabas.runtime.tls.suites import openssl_name
from barnabas.security.certificates import Certificate, make_authority, make_certificate
from tests.key_stores import encrypted_key_pem, key_store_pkcs12, trust_store_pkcs12
from tests.runtime.tls.stage import LONG_AGO_MS, authority, certificate, spare_key, values

pytestmark = pytest.mark.feature("SE-02")

KEY_STORE_JKS = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAQAGYnJva2VyAAABogqoSEcAAAB/MH0wDgYKKwYBBAEqAhEBAQUABGsjHk1ToZ5ZsuCvdjtZcvWYOTI6"
    "RJzinHZ0Zd+PTQP6QFGGTxTgD6g850PgarF64q/eIfGD82tWr7wcGdq0ps2gDrKccWJ7VtO5Xr71QWfxv5Fzi/xy4psEqFQ3F6d1"
    "2ibbwjkohZV9sx+5pgAAAAEABVguNTA5AAABOTCCATUwgdugAwIBAgIIFBxXJ4o3dgYwCgYIKoZIzj0EAwIwDjEMMAoGA1UEAxMD"
    "amtzMCAXDTI2MTEyMzIzMDUzMFoYDzIxMjYxMDMwMjMwNTMwWjAOMQwwCgYDVQQDEwNqa3MwWTATBgcqhkjOPQIBBggqhkjOPQMB"
    "BwNCAAQT6tmLCtMnthxt1I8B9YGwEXUe5rG6/LTAga1kA0IO8SdMP5fRItHaVg/SG7n6vU+ym70WcHygUqVmhmH4e30YoyEwHzAd"
    "BgNVHQ4EFgQULwfyBYWNrCB0mVGmB/W20Sq/f0QwCgYIKoZIzj0EAwIDSQAwRgIhANW2aTLJJWEd3NbyrY6fp3iQdjgooykA9teE"
    "e7IQ8BkSAiEAw7JxXz7CgDJaFz4aarmt25qHWSiql1hcWG082va4ZEHMUHS/8Z/rR31pD7xOTUSdI3q9Wg=="
)
"""By `keytool -genkeypair -storetype JKS -storepass changeit -keypass keypass1 -dname CN=jks`."""

TRUST_STORE_JKS = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAgACY2EAAAGiCqhJgAAFWC41MDkAAAE5MIIBNTCB26ADAgECAggUHFcnijd2BjAKBggqhkjOPQQDAjAO"
    "MQwwCgYDVQQDEwNqa3MwIBcNMjYxMTIzMjMwNTMwWhgPMjEyNjEwMzAyMzA1MzBaMA4xDDAKBgNVBAMTA2prczBZMBMGByqGSM49"
    "AgEGCCqGSM49AwEHA0IABBPq2YsK0ye2HG3UjwH1gbARdR7msbr8tMCBrWQDQg7xJ0w/l9Ei0dpWD9Ibufq9T7KbvRZwfKBSpWaG"
    "Yfh7fRijITAfMB0GA1UdDgQWBBQvB/IFhY2sIHSZUaYH9bbRKr9/RDAKBggqhkjOPQQDAgNJADBGAiEA1bZpMsklYR3c1vKtjp+n"
    "eJB2OCijKQD214R7shDwGRICIQDDsnFfPsKAMloXPhpqua3bmodZKKqXWFxYbTza9rhkQdWGnJQs04kHfMEpga7PMnTJufrL"
)
"""Its certificate, by `keytool -importcert -storetype JKS -storepass changeit`."""

KEY_STORE_JCEKS = base64.b64decode(
    "zs7OzgAAAAIAAAABAAAAAQAGYnJva2VyAAABogqoSmkAAABqMGgwHAYJKwYBBAEqAhMBMA8ECKp6uV4A/wDHAgMDDUAESCpZkIkn"
    "wsyB1ktkMus/rR3+5IvvN+CSxFLJYA3RiG/kwgRqBqD0MyKOY+v7zouBYG2jGvV5b5Cuu5qHPlS/Khqn9lsGmAwrsAAAAAEABVgu"
    "NTA5AAABOTCCATUwgdygAwIBAgIJANtyi4qdEZHwMAoGCCqGSM49BAMCMA4xDDAKBgNVBAMTA2prczAgFw0yNjExMjMyMzA1MzBa"
    "GA8yMTI2MTAzMDIzMDUzMFowDjEMMAoGA1UEAxMDamtzMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEhEau3X+9H/uHNrLVYWFz"
    "wCdy1aCcb5L4lAb+jA3TMo7G82Xf8gDbFDldCY6t3Ox9WciJ6OOj0lN2HFiavYVaw6MhMB8wHQYDVR0OBBYEFPPQ9hf4KO2UFvaK"
    "mTFhVbwIlir3MAoGCCqGSM49BAMCA0gAMEUCID3f+oyM8bb6PPA/zIdDKiXYXTzd0NjcUpSVSGvMzJ70AiEAp5L+LHAiEaD73fjh"
    "EIKJhdFfMscRmFxmCj5fhyxBlCRdu0nlXwZCL2MO6T2QCXGZ9SwD7w=="
)
"""The first one, by `-storetype JCEKS`."""

FILES = {
    "keys.jks": KEY_STORE_JKS,
    "trust.jks": TRUST_STORE_JKS,
    "keys.jceks": KEY_STORE_JCEKS,
    "nonsense": b"nonsense",
    "empty": b"",
}


def reader(**files: bytes) -> Callable[[str], bytes]:
    """Reads the files above, and `files`, which have an underscore for the dot in their names."""
    there = FILES | {name.replace("_", "."): data for name, data in files.items()}

    def read(path: str) -> bytes:
        if path not in there:
            raise FileNotFoundError(2, "No such file or directory", path)
        return there[path]

    return read


def key_store(texts: dict[str, str], **files: bytes) -> KeyStore | None:
    return read_key_store(TlsOptions.of(texts), reader(**files))


def located(path: str, **others: str) -> dict[str, str]:
    return {"ssl.keystore.location": path} | {key.replace("_", "."): text for key, text in others.items()}


def with_intermediate() -> Certificate:
    between = make_authority("between", LONG_AGO_MS, days=36_500, key=spare_key(3), issuer=authority())
    return make_certificate(between, "leaf", LONG_AGO_MS, key=spare_key())


def is_key_of(store: KeyStore | None, own: Certificate) -> bool:
    assert store is not None
    key = load_pem_private_key(store.key_pem, None)
    return key.public_key() == own.key.public_key() and store.chain[0] == own.certificate


def test_a_key_in_the_options_may_stand_on_one_line() -> None:
    own = certificate()
    texts = values(own)
    assert is_key_of(key_store(texts), own)
    assert is_key_of(key_store({key: " ".join(text.split("\n")) for key, text in texts.items()}), own)


def test_a_pem_file_has_a_key_and_its_chain() -> None:
    own = with_intermediate()
    store = key_store(located("own.pem", ssl_keystore_type="PEM"), own_pem=own.key_store_pem)
    assert is_key_of(store, own)
    assert store is not None
    assert [each.subject.rfc4514_string() for each in store.chain] == ["CN=leaf", "CN=between"]


def test_an_encrypted_key_needs_its_password() -> None:
    own = certificate()
    files = {"own_pem": encrypted_key_pem(own, "secret") + own.chain_pem}
    assert is_key_of(key_store(located("own.pem", ssl_keystore_type="PEM", ssl_key_password="secret"), **files), own)
    with pytest.raises(TlsConfigError, match=r"the password is wrong \(ssl\.key\.password\)"):
        key_store(located("own.pem", ssl_keystore_type="PEM", ssl_key_password="other"), **files)
    with pytest.raises(TlsConfigError, match=r"the private key is encrypted; set ssl\.key\.password"):
        key_store(located("own.pem", ssl_keystore_type="PEM"), **files)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_is_read_under_either_type(kind: str) -> None:
    own = with_intermediate()
    files = {"own_jks": key_store_pkcs12(own, "secret")}
    texts = located("own.jks", ssl_keystore_type=kind, ssl_keystore_password="secret")
    store = key_store(texts, **files)
    assert is_key_of(store, own)
    assert store is not None
    assert [each.subject.rfc4514_string() for each in store.chain] == ["CN=leaf", "CN=between", "CN=authority"]
    with pytest.raises(TlsConfigError, match=r"the password is wrong \(ssl\.keystore\.password\)"):
        key_store(texts | {"ssl.keystore.password": "other"}, **files)


def test_java_key_stores_are_read() -> None:
    texts = located("keys.jks", ssl_keystore_password="changeit", ssl_key_password="keypass1")
    store = key_store(texts)
    assert store is not None
    assert store.chain[0].subject.rfc4514_string() == "CN=jks"
    assert load_pem_private_key(store.key_pem, None).public_key() == store.chain[0].public_key()
    with pytest.raises(
        TlsConfigError, match=r"the password is wrong \(ssl\.keystore\.password\), or the file is damaged"
    ):
        key_store(texts | {"ssl.keystore.password": "other"})
    with pytest.raises(TlsConfigError, match=r"the password of the private key is wrong \(ssl\.key\.password\)"):
        key_store(texts | {"ssl.key.password": "other"})
    with pytest.raises(TlsConfigError, match="is encrypted as in JCEKS; convert the store: keytool"):
        key_store(located("keys.jceks", ssl_keystore_password="changeit"))


@pytest.mark.parametrize("password", ["changeit", None])
def test_java_trust_stores_are_read(password: str | None) -> None:
    texts = {"ssl.truststore.location": "trust.jks"}
    if password is not None:
        texts["ssl.truststore.password"] = password
    [trusted] = read_trust_store(TlsOptions.of(texts), reader()) or ()
    assert trusted.subject.rfc4514_string() == "CN=jks"


def test_trust_stores_in_pem_and_pkcs12_are_read() -> None:
    both = [authority(), authority("another authority")]
    files = reader(t_pem=b"".join(each.certificate_pem for each in both), t_p12=trust_store_pkcs12(both, "secret"))
    expected = {each.certificate for each in both}
    pem = {"ssl.truststore.location": "t.pem", "ssl.truststore.type": "PEM"}
    assert set(read_trust_store(TlsOptions.of(pem), files) or ()) == expected
    pkcs12 = {"ssl.truststore.location": "t.p12", "ssl.truststore.password": "secret"}
    assert set(read_trust_store(TlsOptions.of(pkcs12), files) or ()) == expected
    with pytest.raises(TlsConfigError, match=r"it needs a password; set ssl\.truststore\.password"):
        read_trust_store(TlsOptions.of({"ssl.truststore.location": "t.p12"}), files)


@pytest.mark.parametrize("size", [*range(0, len(KEY_STORE_JKS), 23), len(KEY_STORE_JKS) - 1])
def test_a_java_store_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(jks.BadStore):
        for key in jks.read_store(KEY_STORE_JKS[:size], None).keys:
            jks.decrypt(key, "keypass1")
        assert size > len(KEY_STORE_JKS) - 20, "the digest alone is cut, and nobody checks it without a password"
        jks.read_store(KEY_STORE_JKS[:size], "changeit")


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (located("missing", ssl_keystore_password="x"), "ssl.keystore.location=missing: cannot be read: No such file"),
        (located("nonsense", ssl_keystore_password="x"), "it is no key store; allowed: PEM, PKCS12, JKS"),
        (located("empty", ssl_keystore_password="x"), "it is no key store; allowed: PEM, PKCS12, JKS"),
        (located("nonsense", ssl_keystore_type="PEM"), "0 private keys found; allowed: one, in PEM"),
        (located("keys.jks"), "the key store has no password; set ssl.keystore.password"),
        (located("trust.jks", ssl_keystore_password="changeit"), "the key store has no private key"),
        ({"ssl.keystore.password": "x"}, "ssl.keystore.password is set, but ssl.keystore.location is not"),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.key is set, but ssl.keystore.certificate.chain is not"),
        ({"ssl.keystore.certificate.chain": "x"}, "ssl.keystore.certificate.chain is set, but ssl.keystore.key is not"),
        (values(certificate()) | located("x"), "ssl.keystore.location and ssl.keystore.key are both set"),
        (
            values(certificate()) | {"ssl.keystore.certificate.chain": certificate(key=2).chain_pem.decode()},
            "ssl.keystore.certificate.chain: the private key does not fit the first certificate, CN=broker",
        ),
        (
            values(certificate())
            | {"ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"},
            "ssl.keystore.key: the private key cannot be read: is damaged",
        ),
    ],
)
def test_a_key_store_that_cannot_be_used_is_one_line(texts: dict[str, str], problem: str) -> None:
    with pytest.raises(TlsConfigError) as caught:
        key_store(texts)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"ssl.truststore.location": "missing"}, "ssl.truststore.location=missing: cannot be read: No such file"),
        ({"ssl.truststore.location": "keys.jks"}, "the store has no trusted certificate"),
        ({"ssl.truststore.certificates": "x"}, "ssl.truststore.certificates: no certificate found"),
        ({"ssl.truststore.password": "x"}, "ssl.truststore.password is set, but ssl.truststore.location is not"),
        (
            {"ssl.truststore.certificates": "x", "ssl.truststore.location": "x"},
            "ssl.truststore.location and ssl.truststore.certificates are both set",
        ),
    ],
)
def test_a_trust_store_that_cannot_be_used_is_one_line(texts: dict[str, str], problem: str) -> None:
    with pytest.raises(TlsConfigError) as caught:
        read_trust_store(TlsOptions.of(texts), reader())
    assert problem in str(caught.value)


# -- options


def test_options_keep_their_secrets() -> None:
    secrets = ("ssl.keystore.password", "ssl.key.password", "ssl.keystore.key", "ssl.truststore.password")
    texts = dict.fromkeys([*secrets, "ssl.keystore.certificate.chain", "ssl.truststore.certificates"], "hush")
    options = TlsOptions.of(texts | {"ssl.keystore.location": "/here"})
    assert options.ssl_key_password == "hush"
    assert "hush" not in repr(options)
    assert "/here" in repr(options)
    store = key_store(values(certificate()))
    assert "PRIVATE KEY" not in repr(store)


def test_options_have_kafkas_defaults() -> None:
    options = TlsOptions.of({})
    assert options == TlsOptions()
    assert options.ssl_enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert options.ssl_endpoint_identification_algorithm == "https"
    assert TlsOptions.of({"ssl.endpoint.identification.algorithm": ""}).ssl_endpoint_identification_algorithm == ""
    assert TlsOptions.of({"ssl.client.auth": "REQUIRED"}).ssl_client_auth == "required"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.1"),
        ("ssl.protocol", "SSLv3"),
        ("ssl.client.auth", "maybe"),
        ("ssl.keystore.type", "BKS"),
        ("ssl.endpoint.identification.algorithm", "ldap"),
        ("ssl.allow.dn.changes", "perhaps"),
        ("ssl.engine.factory.class", "com.example.Engine"),
    ],
)
def test_an_option_that_is_not_supported_names_what_is(key: str, value: str) -> None:
    with pytest.raises(TlsConfigError, match=rf"^{key}='.*' is not supported; allowed: "):
        TlsOptions.of({key: value})


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        ("ECDHE-RSA-AES256-SHA", "ECDHE-RSA-AES256-SHA"),
    ],
)
def test_suites_have_names_in_openssl(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
