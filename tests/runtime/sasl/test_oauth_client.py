"""A client with OAUTHBEARER: where its tokens come from, and when they are replaced."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from barnabas.protocol.sasl.mechanism import Authenticated
from barnabas.protocol.sasl.oauthbearer import BearerToken, ClientFirstMessage
from barnabas.runtime.sasl.oauth_client import (
    CLIENT_ID,
    CLIENT_SECRET,
    JWT_BEARER,
    RETRIEVER,
    TOKEN_URL,
    OAuthExchange,
    OAuthLogin,
    oauth_login,
)
from barnabas.runtime.sasl.oauth_server import oauth_listener
from barnabas.runtime.sasl.prepared import NotPrepared, PreparedMechanism
from barnabas.runtime.sasl.token_providers import CallbackTokens, RefreshingTokens
from barnabas.runtime.sasl.token_refresh import RETRY_MS, RefreshRules, refresh_ms
from barnabas.settings.errors import SettingsError
from barnabas.settings.oauth import ALLOWED_URLS, UNSECURED_TOKENS
from tests.runtime.sasl.provider import Provider, rsa_key, running, signed
from tests.runtime.sasl.timed_world import START_MS, timed_world

pytestmark = pytest.mark.feature("SE-05")

NOW = START_MS // 1000
ACCOUNT = {CLIENT_ID: "app:1", CLIENT_SECRET: "p%ss word"}


FILE_RETRIEVER = "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever"


def jwt_of(name: str, seconds: int = 3600) -> str:
    return signed(rsa_key("one"), {"sub": name, "iat": NOW, "exp": NOW + seconds})


def response(token: str) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": token, "expires_in": 3600}).encode()


async def token_sent(login: OAuthLogin) -> str:
    exchange = login("broker-1")
    await exchange.prepare()
    return ClientFirstMessage.parse(exchange.first()).token


async def test_a_token_comes_from_the_endpoint_and_is_kept(autojump_clock: MockClock) -> None:
    with running(Provider(responses=[response(jwt_of("alice")), response(jwt_of("bob"))])) as provider:
        values = {TOKEN_URL: provider.url("token"), "sasl.oauthbearer.scope": "read write", **ACCOUNT}
        login = oauth_login(values, {}, timed_world())
        assert await token_sent(login) == jwt_of("alice")
        assert await token_sent(login) == jwt_of("alice")
        [(headers, body)] = provider.token_requests
        assert b64decode(headers["Authorization"].removeprefix("Basic ")) == b"app:1:p%ss word"
        assert body == b"grant_type=client_credentials&scope=read write"
        assert headers["Content-Type"] == "application/x-www-form-urlencoded"
        await trio.sleep(3600 * 0.86)
        assert await token_sent(login) == jwt_of("bob")


async def test_the_account_is_encoded_if_the_provider_wants_it(autojump_clock: MockClock) -> None:
    with running(Provider(responses=[response(jwt_of("alice"))])) as provider:
        values = {TOKEN_URL: provider.url("token"), "sasl.oauthbearer.header.urlencode": "true"}
        options = {"clientId": "app:1", "clientSecret": "p%ss word", "scope": "read write"}
        await token_sent(oauth_login(values, options, timed_world()))
        [(headers, body)] = provider.token_requests
        assert b64decode(headers["Authorization"].removeprefix("Basic ")) == b"app%3A1:p%25ss+word"
        assert body == b"grant_type=client_credentials&scope=read+write"


async def test_a_failing_endpoint_is_tried_again_for_a_while(autojump_clock: MockClock) -> None:
    with running(Provider(responses=[(500, b""), (503, b""), response(jwt_of("alice"))])) as provider:
        login = oauth_login({TOKEN_URL: provider.url("token"), **ACCOUNT}, {}, timed_world())
        assert await token_sent(login) == jwt_of("alice")
        provider.responses = [(500, b"")] * 100
        other = oauth_login({TOKEN_URL: provider.url("token"), **ACCOUNT}, {}, timed_world())
        with pytest.raises(NotPrepared, match="status 500"):
            await token_sent(other)
        assert trio.current_time() < 12


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((401, b'{"error":"invalid_client"}'), "status 401"),
        ((200, b"<html>"), "no JSON"),
        ((200, b"{}"), "no token in the response"),
        ((200, b'{"access_token": 7}'), "no token in the response"),
        (response("opaque"), "no token for Kafka"),
        (response("a\x01b.c.d"), "no token for Kafka"),
    ],
)
async def test_a_useless_answer_is_final(answer: tuple[int, bytes], problem: str, autojump_clock: MockClock) -> None:
    with running(Provider(responses=[answer])) as provider:
        login = oauth_login({TOKEN_URL: provider.url("token"), **ACCOUNT}, {}, timed_world())
        with pytest.raises(NotPrepared, match=problem) as error:
            await token_sent(login)
        assert "p%ss" not in str(error.value) and len(provider.token_requests) == 1


async def test_a_token_comes_from_a_file_that_somebody_replaces(autojump_clock: MockClock, tmp_path: Path) -> None:
    path = tmp_path / "token"
    login = oauth_login({TOKEN_URL: path.as_uri()}, {}, timed_world())
    with pytest.raises(NotPrepared, match="No such file"):
        await token_sent(login)
    for useless in (b"", b"\xff", b"x" * 200_000, b"opaque"):
        path.write_bytes(useless)
        with pytest.raises(NotPrepared, match=r"not a token|no token for Kafka"):
            await token_sent(login)
    path.write_text(jwt_of("alice") + "\n")
    assert await token_sent(login) == jwt_of("alice")
    path.write_text(jwt_of("bob"))
    await trio.sleep(3500)
    assert await token_sent(login) == jwt_of("bob")


async def test_a_token_comes_from_the_application(autojump_clock: MockClock) -> None:
    made: list[str] = []

    def make() -> BearerToken:
        made.append("x")
        return BearerToken(f"token-{len(made)}", "alice", START_MS + 1000 * len(made) * 3600)

    async def make_later() -> BearerToken:
        await trio.sleep(1)
        return make()

    for callback in (make, make_later):
        made.clear()
        login = oauth_login({}, {"extension_traceId": "7"}, timed_world(), callback=callback)
        exchange = login("broker-1")
        assert isinstance(exchange, PreparedMechanism)
        await exchange.prepare()
        assert exchange.first() == b"n,,\x01auth=Bearer token-1\x01traceId=7\x01\x01"


async def test_a_mistake_of_the_application_is_named_without_its_text(autojump_clock: MockClock) -> None:
    def fails() -> BearerToken:
        raise RuntimeError("secret")

    for callback, problem in (
        (fails, "the application has no token: RuntimeError"),
        (lambda: BearerToken("a\x01auth=Bearer b", "alice", None), "characters that a bearer token cannot have"),
    ):
        with pytest.raises(NotPrepared, match=problem) as error:
            await token_sent(oauth_login({}, {}, timed_world(), callback=callback))
        assert "secret" not in str(error.value)


async def test_both_ends_agree_on_an_unsecured_token(autojump_clock: MockClock) -> None:
    world = timed_world()
    listener = oauth_listener({UNSECURED_TOKENS: "true"}, {"unsecuredValidatorRequiredScope": "a b"}, world)
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": "|a|b",
        "unsecuredLoginNumberClaim_level": "7",
        "unsecuredLoginLifetimeSeconds": "60",
        "unsecuredLoginExtension_traceId": "7",
    }
    await trio.sleep(10)
    client: OAuthExchange = oauth_login({}, options, world)("broker-1")
    await client.prepare()
    server = listener.mechanism()
    assert client.receive(server.receive(client.first())) is None and client.complete
    assert server.result == Authenticated("alice", expires_ms=START_MS + 70_000)


class Tokens:
    """A provider of tokens that live for an hour; `None` in `answers` is a failure."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.now_ms: Callable[[], int] = timed_world().wall_clock.now_ms

    async def token(self) -> BearerToken:
        value = self.answers.pop(0)
        if value is None:
            raise NotPrepared("the provider is down")
        return BearerToken(value, "alice", self.now_ms() + 3600_000, self.now_ms())


async def test_an_old_token_is_used_to_its_end_if_there_is_no_new_one(autojump_clock: MockClock) -> None:
    tokens = RefreshingTokens(Tokens("one", None, None, "two", None, None), timed_world(), RefreshRules())
    assert (await tokens.token()).value == "one"
    await trio.sleep(3590)
    assert (await tokens.token()).value == "one"
    assert (await tokens.token()).value == "one"  # not tried again at once
    await trio.sleep(11)
    with pytest.raises(NotPrepared):
        await tokens.token()
    assert (await tokens.token()).value == "two"
    await trio.sleep(3601)
    with pytest.raises(NotPrepared):
        await tokens.token()


async def test_a_task_replaces_tokens_before_anybody_waits(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    provider = Tokens("one", None, "two", "three")
    login = OAuthLogin(RefreshingTokens(provider, timed_world(), RefreshRules()))
    nursery.start_soon(login.run)
    await trio.sleep(3600 * 0.79)
    assert provider.answers == [None, "two", "three"]
    await trio.sleep(3600 * 0.1)
    assert provider.answers == ["three"]
    assert await token_sent(login) == "two"
    nursery.cancel_scope.cancel()


async def test_callers_at_the_same_time_get_one_token(autojump_clock: MockClock) -> None:
    tokens = RefreshingTokens(Tokens("one"), timed_world(), RefreshRules())
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(tokens.token)


async def test_a_token_without_an_end_is_never_replaced(autojump_clock: MockClock) -> None:
    tokens = RefreshingTokens(CallbackTokens(lambda: BearerToken("one", "alice", None)), timed_world(), RefreshRules())
    assert (await tokens.token()).value == "one"


class Least:
    def random(self) -> float:
        return 0.0

    def randrange(self, start: int, stop: int) -> int:
        return start

    def randbytes(self, n: int) -> bytes:
        return bytes(n)


@pytest.mark.parametrize(
    ("starts", "expires", "now", "due"),
    [
        (0, 3600, 0, 2880),  # 80 % of the lifetime
        (0, 3600, 1000, 2880),
        (None, 3600, 1000, 3080),
        (0, 1000, 0, 700),  # five minutes before the end
        (0, 3600, 2900, 2960),  # not within a minute
        (0, 300, 0, 240),  # too short for both
        (0, 300, 400, 410),
    ],
)
def test_a_token_is_due_as_in_java(starts: int | None, expires: int, now: int, due: int) -> None:
    token = BearerToken("x", "alice", expires * 1000, None if starts is None else starts * 1000)
    assert refresh_ms(token, now * 1000, RefreshRules(), Least()) == due * 1000


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_valid_token_is_due_after_now_and_before_its_end(starts_ms: int, now_ms: int, left_ms: int) -> None:
    due_ms = refresh_ms(BearerToken("x", "alice", now_ms + left_ms, starts_ms), now_ms, RefreshRules(), Least())
    assert due_ms is not None and now_ms <= due_ms <= max(now_ms + left_ms, now_ms + RETRY_MS)


@pytest.mark.parametrize(
    ("values", "options", "problem"),
    [
        ({}, {}, "no token: neither a token endpoint, nor an option unsecuredLoginStringClaim_sub"),
        ({TOKEN_URL: "http://idp/token"}, {}, f"{CLIENT_ID}: missing"),
        ({TOKEN_URL: "http://idp/token", CLIENT_ID: "x"}, {}, f"{CLIENT_SECRET}: missing"),
        ({TOKEN_URL: "http://idp/token", RETRIEVER: FILE_RETRIEVER, **ACCOUNT}, {}, "not a URL for"),
        ({TOKEN_URL: "file:///token", RETRIEVER: JWT_BEARER, **ACCOUNT}, {}, "not a URL for"),
        ({TOKEN_URL: "idp/token", **ACCOUNT}, {}, "not a URL that can be used"),
        ({TOKEN_URL: "http://idp/token", ALLOWED_URLS: "", **ACCOUNT}, {}, "the URL is not in"),
        ({"sasl.login.callback.handler.class": "Mine"}, {}, "a class that is not known here"),
        ({"sasl.login.refresh.window.factor": "0.4"}, {"unsecuredLoginStringClaim_sub": "a"}, "0.5 to 1.0"),
        ({}, {"unsecuredLoginStringClaim_exp": "a"}, "'exp' is set by the lifetime"),
        ({}, {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginExtension_auth": "x"}, "extension name 'auth'"),
        ({}, {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_x": "nan"}, "not a number"),
        (
            {TOKEN_URL: "https://idp/token", **ACCOUNT},
            {"ssl.truststore.location": "/nowhere/ca.pem"},
            "ssl.truststore.location=/nowhere/ca.pem: no such file",
        ),
    ],
)
def test_bad_values_are_named(values: dict[str, str], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as error:
        oauth_login(values, options, timed_world())
    assert problem in str(error.value) and "p%ss" not in str(error.value)


def test_a_node_takes_tokens_only_from_allowed_places() -> None:
    values = {TOKEN_URL: "http://idp/token", **ACCOUNT}
    with pytest.raises(SettingsError, match="none; add it there"):
        oauth_login(values, {}, timed_world(), allowed="")
    oauth_login({**values, ALLOWED_URLS: "http://idp/token"}, {}, timed_world(), allowed="")
