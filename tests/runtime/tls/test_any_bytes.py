"""No bytes in a store, a certificate, a name or a rule do more than raise the error that is declared for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.runtime.tls import jks
from barnabas.runtime.tls.options import TlsConfigError, TlsOptions
from barnabas.runtime.tls.principals import (
    MalformedName,
    NoMatchingRule,
    PrincipalRules,
    distinguished_name,
    subject_of,
)
from barnabas.runtime.tls.stores import read_key_store, read_trust_store
from tests.key_stores import key_store_pkcs12, trust_store_pkcs12
from tests.runtime.tls.stage import authority, certificate
from tests.runtime.tls.test_stores import KEY_STORE_JKS, TRUST_STORE_JKS

pytestmark = pytest.mark.feature("SE-02")

PASSWORD = "changeit"
CERTIFICATE = certificate().certificate.public_bytes(Encoding.DER)
JKS_HEAD = bytes.fromhex("feedfeed00000002")


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with one place replaced by others, or cut off there."""
    places = st.integers(0, len(whole))
    replaced = st.builds(
        lambda at, put, gone: whole[:at] + put + whole[at + gone :], places, st.binary(max_size=4), st.integers(0, 4)
    )
    return st.one_of(replaced, places.map(lambda at: whole[:at]))


def signed_jks(body: bytes) -> bytes:
    """A Java key store whose digest is right, so that its parser sees the body."""
    data = JKS_HEAD + body
    return data + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + data).digest()


KEY_STORES = {
    "PEM": certificate().key_store_pem,
    "PKCS12": key_store_pkcs12(certificate(), PASSWORD),
    "JKS": KEY_STORE_JKS,
}
TRUST_STORES = {
    "PEM": authority().certificate_pem,
    "PKCS12": trust_store_pkcs12([authority()], PASSWORD),
    "JKS": TRUST_STORE_JKS,
}


def one_line_or_none(read: Callable[[], object]) -> None:
    try:
        read()
    except TlsConfigError as error:
        assert "\n" not in str(error) and PASSWORD not in str(error)


@pytest.mark.parametrize("kind", sorted(KEY_STORES))
@settings(max_examples=20)  # each password of PKCS12 costs 2,000 rounds and more, as it is meant to
@given(data=st.data())
def test_any_key_store_is_read_or_refused_in_one_line(kind: str, data: st.DataObject) -> None:
    stored = data.draw(st.one_of(st.binary(max_size=200), damaged(KEY_STORES[kind])))
    texts = {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": "store",
        "ssl.key.password": "keypass1",
        **({} if kind == "PEM" else {"ssl.keystore.password": PASSWORD}),
    }
    options = TlsOptions.of(texts)
    one_line_or_none(lambda: read_key_store(options, lambda _: stored))


@pytest.mark.parametrize("kind", sorted(TRUST_STORES))
@settings(max_examples=20)
@given(data=st.data())
def test_any_trust_store_is_read_or_refused_in_one_line(kind: str, data: st.DataObject) -> None:
    stored = data.draw(st.one_of(st.binary(max_size=200), damaged(TRUST_STORES[kind])))
    texts = {
        "ssl.truststore.type": kind,
        "ssl.truststore.location": "store",
        **({} if kind == "PEM" else {"ssl.truststore.password": PASSWORD}),
    }
    options = TlsOptions.of(texts)
    one_line_or_none(lambda: read_trust_store(options, lambda _: stored))


@given(st.one_of(st.binary(max_size=200), damaged(KEY_STORE_JKS[len(JKS_HEAD) : -20])))
@example(b"\xff\xff\xff\xff")
@example(b"\0\0\0\x01" + b"\0\0\0\x01" + b"\0\0" + bytes(8) + b"\xff\xff\xff\xff")
def test_a_java_store_with_the_right_digest_may_hold_anything(body: bytes) -> None:
    """Sizes in it promise bytes that are not there."""
    try:
        store = jks.read_store(signed_jks(body), PASSWORD)
        for key in store.keys:
            jks.decrypt(key, PASSWORD)
    except jks.BadStore as error:
        assert "\n" not in str(error)


@given(st.one_of(st.binary(max_size=300), damaged(CERTIFICATE), damaged(CERTIFICATE).map(lambda it: it[4:])))
def test_any_certificate_has_a_name_or_is_malformed(der: bytes) -> None:
    for read in (lambda: distinguished_name(subject_of(der)), lambda: distinguished_name(der)):
        try:
            name = read()
        except MalformedName:
            continue
        assert name.isprintable() or name == ""


RULE_PARTS = st.sampled_from(["RULE:^CN=", "(", ")", ".*", "$1", "$2", "/", "/L", "U", ",", "DEFAULT", "[", "\\", "+"])
RULES = st.one_of(st.text(max_size=60), st.lists(RULE_PARTS, max_size=14).map("".join))


@given(RULES, st.text(max_size=60))
def test_any_text_is_a_mapping_rule_or_refused(text: str, name: str) -> None:
    try:
        rules = PrincipalRules(text)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    try:
        assert isinstance(rules.name_of(name), str)
    except NoMatchingRule:
        pass


def test_a_name_cannot_make_a_mapping_rule_slow() -> None:
    """Patterns that take exponential time elsewhere: RE2 takes a time that grows with the name only."""
    rules = PrincipalRules("RULE:^(a+)+$/$1/,RULE:^(([a-z])+.)+[A-Z]([a-z])+$/$1/,DEFAULT")
    name = "a" * 20_000 + "!"
    assert rules.name_of(name) == name
