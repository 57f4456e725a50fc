"""The settings of SASL: Kafka's keys, and errors that name them."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.sasl.mechanism import Authenticated, ClientMechanism, ServerMechanism
from barnabas.protocol.sasl.plain import PlainClient
from barnabas.protocol.sasl.scram import ScramClient
from barnabas.runtime.sasl.mechanisms import SaslPorts, client_mechanism, server_mechanisms
from barnabas.runtime.sasl.options import ClientSaslOptions, SaslOptions, SaslOptionsError
from barnabas.settings.listener_values import values_of_listener
from tests.runtime.sasl_listener import PLAIN_JAAS

PORTS = SaslPorts(random.Random(1).randbytes)


def no_credential(mechanism: str, user: str) -> None:
    return None


def test_the_defaults_are_those_of_kafka() -> None:
    options = SaslOptions.of({})
    assert options.mechanisms == ("GSSAPI",)
    assert options.max_reauth_ms == {"GSSAPI": 0}
    assert (options.max_receive_bytes, options.failed_delay_ms) == (524_288, 100)


@pytest.mark.feature("SE-03", "SE-06")
def test_values_of_a_listener_and_of_a_mechanism_take_precedence() -> None:
    raw = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-256,PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": PLAIN_JAAS,
        "connections.max.reauth.ms": "1000",
        "listener.name.clients.scram-sha-256.connections.max.reauth.ms": "2000",
        "sasl.server.max.receive.size": "9000",
        "connection.failed.authentication.delay.ms": "7",
    }
    options = SaslOptions.of(values_of_listener(raw, "CLIENTS"))
    assert options.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert options.max_reauth_ms == {"PLAIN": 1000, "SCRAM-SHA-256": 2000}
    assert (options.max_receive_bytes, options.failed_delay_ms) == (9000, 7)
    assert list(server_mechanisms(options, no_credential, None, PORTS)) == ["PLAIN", "SCRAM-SHA-256"]
    assert SaslOptions.of(values_of_listener(raw, "OTHERS")).mechanisms == ("SCRAM-SHA-512",)


def test_no_secret_is_shown() -> None:
    values = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": PLAIN_JAAS}
    assert "secret" not in repr(SaslOptions.of(values))
    assert "secret" not in repr(ClientSaslOptions.of_listener(values, "PLAIN"))
    client = ClientSaslOptions.of({"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"})
    assert "secret" not in repr(client)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"sasl.enabled.mechanisms": " , "}, "sasl.enabled.mechanisms must name a mechanism; it is empty"),
        ({"connections.max.reauth.ms": "soon"}, "connections.max.reauth.ms=soon: not a whole number"),
        ({"sasl.server.max.receive.size": "-1"}, "sasl.server.max.receive.size=-1: not a whole number"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": 'x required password="secret'},
            "plain.sasl.jaas.config: a quote is not closed",
        ),
    ],
)
def test_settings_that_are_refused(values: dict[str, str], problem: str) -> None:
    with pytest.raises(SaslOptionsError, match=problem) as failure:
        SaslOptions.of(values)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN"}, "the mechanism PLAIN needs plain.sasl.jaas.config"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": "a.Other required;"},
            "must be of the login module org.apache.kafka.common.security.plain.PlainLoginModule; got a.Other",
        ),
        ({"sasl.enabled.mechanisms": "LDAP"}, "there is no SASL mechanism LDAP; available: PLAIN, SCRAM-SHA-256"),
        ({}, "there is no SASL mechanism GSSAPI"),
    ],
)
def test_mechanisms_that_are_refused(values: dict[str, str], problem: str) -> None:
    with pytest.raises(SaslOptionsError, match=problem):
        server_mechanisms(SaslOptions.of(values), no_credential, None, PORTS)


@pytest.mark.feature("SE-04")
def test_the_listener_of_a_controller_cannot_have_scram() -> None:
    options = SaslOptions.of({"sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    with pytest.raises(SaslOptionsError, match="SCRAM-SHA-512 cannot be enabled on a listener of controllers"):
        server_mechanisms(options, None, None, PORTS)


def test_other_mechanisms_are_registered_by_name() -> None:
    class Open:
        result = Authenticated("anyone")

        def receive(self, token: bytes) -> bytes:
            return token

    class OpenClient:
        name = "OPEN"
        complete = True

        def first(self) -> bytes:
            return b""

        def receive(self, challenge: bytes) -> bytes | None:
            return None

    def of_listener(options: SaslOptions) -> type[ServerMechanism]:
        assert options.values["open.key"] == "1"
        return Open

    def of_client(options: ClientSaslOptions) -> object:
        assert options.values["open.key"] == "1"
        return lambda host: OpenClient()

    ports = SaslPorts(PORTS.random_bytes, {"OPEN": of_listener}, {"OPEN": of_client})  # type: ignore[dict-item]
    server = server_mechanisms(
        SaslOptions.of({"sasl.enabled.mechanisms": "OPEN", "open.key": "1"}), no_credential, None, ports
    )
    assert server["OPEN"]().receive(b"x") == b"x"
    client: ClientMechanism = client_mechanism(
        ClientSaslOptions.of({"sasl.mechanism": "OPEN", "open.key": "1"}), ports
    )("host")
    assert client.name == "OPEN"


# Clients

LOGIN = "required username=alice password='alice-secret';"


@pytest.mark.parametrize(
    "values",
    [
        {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret"},
        {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule {LOGIN}",
        },
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"shaded.org.apache.PlainLoginModule {LOGIN}"},
    ],
)
def test_the_ways_to_give_a_password(values: dict[str, str]) -> None:
    mechanism = client_mechanism(ClientSaslOptions.of(values), PORTS)("host")
    assert isinstance(mechanism, PlainClient)
    assert mechanism.first() == b"\0alice\0alice-secret"


def test_each_exchange_of_scram_has_a_nonce_of_its_own() -> None:
    values = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f"x.ScramLoginModule {LOGIN}"}
    begin = client_mechanism(ClientSaslOptions.of(values), PORTS)
    one, other = begin("host"), begin("host")
    assert isinstance(one, ScramClient)
    assert one.first() != other.first()


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"sasl.mechanism": "PLAIN"}, "the mechanism PLAIN needs sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "alice"}, "the mechanism PLAIN needs sasl.jaas.config"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.ScramLoginModule required;"},
            "sasl.jaas.config must be of the login module org.apache.kafka.common.security.plain.PlainLoginModule",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.PlainLoginModule required username=alice;"},
            "sasl.jaas.config must have the options username and password",
        ),
        ({}, "there is no SASL mechanism GSSAPI; available: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ],
)
def test_clients_that_are_refused(values: dict[str, str], problem: str) -> None:
    with pytest.raises(SaslOptionsError, match=problem):
        client_mechanism(ClientSaslOptions.of(values), PORTS)
