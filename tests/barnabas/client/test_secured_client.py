"""A client by its settings, over loopback, on a listener with TLS and SASL."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas import sync
from barnabas.client.admin import Admin
from barnabas.client.errors import ConfigException, SaslAuthenticationException, SslAuthenticationException
from barnabas.client.security import channel_security
from barnabas.client.security_settings import NO_SECURITY, SecuritySettings
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import ClusterAccess
from barnabas.protocol.sasl.jwt_claims import encode_unsecured
from barnabas.runtime.real import real_world
from barnabas.runtime.sasl.mechanisms import SaslPorts
from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms
from tests.runtime.sasl_listener import TOPIC, SaslServer
from tests.runtime.tls.stage import authority, certificate, server_security

OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
UNSECURED = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "oauthbearer.sasl.jaas.config": f'{OAUTH_MODULE} unsecuredValidatorAllowableClockSkewMs="60000";',
    "barnabas.oauthbearer.unsecured.tokens": "true",
}


@asynccontextmanager
async def listening(values: dict[str, str] | None = None, **tls: str) -> AsyncIterator[tuple[SaslServer, int]]:
    """A SASL_SSL listener, and its port."""
    world = real_world()
    ports = SaslPorts(os.urandom, servers=ProviderMechanisms(world).servers)
    server = SaslServer(world, values, ports=ports, inner=server_security(world, **tls))
    listener = await world.network.listen("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listener)
        yield server, listener.port
        nursery.cancel_scope.cancel()


def options(port: int, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"127.0.0.1:{port}",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": authority().certificate_pem.decode(),
    } | more


def token(lifetime_seconds: int = 3600) -> str:
    now = real_world().wall_clock.now_ms() // 1000
    return encode_unsecured({"sub": "alice", "iat": now, "exp": now + lifetime_seconds})


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_cluster_knows_who_calls(mechanism: str) -> None:
    async with listening() as (server, port), Admin(**options(port, sasl_mechanism=mechanism)) as admin:
        assert TOPIC in await admin.list_topics()
        assert set(server.principals) == {"User:alice"}


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize("client", [Admin, sync.Admin], ids=["trio", "sync"])
async def test_a_wrong_password_is_refused_without_a_second_try(client: type) -> None:
    async with listening() as (server, port):
        wrong = options(port, sasl_plain_password="open-sesame")
        with pytest.raises(SaslAuthenticationException, match=f"127.0.0.1:{port}.*Authentication failed") as caught:
            if client is Admin:
                async with Admin(**wrong) as admin:
                    await admin.list_topics()
            else:
                await trio.to_thread.run_sync(_list_topics, wrong)
        assert server.security.counts.failed == 1
        assert "sesame" not in str(caught.value)


def _list_topics(given: dict[str, Any]) -> None:
    with sync.Admin(**given) as admin:
        admin.list_topics()


async def test_a_listener_that_another_authority_vouches_for_is_not_trusted() -> None:
    strange = authority("Another").certificate_pem.decode()
    async with listening() as (_, port), Admin(**options(port, ssl_truststore_certificates=strange)) as admin:
        with pytest.raises(SslAuthenticationException, match=f"127.0.0.1:{port} failed: the peer's certificate"):
            await admin.list_topics()


@pytest.mark.feature("CL-01", "SE-02")
async def test_a_listener_that_wants_a_certificate(tmp_path: Path) -> None:
    own = certificate("carol", key=2)
    file = tmp_path / "carol.pem"
    file.write_bytes(own.key_pem + own.chain_pem)
    async with listening(ssl_client_auth="required") as (server, port):
        async with Admin(**options(port)) as admin:
            with pytest.raises(SslAuthenticationException, match="certificate"):
                await admin.list_topics()
        async with Admin(**options(port, ssl_keystore_type="PEM", ssl_keystore_location=str(file))) as admin:
            assert TOPIC in await admin.list_topics()
        assert set(server.principals) == {"User:alice"}


@pytest.mark.feature("CL-01", "SE-05")
@pytest.mark.parametrize("waits", [False, True])
async def test_a_function_of_the_application_gives_the_token(waits: bool) -> None:
    calls: list[str] = []

    def at_once() -> str:
        calls.append("token")
        return token()

    async def later() -> str:
        await trio.sleep(0)
        return at_once()

    given: dict[str, Any] = {"sasl_mechanism": "OAUTHBEARER", "sasl_plain_username": None, "sasl_plain_password": None}
    given["sasl_login_callback_handler_class"] = later if waits else at_once
    async with listening(UNSECURED) as (server, port), Admin(**options(port, **given)) as admin:
        assert TOPIC in await admin.list_topics()
        assert set(server.principals) == {"User:alice"}
    assert calls == ["token"], "a token serves several connections"


async def test_a_function_that_has_no_token_ends_the_client() -> None:
    def fails() -> str:
        raise RuntimeError(f"no wallet for {token()}")

    given: dict[str, Any] = {"sasl_mechanism": "OAUTHBEARER", "sasl_plain_username": None, "sasl_plain_password": None}
    given["sasl_login_callback_handler_class"] = fails
    async with listening(UNSECURED) as (_, port), Admin(**options(port, **given)) as admin:
        with pytest.raises(SaslAuthenticationException, match="RuntimeError") as caught:
            await admin.list_topics()
    assert "eyJ" not in str(caught.value)


async def test_a_blocking_client_logs_in_by_a_token() -> None:
    jaas = f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="alice";'
    async with listening(UNSECURED) as (server, port):
        given = options(port, sasl_mechanism="OAUTHBEARER", sasl_jaas_config=jaas)
        security = {
            name: value
            for name, value in given.items()
            if name != "bootstrap_servers" and not name.startswith("sasl_plain_")
        }
        access = ClusterAccess(f"127.0.0.1:{port}", SecuritySettings.of(security).given_values())

        def topics() -> Any:
            with BlockingCluster(access, retry_timeout_ms=5_000) as cluster:
                return cluster.metadata().topics

        assert TOPIC in await trio.to_thread.run_sync(topics)
        assert set(server.principals) == {"User:alice"}


async def test_without_security_there_is_nothing_between() -> None:
    assert channel_security(NO_SECURITY, real_world()) is None


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"ssl_keystore_type": "PEM", "ssl_keystore_location": "/no/such/file.pem"}, "/no/such/file.pem"),
        ({"ssl_truststore_certificates": "rubbish"}, "ssl.truststore.certificates"),
        ({"ssl_cipher_suites": "ROT13"}, "ROT13"),
        ({"ssl_protocol": "SSLv3"}, "ssl.protocol"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_plain_username": None, "sasl_plain_password": None}, "token"),
    ],
)
async def test_settings_that_cannot_be_used_are_one_line(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigException, match=line) as caught:
        async with Admin(**options(1, **given)):
            pass
    assert "\n" not in str(caught.value)
