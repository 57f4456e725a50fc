"""Keys of a provider, and which signatures they verify."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from barnabas.protocol.sasl.jwt_claims import Jwt
from barnabas.runtime.sasl.verification_keys import MOST_KEYS, KeySet
from tests.runtime.sasl.provider import ec_key, ed_key, public_jwk, rsa_key, signed

pytestmark = pytest.mark.feature("SE-05")

CLAIMS = {"sub": "alice"}
ONE = public_jwk("RS256", rsa_key("one"), "one")


def key_set(*keys: Any) -> KeySet:
    return KeySet.parse(json.dumps({"keys": keys}).encode())


def is_verified(keys: KeySet, token: str) -> bool:
    parsed = Jwt.parse(token)
    key = keys.find(parsed)
    return key is not None and key.verifies(parsed)


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        *[(name, rsa_key("one")) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")],
        ("ES256", ec_key()),
        ("EdDSA", ed_key()),
    ],
)
def test_a_signature_is_verified_by_its_key_alone(algorithm: str, key: Any) -> None:
    keys = key_set(public_jwk(algorithm, key, "one"))
    token = signed(key, CLAIMS, algorithm=algorithm)
    assert is_verified(keys, token)
    head, body, signature = token.split(".")
    assert not is_verified(keys, f"{head}.{body}.{signature[:-8]}AAAAAAAA")
    assert not is_verified(keys, f"{head}.{body}.")
    other = jwt.encode({"sub": "bob"}, key, algorithm, headers={"kid": "one"}).split(".")[1]
    assert not is_verified(keys, f"{head}.{other}.{signature}")


def test_a_signature_of_another_key_with_the_same_id_is_wrong() -> None:
    assert not is_verified(key_set(ONE), signed(rsa_key("two"), CLAIMS))


def test_a_public_key_is_no_shared_secret() -> None:
    """The classic attack: HMAC with the public key, which everybody knows, as its secret."""
    secret = rsa_key("one").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = [b'{"alg":"HS256","kid":"one"}', json.dumps(CLAIMS).encode()]
    signed_part = b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = urlsafe_b64encode(hmac.digest(secret, signed_part, "sha256")).rstrip(b"=")
    token = b".".join([signed_part, signature]).decode()
    assert not is_verified(key_set(ONE), token)
    assert not is_verified(key_set({**ONE, "alg": "HS256"}, public_jwk("ES256", ec_key(), "two")), token)


def test_a_shared_secret_among_the_keys_is_left_out() -> None:
    secret = {"kty": "oct", "k": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "kid": "one", "alg": "HS256"}
    with pytest.raises(ValueError, match="no public key"):
        key_set(secret)


def test_a_key_with_an_algorithm_is_used_for_no_other() -> None:
    keys = key_set({**ONE, "alg": "RS512"})
    assert is_verified(keys, signed(rsa_key("one"), CLAIMS, algorithm="RS512"))
    assert not is_verified(keys, signed(rsa_key("one"), CLAIMS, algorithm="RS256"))


def test_a_token_without_an_id_is_verified_by_the_first_key_that_fits() -> None:
    keys = key_set(public_jwk("ES256", ec_key(), "curve"), ONE)
    assert is_verified(keys, signed(rsa_key("one"), CLAIMS, key_id=None))


@pytest.mark.parametrize(
    "change",
    [
        {"use": "enc"},
        {"kty": "XYZ"},
        {"alg": "RSA-OAEP"},
        {"n": "AQAB"},
        {"n": "!"},
        {"n": 7},
        {"e": None},
        {"kty": None},
    ],
)
def test_a_key_that_is_not_for_signatures_is_left_out(change: dict[str, Any]) -> None:
    assert key_set({**ONE, **change}, {**ONE, "kid": "other"}).ids == ["other"]


def test_a_short_key_is_left_out() -> None:
    with pytest.raises(ValueError, match="no public key"):
        key_set(public_jwk("RS256", rsa_key("short", 1024), "one"))


def test_a_private_key_verifies_as_its_public_one() -> None:
    private = jwt.get_algorithm_by_name("RS256").to_jwk(rsa_key("one"), as_dict=True)
    assert is_verified(key_set({**private, "kid": "one"}), signed(rsa_key("one"), CLAIMS))


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[]}', b'{"keys":[7,null]}', b"\xff", b"[" * 100_000, b"<html>"],
)
def test_a_document_without_keys_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError):
        KeySet.parse(document)


def test_the_number_of_keys_is_bounded() -> None:
    with pytest.raises(ValueError, match="allowed: up to"):
        key_set(*[{}] * (MOST_KEYS + 1))
