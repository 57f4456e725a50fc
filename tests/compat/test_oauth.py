"""Other people's clients authenticate by OAUTHBEARER: with tokens of a provider, and with unsigned ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trio.testing

from barnabas.runtime.real import real_world
from barnabas.runtime.sasl.mechanisms import SaslPorts
from barnabas.runtime.sasl.oauth_client import CLIENT_ID, CLIENT_SECRET, HANDLERS
from barnabas.runtime.sasl.oauth_server import JWKS_URL
from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms
from barnabas.settings.oauth import ALLOWED_URLS, UNSECURED_TOKENS
from tests.compat.java_login import list_topics
from tests.compat.sasl_clients import (
    Refused,
    Use,
    topics_by_aiokafka,
    topics_by_confluent,
    topics_by_kafka_python,
    used,
)
from tests.runtime.sasl.provider import Provider, public_jwk, rsa_key, running, signed
from tests.runtime.sasl_listener import TOPIC, SaslServer

pytestmark = [pytest.mark.compat, pytest.mark.feature("SE-05")]

JAAS = (
    'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredValidatorRequiredScope="a";'
)


@dataclass(frozen=True)
class Account:
    """A client's way to a token."""

    token: str
    token_url: str

    def expires_seconds(self) -> float:
        return time.time() + 3600


def confluent(port: int, **more: object) -> set[str]:
    return topics_by_confluent(port, "OAUTHBEARER", needs_token=True, **more)


def ask_confluent(port: int, account: Account) -> set[str]:
    return confluent(port, oauth_cb=lambda _: (account.token, account.expires_seconds()))


def ask_confluent_with_endpoint(port: int, account: Account) -> set[str]:
    return confluent(
        port,
        **{
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": account.token_url,
            "sasl.oauthbearer.client.id": "app",
            "sasl.oauthbearer.client.secret": "secret",
        },
    )


def ask_kafka_python(port: int, account: Account) -> set[str]:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return account.token

    return topics_by_kafka_python(port, "OAUTHBEARER", sasl_oauth_token_provider=Tokens())


def ask_aiokafka(port: int, account: Account) -> set[str]:
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return account.token

    return topics_by_aiokafka(port, "OAUTHBEARER", sasl_oauth_token_provider=Tokens())


Ask = Callable[[int, Account], set[str]]

CLIENTS = [
    pytest.param(ask_confluent, marks=pytest.mark.client("confluent-kafka"), id="confluent-kafka"),
    pytest.param(ask_confluent_with_endpoint, marks=pytest.mark.client("confluent-kafka"), id="confluent-kafka-oidc"),
    pytest.param(ask_kafka_python, marks=pytest.mark.client("kafka-python"), id="kafka-python"),
    pytest.param(ask_aiokafka, marks=pytest.mark.client("aiokafka"), id="aiokafka"),
]


async def asked(values: dict[str, str], ask: Use) -> tuple[SaslServer, set[str] | Refused]:
    world = real_world()
    mechanisms = ProviderMechanisms(world)
    values = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": JAAS,
        "sasl.oauthbearer.expected.audience": "kafka",
        **values,
    }
    server = SaslServer(world, values, ports=SaslPorts(world.chance.randbytes, servers=mechanisms.servers))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mechanisms.run)
        await trio.testing.wait_all_tasks_blocked()
        result = await used(world, server, ask)
        nursery.cancel_scope.cancel()
    return server, result


@pytest.mark.slow
@pytest.mark.parametrize("is_good", [True, False], ids=["good", "forged"])
@pytest.mark.parametrize("ask", CLIENTS)
def test_a_token_of_the_provider_is_needed(ask: Ask, is_good: bool) -> None:
    now = int(time.time())
    claims = {"sub": "alice", "aud": "kafka", "iat": now, "exp": now + 3600, "scope": "a"}
    token = signed(rsa_key("one" if is_good else "another"), claims)
    response = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 3600}).encode()
    with running(
        Provider(keys=[public_jwk("RS256", rsa_key("one"), "one")], responses=[(200, response)] * 9)
    ) as provider:
        url = provider.url("jwks")
        account = Account(token, provider.url("token"))
        server, result = trio.run(asked, {JWKS_URL: url, ALLOWED_URLS: url}, lambda port: ask(port, account))
    if is_good:
        assert result == {TOPIC} and set(server.principals) == {"User:alice"}
    else:
        assert isinstance(result, Refused) and server.principals == [] and server.security.counts.failed > 0


@pytest.mark.client("confluent-kafka")
@pytest.mark.parametrize(("scope", "is_enough"), [("a", True), ("b", False)])
def test_librdkafka_makes_unsigned_tokens(scope: str, is_enough: bool) -> None:
    options = {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal=bob scope={scope}",
    }
    server, result = trio.run(asked, {UNSECURED_TOKENS: "true"}, lambda port: confluent(port, **options))
    if is_enough:
        assert result == {TOPIC} and set(server.principals) == {"User:bob"}
    else:
        assert isinstance(result, Refused) and "insufficient_scope" in str(result) and server.principals == []


JAVA_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.mark.client("java")
@pytest.mark.parametrize(("scope", "is_enough"), [("|a|b", True), ("|b", False)])
def test_java_makes_unsigned_tokens(tmp_path: Path, scope: str, is_enough: bool) -> None:
    jaas = f'{JAVA_MODULE} unsecuredLoginStringClaim_sub="bob" unsecuredLoginListClaim_scope="{scope}"'
    values = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{jaas} unsecuredLoginExtension_traceId="7";',
    }

    def ask(port: int) -> set[str]:
        return set(list_topics(tmp_path, f"127.0.0.1:{port}", values, {}, code=0 if is_enough else 1).split("\n"))

    server, result = trio.run(asked, {UNSECURED_TOKENS: "true"}, ask)
    assert isinstance(result, set)
    if is_enough:
        assert TOPIC in result and set(server.principals) == {"User:bob"}
    else:
        assert any("insufficient_scope" in line for line in result) and server.principals == []


@pytest.mark.client("java")
@pytest.mark.parametrize("is_good", [True, False], ids=["good", "forged"])
def test_java_gets_a_token_of_the_provider(tmp_path: Path, is_good: bool) -> None:
    now = int(time.time())
    claims = {"sub": "alice", "aud": "kafka", "iat": now, "exp": now + 3600}
    token = signed(rsa_key("one" if is_good else "another"), claims)
    response = (200, json.dumps({"access_token": token}).encode())
    with running(Provider(keys=[public_jwk("RS256", rsa_key("one"), "one")], responses=[response] * 9)) as provider:
        keys_url, token_url = provider.url("jwks"), provider.url("token")
        values = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{JAVA_MODULE};",
            CLIENT_ID: "app",
            CLIENT_SECRET: "secret",
            "sasl.login.callback.handler.class": HANDLERS[0],
            "sasl.oauthbearer.token.endpoint.url": token_url,
        }

        def ask(port: int) -> set[str]:
            address, properties = f"127.0.0.1:{port}", {ALLOWED_URLS: token_url}
            return set(list_topics(tmp_path, address, values, properties, code=0 if is_good else 1).split("\n"))

        server, result = trio.run(asked, {JWKS_URL: keys_url, ALLOWED_URLS: keys_url}, ask)
    assert isinstance(result, set)
    if is_good:
        assert TOPIC in result and set(server.principals) == {"User:alice"}
    else:
        assert any("invalid_token" in line for line in result) and server.principals == []
