"""A client proves itself to the provider by assertions: from a file, or made and signed here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from barnabas.runtime.sasl.assertions import (
    ALGORITHM,
    ASSERTION,
    FILE,
    ISSUER,
    MOST_FILE_BYTES,
    PASSPHRASE,
    PRIVATE_KEY,
    TEMPLATE,
    AssertionRules,
    signer,
    template,
)
from barnabas.runtime.sasl.oauth_client import CLIENT_ID, CLIENT_SECRET, JWT_BEARER, RETRIEVER, TOKEN_URL, oauth_login
from barnabas.runtime.sasl.prepared import NotPrepared
from barnabas.settings.errors import SettingsError
from barnabas.settings.oauth import ALLOWED_FILES, ALLOWED_URLS
from tests.runtime.sasl.provider import Provider, ec_key, rsa_key, running
from tests.runtime.sasl.test_oauth_client import NOW, jwt_of, response, token_sent
from tests.runtime.sasl.timed_world import timed_world

pytestmark = pytest.mark.feature("SE-05")

SECRET = "pass phrase"
SCOPE = "sasl.oauthbearer.scope"


def pem(key: Any, password: str | None = None) -> bytes:
    how = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
    return made


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_bytes(pem(rsa_key("client")))
    return path


def verified(assertion: str, key: Any, algorithm: str = "RS256") -> dict[str, Any]:
    """The claims of an assertion with a good signature, whatever its times."""
    claims: dict[str, Any] = json.loads(jwt.PyJWS().decode(assertion, key.public_key(), [algorithm]))
    return claims


async def asked(values: dict[str, str], options: dict[str, str] | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """The headers and the parameters of the request that gets a token."""
    with running(Provider(responses=[response(jwt_of("alice"))])) as provider:
        login = oauth_login({TOKEN_URL: provider.url("token"), **values}, options or {}, timed_world())
        assert await token_sent(login) == jwt_of("alice")
        [(headers, body)] = provider.token_requests
        return headers, {name: text for name, [text] in parse_qs(body.decode(), strict_parsing=True).items()}


async def test_a_client_signs_its_assertion(autojump_clock: MockClock, key_file: Path) -> None:
    values = {
        ISSUER: "app",
        f"{ASSERTION}claim.sub": "app-sub",
        f"{ASSERTION}claim.aud": "https://idp/",
        f"{ASSERTION}claim.exp.seconds": "120",
        f"{ASSERTION}claim.nbf.seconds": "5",
        f"{ASSERTION}claim.jti.include": "true",
        PRIVATE_KEY: str(key_file),
        SCOPE: "read write",
        CLIENT_ID: "app:1",
    }
    headers, sent = await asked(values)
    assert "Authorization" not in headers
    assertion = sent.pop("client_assertion")
    assert sent == {
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "grant_type": "client_credentials",
        "client_id": "app:1",
        "scope": "read write",
    }
    claims = verified(assertion, rsa_key("client"))
    assert len(claims.pop("jti")) == 32
    assert claims == {
        "iss": "app",
        "sub": "app-sub",
        "aud": "https://idp/",
        "iat": NOW,
        "exp": NOW + 120,
        "nbf": NOW - 5,
    }
    assert jwt.get_unverified_header(assertion) == {"alg": "RS256", "typ": "JWT"}


async def test_a_template_adds_to_the_assertion_and_times_are_always_ours(
    autojump_clock: MockClock, tmp_path: Path, key_file: Path
) -> None:
    path = tmp_path / "template.json"
    of_template = {"header": {"kid": "one", "alg": "none"}, "payload": {"iss": "other", "exp": 1, "x": 2}}
    path.write_text(json.dumps(of_template))
    values = {ISSUER: "app", PRIVATE_KEY: str(key_file), TEMPLATE: str(path)}
    _, sent = await asked(values)
    assert "client_id" not in sent and "scope" not in sent
    assertion = sent["client_assertion"]
    assert jwt.get_unverified_header(assertion) == {"kid": "one", "alg": "RS256", "typ": "JWT"}
    times = {"iat": NOW, "exp": NOW + 300, "nbf": NOW - 60}
    assert verified(assertion, rsa_key("client")) == {"iss": "other", "x": 2, **times}


async def test_an_encrypted_key_of_an_elliptic_curve_signs(autojump_clock: MockClock, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(pem(ec_key(), SECRET))
    values = {ISSUER: "app", PRIVATE_KEY: str(path), PASSPHRASE: SECRET, ALGORITHM: "ES256"}
    _, sent = await asked(values)
    assert verified(sent["client_assertion"], ec_key(), "ES256")["iss"] == "app"


async def test_an_assertion_comes_from_a_file_before_all_else(autojump_clock: MockClock, tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    path.write_text(jwt_of("app") + "\n")
    values = {FILE: str(path), ISSUER: "app", PRIVATE_KEY: "/nowhere", CLIENT_SECRET: "unused"}
    _, sent = await asked(values, {"clientId": "app:1", "scope": "read"})
    assert (sent["client_assertion"], sent["client_id"], sent["scope"]) == (jwt_of("app"), "app:1", "read")


async def test_an_assertion_is_exchanged_for_a_token(autojump_clock: MockClock, tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    path.write_text(jwt_of("app"))
    values = {RETRIEVER: JWT_BEARER, FILE: str(path), SCOPE: "read"}
    headers, sent = await asked(values, {"clientId": "unused", "scope": "unused"})
    assert "Authorization" not in headers
    assert sent == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": jwt_of("app"),
        "scope": "read",
    }


async def test_files_may_be_replaced(autojump_clock: MockClock, tmp_path: Path, key_file: Path) -> None:
    """Until they can be used again, the old token is."""
    responses = [response(jwt_of("alice")), response(jwt_of("bob"))]
    with running(Provider(responses=responses)) as provider:
        values = {TOKEN_URL: provider.url("token"), ISSUER: "app", PRIVATE_KEY: str(key_file)}
        login = oauth_login(values, {}, timed_world())
        await token_sent(login)
        key_file.write_bytes(b"-----BEGIN")
        await trio.sleep(3600 * 0.86)
        assert await token_sent(login) == jwt_of("alice")
        key_file.write_bytes(pem(rsa_key("newer")))
        await trio.sleep(60)
        assert await token_sent(login) == jwt_of("bob")
        assertion = parse_qs(provider.token_requests[1][1].decode())["client_assertion"][0]
        assert verified(assertion, rsa_key("newer"))["iss"] == "app"


async def test_a_file_that_became_useless_is_named(autojump_clock: MockClock, tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    path.write_text("")
    login = oauth_login({TOKEN_URL: "http://127.0.0.1:1/", FILE: str(path)}, {}, timed_world())
    for useless in (b"", b"\xff", b"opaque", b"x" * (MOST_FILE_BYTES + 1)):
        path.write_bytes(useless)
        with pytest.raises(NotPrepared, match=f"{path}: (no assertion: .*|a file of more than .* bytes)"):
            await token_sent(login)
    path.unlink()
    with pytest.raises(NotPrepared, match="No such file"):
        await token_sent(login)


Change = Callable[[Path], dict[str, str]]


def _key(data: bytes, **others: str) -> Change:
    def write(directory: Path) -> dict[str, str]:
        path = directory / "other.pem"
        path.write_bytes(data)
        return {PRIVATE_KEY: str(path), **{ASSERTION + name.replace("_", "."): text for name, text in others.items()}}

    return write


def _template(text: str) -> Change:
    def write(directory: Path) -> dict[str, str]:
        path = directory / "template.json"
        path.write_text(text)
        return {TEMPLATE: str(path)}

    return write


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda _: {PRIVATE_KEY: ""}, f"{PRIVATE_KEY}: missing, and an assertion needs it"),
        (lambda _: {PRIVATE_KEY: "/nowhere/key"}, f"{PRIVATE_KEY}=/nowhere/key: no such file"),
        (lambda path: {PRIVATE_KEY: str(path)}, "a directory, not a file"),
        (lambda _: {FILE: "/nowhere/assertion"}, f"{FILE}=/nowhere/assertion: no such file"),
        (lambda _: {TEMPLATE: "/nowhere/template"}, f"{TEMPLATE}=/nowhere/template: no such file"),
        (lambda _: {ISSUER: " "}, f"{ISSUER}: empty"),
        (lambda _: {f"{ASSERTION}claim.sub": ""}, f"{ASSERTION}claim.sub: empty"),
        (lambda _: {PASSPHRASE: ""}, f"{PASSPHRASE}: empty"),
        (lambda _: {ALGORITHM: "HS256"}, f"{ALGORITHM}=HS256: not an algorithm of assertions; allowed: RS256, ES256"),
        (lambda _: {ALGORITHM: "es256"}, "not a key for es256"),
        (lambda _: {f"{ASSERTION}claim.exp.seconds": "86401"}, "allowed: 0 to 86400"),
        (lambda _: {f"{ASSERTION}claim.nbf.seconds": "-1"}, "allowed: 0 to 3600"),
        (lambda _: {ALLOWED_FILES: "/etc/key.pem"}, f"the file is not in {ALLOWED_FILES}; allowed: /etc/key.pem"),
        (_key(b""), "no private key in PEM form, or the passphrase does not fit"),
        (_key(pem(rsa_key("client"), SECRET)), "the passphrase does not fit"),
        (_key(pem(rsa_key("client"), SECRET), private_key_passphrase="wrong"), "the passphrase does not fit"),
        (_key(pem(ec.generate_private_key(ec.SECP384R1())), algorithm="ES256"), "not a key for ES256"),
        (_template("[]"), "not a JSON object"),
        (_template('{"header": []}'), "header and payload must be JSON objects"),
    ],
)
def test_a_client_that_cannot_make_assertions_does_not_start(
    change: Change, problem: str, tmp_path: Path, key_file: Path
) -> None:
    values = {TOKEN_URL: "http://idp/token", ISSUER: "app", PRIVATE_KEY: str(key_file), **change(tmp_path)}
    for retriever in ({}, {RETRIEVER: JWT_BEARER}):
        with pytest.raises(SettingsError) as error:
            oauth_login({**values, **retriever}, {}, timed_world())
        assert problem in str(error.value) and SECRET not in str(error.value)


def test_a_node_takes_only_the_files_that_it_is_allowed(key_file: Path) -> None:
    values = {TOKEN_URL: "http://idp/token", ISSUER: "app", PRIVATE_KEY: str(key_file), ALLOWED_URLS: "http://idp/token"}
    with pytest.raises(SettingsError, match="none; add it there"):
        oauth_login(values, {}, timed_world(), allowed="")
    oauth_login({**values, ALLOWED_FILES: f"/other, {key_file}"}, {}, timed_world(), allowed="")


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=60).map(lambda it: b"-----BEGIN PRIVATE KEY-----\n" + it)))
def test_any_bytes_are_a_key_or_named_as_none(data: bytes) -> None:
    for passphrase in (None, SECRET):
        with pytest.raises(NotPrepared):
            signer(data, AssertionRules("RS256", "key.pem", passphrase))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["header", "payload", "x"]), inner),
)


@given(st.one_of(st.binary(max_size=300), JSON.map(lambda it: json.dumps(it).encode())))
def test_any_bytes_are_a_template_or_named_as_none(data: bytes) -> None:
    try:
        header, claims = template(data, "template.json")
    except NotPrepared as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(header, dict) and isinstance(claims, dict)
