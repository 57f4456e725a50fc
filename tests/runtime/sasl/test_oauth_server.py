"""A listener with OAUTHBEARER and its provider: keys that come, change and stay away; tokens signed and unsigned."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from barnabas.protocol.sasl.jwt_claims import encode_unsecured
from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused
from barnabas.protocol.sasl.oauthbearer import ClientFirstMessage, OAuthBearerServer
from barnabas.runtime.sasl.jwks import UNKNOWN_KEY_MS
from barnabas.runtime.sasl.oauth_server import (
    CALLBACK_HANDLER,
    JWKS_URL,
    SECURED_HANDLERS,
    UNSECURED_HANDLER,
    OAuthListener,
    oauth_listener,
)
from barnabas.settings.errors import SettingsError
from barnabas.settings.oauth import ALLOWED_URLS, UNSECURED_TOKENS
from tests.runtime.sasl.provider import Provider, public_jwk, rsa_key, running, signed
from tests.runtime.sasl.timed_world import START_MS, timed_world

pytestmark = pytest.mark.feature("SE-05")

NOW = START_MS // 1000
CLAIMS = {"sub": "alice", "iat": NOW, "exp": NOW + 48 * 3600, "aud": "kafka", "iss": "us"}
RULES = {"sasl.oauthbearer.expected.audience": "kafka, events", "sasl.oauthbearer.expected.issuer": "us"}


def jwk(name: str) -> dict[str, Any]:
    return public_jwk("RS256", rsa_key(name), name)


def token_of(name: str, **claims: Any) -> str:
    return signed(rsa_key(name), CLAIMS | claims, key_id=name)


def listener_at(url: str, **more: str) -> OAuthListener:
    return oauth_listener({JWKS_URL: url, ALLOWED_URLS: url, **RULES, **more}, {}, timed_world())


def log_in(listener: OAuthListener, token: str) -> Authenticated | None:
    server: OAuthBearerServer = listener.mechanism()
    server.receive(ClientFirstMessage(token).encode())
    return server.result


async def test_a_token_of_the_provider_authenticates(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    with running(Provider(keys=[jwk("one")])) as provider:
        listener = listener_at(provider.url("jwks"))
        assert log_in(listener, token_of("one")) is None  # no keys yet
        nursery.start_soon(listener.run)
        assert listener.keys is not None
        await listener.keys.loaded.wait()
        assert log_in(listener, token_of("one")) == Authenticated("alice", expires_ms=(NOW + 48 * 3600) * 1000)
        for bad in (
            token_of("one", aud="other"),
            token_of("one", iss="them"),
            token_of("one", exp=NOW - 60, iat=NOW - 90),
            token_of("one", iat=NOW + 60),
            token_of("one", nbf=NOW + 60),
            encode_unsecured(CLAIMS),
            signed(rsa_key("two"), CLAIMS, key_id="one"),
            "nonsense",
        ):
            assert log_in(listener, bad) is None


async def test_a_new_key_is_found_after_the_login_that_needed_it(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    with running(Provider(keys=[jwk("one")])) as provider:
        listener = listener_at(provider.url("jwks"))
        nursery.start_soon(listener.run)
        assert listener.keys is not None
        await listener.keys.loaded.wait()
        provider.keys = [jwk("two")]
        assert log_in(listener, token_of("two")) is None
        await trio.sleep(UNKNOWN_KEY_MS / 1000)
        await wait_all_tasks_blocked()
        assert log_in(listener, token_of("two")) is not None
        assert log_in(listener, token_of("one")) is None


async def test_invented_key_ids_cause_few_fetches(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    with running(Provider(keys=[jwk("one")])) as provider:
        listener = listener_at(provider.url("jwks"))
        nursery.start_soon(listener.run)
        for attempt in range(100):
            log_in(listener, signed(rsa_key("two"), CLAIMS, key_id=f"invented-{attempt}"))
            log_in(listener, signed(rsa_key("two"), CLAIMS, key_id="x" * 1001))
            await trio.sleep(1)
        assert provider.key_requests <= 11


async def test_an_id_that_is_too_long_causes_no_fetch(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    with running(Provider(keys=[jwk("one")])) as provider:
        listener = listener_at(provider.url("jwks"))
        nursery.start_soon(listener.run)
        await wait_all_tasks_blocked()
        log_in(listener, signed(rsa_key("two"), CLAIMS, key_id="x" * 1001))
        await trio.sleep(60)
        assert provider.key_requests == 1


async def test_keys_are_fetched_every_hour(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    with running(Provider(keys=[jwk("one")])) as provider:
        listener = listener_at(provider.url("jwks"))
        nursery.start_soon(listener.run)
        await trio.sleep(3 * 3600 + 1)
        assert provider.key_requests == 4


async def test_keys_stay_while_the_provider_is_down(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    with running(Provider(keys=[jwk("one")])) as provider:
        listener = listener_at(provider.url("jwks"))
        nursery.start_soon(listener.run)
        await wait_all_tasks_blocked()
        provider.failures = 20
        await trio.sleep(3605)
        assert log_in(listener, token_of("one")) is not None
        assert "status 503" in caplog.text
        assert provider.key_requests < 15  # with growing waits
        await trio.sleep(300)
        assert provider.failures == 0
        provider.keys = []  # a mistake of the provider
        await trio.sleep(3605)
        assert log_in(listener, token_of("one")) is not None


async def test_keys_come_from_a_file_that_changes(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    path = tmp_path / "keys of kafka.json"
    listener = listener_at(path.as_uri())
    nursery.start_soon(listener.run)
    await wait_all_tasks_blocked()
    path.write_text(json.dumps({"keys": [jwk("one")]}))
    await trio.sleep(15)
    assert log_in(listener, token_of("one")) is not None
    replacement = tmp_path / "new"
    replacement.write_text(json.dumps({"keys": [jwk("two")]}))
    replacement.rename(path)
    await trio.sleep(2)
    assert log_in(listener, token_of("two")) is not None
    path.unlink()
    await trio.sleep(15)
    assert log_in(listener, token_of("two")) is not None


def test_unsecured_tokens_need_a_word_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SettingsError, match="needs the keys of the provider"):
        oauth_listener({}, {}, timed_world())
    with pytest.raises(SettingsError, match=UNSECURED_TOKENS):
        oauth_listener({CALLBACK_HANDLER: UNSECURED_HANDLER}, {}, timed_world())
    with pytest.raises(SettingsError, match="needs the keys"):
        oauth_listener({UNSECURED_TOKENS: "true", CALLBACK_HANDLER: SECURED_HANDLERS[0]}, {}, timed_world())
    with caplog.at_level(logging.WARNING):
        oauth_listener({UNSECURED_TOKENS: "true"}, {}, timed_world())
    assert "may be any user" in caplog.text


async def test_unsecured_tokens_authenticate_where_they_are_allowed(autojump_clock: MockClock) -> None:
    options = {
        "unsecuredValidatorPrincipalClaimName": "azp",
        "unsecuredValidatorScopeClaimName": "scp",
        "unsecuredValidatorRequiredScope": "a b",
        "unsecuredValidatorAllowableClockSkewMs": "3000",
    }
    listener = oauth_listener({UNSECURED_TOKENS: "true", CALLBACK_HANDLER: UNSECURED_HANDLER}, options, timed_world())
    claims = {"azp": "bob", "scp": ["a", "b"], "exp": NOW - 2}
    assert log_in(listener, encode_unsecured(claims)) == Authenticated("bob", expires_ms=(NOW - 2) * 1000)
    assert log_in(listener, encode_unsecured(claims | {"scp": ["a"]})) is None
    assert log_in(listener, encode_unsecured(claims | {"exp": NOW - 3})) is None
    await listener.run()  # no keys to keep


def test_keys_are_preferred_to_unsecured_tokens() -> None:
    listener = listener_at("http://127.0.0.1:1/jwks", **{UNSECURED_TOKENS: "true"})
    assert listener.keys is not None


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({JWKS_URL: "https://idp/keys"}, f"{JWKS_URL}=https://idp/keys: the URL is not in {ALLOWED_URLS}"),
        ({JWKS_URL: "https://idp/keys", ALLOWED_URLS: "https://idp/"}, "allowed: https://idp/"),
        ({JWKS_URL: "ftp://idp/keys", ALLOWED_URLS: "ftp://idp/keys"}, "not a URL that can be used"),
        ({JWKS_URL: "https://[", ALLOWED_URLS: "https://["}, "not a URL"),
        ({CALLBACK_HANDLER: "com.example.Mine"}, f"{CALLBACK_HANDLER}=com.example.Mine: a class that is not known"),
        ({"sasl.oauthbearer.jwt.validator.class": "com.example.Mine"}, "a class that is not known"),
        ({"sasl.oauthbearer.clock.skew.seconds": "x"}, "not a whole number"),
        ({"sasl.oauthbearer.sub.claim.name": " "}, "empty"),
        ({"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "allowed: 1 or more"),
    ],
)
def test_bad_values_are_named(values: dict[str, str], problem: str) -> None:
    good = {JWKS_URL: "http://idp/keys", ALLOWED_URLS: "http://idp/keys"}
    if JWKS_URL in values:
        good = {}
    with pytest.raises(SettingsError) as error:
        oauth_listener({**good, **values}, {}, timed_world())
    assert problem in str(error.value)


def test_a_value_of_the_mechanism_takes_precedence() -> None:
    url = "http://idp/keys"
    values = {JWKS_URL: "http://other", f"oauthbearer.{JWKS_URL}": url, ALLOWED_URLS: url}
    assert oauth_listener(values, {}, timed_world()).keys is not None


async def test_a_failure_after_the_error_ends_the_exchange(autojump_clock: MockClock) -> None:
    server = listener_at("http://127.0.0.1:1/jwks").mechanism()
    assert server.receive(ClientFirstMessage("x.y.z").encode()) == b'{"status":"invalid_token"}'
    with pytest.raises(SaslRefused, match="invalid_token"):
        server.receive(b"\x01")
