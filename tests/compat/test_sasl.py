"""Other people's clients authenticate by SASL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
import trio

from barnabas.runtime.real import real_world
from barnabas.runtime.sasl.mechanisms import TokenCredential
from barnabas.runtime.security import ListenerSecurity
from tests.compat import sasl_clients
from tests.compat.available import kafka_libs
from tests.compat.java import Java
from tests.compat.sasl_clients import (
    Refused,
    Use,
    topics_by_aiokafka,
    topics_by_confluent,
    topics_by_kafka_python,
)
from tests.runtime.sasl_listener import TOPIC, SaslServer, Users
from tests.runtime.tls.stage import authority, server_security

pytestmark = pytest.mark.compat

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def ask_confluent(port: int, mechanism: str, user: str, password: str, **more: str) -> set[str]:
    login = {"sasl.username": user, "sasl.password": password}
    return topics_by_confluent(port, mechanism, **login, **more)


def ask_kafka_python(port: int, mechanism: str, user: str, password: str) -> set[str]:
    return topics_by_kafka_python(port, mechanism, sasl_plain_username=user, sasl_plain_password=password)


def ask_aiokafka(port: int, mechanism: str, user: str, password: str) -> set[str]:
    return topics_by_aiokafka(port, mechanism, sasl_plain_username=user, sasl_plain_password=password)


Ask = Callable[[int, str, str, str], set[str]]

CLIENTS = [
    pytest.param(ask_confluent, marks=pytest.mark.client("confluent-kafka"), id="confluent-kafka"),
    pytest.param(ask_kafka_python, marks=pytest.mark.client("kafka-python"), id="kafka-python"),
    pytest.param(ask_aiokafka, marks=pytest.mark.client("aiokafka"), id="aiokafka"),
]


def used(
    use: Use,
    values: dict[str, str] | None = None,
    users: Users | None = None,
    inner: ListenerSecurity | None = None,
) -> tuple[SaslServer, set[str] | Refused]:
    """The listener, and what the client saw or why it was refused."""
    world = real_world()
    server = SaslServer(world, values or {}, users, inner=inner)
    return server, trio.run(sasl_clients.used, world, server, use)


@pytest.mark.feature("SE-03", "SE-04")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("ask", CLIENTS)
def test_a_client_with_the_right_password_is_served(ask: Ask, mechanism: str) -> None:
    server, result = used(lambda port: ask(port, mechanism, "alice", "alice-secret"))
    assert result == {TOPIC}
    assert set(server.principals) == {"User:alice"}
    assert server.security.counts.successful > 0
    assert server.security.counts.failed == 0


@pytest.mark.slow
@pytest.mark.feature("SE-03", "SE-04")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("ask", CLIENTS)
def test_a_client_with_a_wrong_password_is_not_served(ask: Ask, mechanism: str) -> None:
    server, result = used(lambda port: ask(port, mechanism, "alice", "guess"))
    assert isinstance(result, Refused)
    assert server.principals == []
    assert server.security.counts.successful == 0
    assert server.security.counts.failed > 0


@pytest.mark.feature("SE-06")
@pytest.mark.client("confluent-kafka")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_renews_its_session(mechanism: str) -> None:
    from confluent_kafka.admin import AdminClient

    def use(port: int) -> set[str]:
        admin = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
            }
        )
        until, topics = monotonic() + 5, set()
        while monotonic() < until:
            topics |= set(admin.list_topics(timeout=5).topics)
        return topics

    server, result = used(use, {"connections.max.reauth.ms": "1500"})
    assert result == {TOPIC}
    assert set(server.principals) == {"User:alice"}
    counts = server.security.counts
    assert counts.successful_reauthentication >= 2
    assert (counts.failed, counts.failed_reauthentication, counts.expired_connections_killed) == (0, 0, 0)


JAAS = "org.apache.kafka.common.security.{}LoginModule required username='{}' password='{}'{};"


def java_asks(directory: Path, mechanism: str, jaas: str, code: int = 0) -> Use:
    """Asks for the versions of the brokers."""

    def use(port: int) -> set[str]:
        config = directory / "client.properties"
        lines = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas,
            "default.api.timeout.ms": "10000",
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        libs = kafka_libs()
        assert libs is not None
        address = ("--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(config))
        printed = Java(libs).run("broker-api-versions", *address, code=code)
        if code:
            raise Refused(printed.out + printed.err)
        return {line.split(" ", 1)[0] for line in printed.lines if "(id:" in line}

    return use


@pytest.mark.feature("SE-03", "SE-04")
@pytest.mark.client("java")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_own_client(tmp_path: Path, mechanism: str) -> None:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    jaas = JAAS.format(module, "alice", "alice-secret", "")
    server, result = used(java_asks(tmp_path, mechanism, jaas))
    assert not isinstance(result, Refused) and len(result) == 1
    assert set(server.principals) == {"User:alice"}
    wrong = JAAS.format(module, "alice", "guess", "")
    server, result = used(java_asks(tmp_path, mechanism, wrong, code=1))
    assert isinstance(result, Refused)
    expected = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else f"due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert expected in str(result)
    assert server.principals == []


@pytest.mark.feature("SE-04")
@pytest.mark.client("java")
def test_kafkas_own_client_with_a_delegation_token(tmp_path: Path) -> None:
    expires_ms = real_world().wall_clock.now_ms() + 3_600_000
    users = Users(tokens={"token-1": TokenCredential(b"hmac", "alice", expires_ms)})
    jaas = JAAS.format("scram.Scram", "token-1", "aG1hYw==", " tokenauth=true")
    server, result = used(java_asks(tmp_path, "SCRAM-SHA-256", jaas), users=users)
    assert not isinstance(result, Refused) and len(result) == 1
    assert set(server.principals) == {"User:alice"}
    assert set(server.token_authenticated) == {True}


@pytest.mark.feature("SE-03", "SE-04")
@pytest.mark.client("confluent-kafka")
@pytest.mark.parametrize("password", ["alice-secret", "guess"])
def test_librdkafka_over_tls(password: str) -> None:
    secure = {"security.protocol": "SASL_SSL", "ssl.ca.pem": authority().certificate_pem.decode()}
    server, result = used(
        lambda port: ask_confluent(port, "SCRAM-SHA-512", "alice", password, **secure),
        inner=server_security(real_world()),
    )
    if password == "guess":
        assert isinstance(result, Refused)
        assert server.principals == []
    else:
        assert result == {TOPIC}
        assert set(server.principals) == {"User:alice"}
