"""GSSAPI with a key distribution centre of MIT Kerberos: our two ends, and other people's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.runtime.channel import AuthenticationFailed, Channel
from barnabas.runtime.real import real_world
from barnabas.runtime.sasl.authenticator import SaslChannelSecurity
from barnabas.runtime.sasl.kerberos import LOCAL_RULES, kerberos_listener
from barnabas.runtime.sasl.mechanisms import SaslPorts, client_mechanism
from barnabas.runtime.sasl.options import ClientSaslOptions, SaslOptionsError
from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms
from tests.compat.java_login import list_topics
from tests.compat.kdc import REALM, Kdc, missing, running_kdc
from tests.runtime.sasl_listener import TOPIC, SaslServer

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.feature("SE-05")]

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
HOST = "localhost"
STEP_SECONDS = 0.02


@dataclass(frozen=True)
class Realm:
    """A centre with a broker and users."""

    kdc: Kdc
    broker: Path
    alice: Path
    mallory: Path
    """Keys of a service that is not the broker."""

    def listener(self, **more: str) -> dict[str, str]:
        return {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "gssapi.sasl.jaas.config": f'{MODULE} useKeyTab=true storeKey=true keyTab="{self.broker}"'
            f' principal="kafka/{HOST}@{REALM}";',
            **more,
        }

    def client(self, jaas_options: str, service: str = "kafka") -> ClientSaslOptions:
        return ClientSaslOptions.of(
            {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": service,
                "sasl.jaas.config": f"{MODULE} {jaas_options};",
            }
        )


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with running_kdc(tmp_path_factory.mktemp("kdc")) as kdc, pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        yield Realm(kdc, kdc.add(f"kafka/{HOST}"), kdc.add("alice"), kdc.add(f"mallory/{HOST}"))


async def serve(nursery: trio.Nursery, values: dict[str, str]) -> tuple[SaslServer, int]:
    world = real_world()
    mechanisms = ProviderMechanisms(world)
    server = SaslServer(world, values, ports=SaslPorts(world.chance.randbytes, servers=mechanisms.servers))
    listener = await world.network.listen("127.0.0.1", 0)
    nursery.start_soon(server.serve, listener, HOST)
    return server, listener.port


async def asked(options: ClientSaslOptions, values: dict[str, str]) -> SaslServer:
    """Ask for metadata by our channel."""
    world = real_world()
    ports = SaslPorts(world.chance.randbytes, clients=ProviderMechanisms(world).clients)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            server, port = await serve(nursery, values)
            security = SaslChannelSecurity(client_mechanism(options, ports))
            channel = Channel(world, nursery, HOST, port, client_id="test", security=security)
            try:
                await channel.call(MetadataRequest(topics=None), timeout_ms=10_000)
            finally:
                nursery.cancel_scope.cancel()
    return server


def test_a_channel_with_a_keytab_is_its_principal(realm: Realm) -> None:
    server = trio.run(asked, realm.client(f'keyTab="{realm.alice}" principal="alice@{REALM}"'), realm.listener())
    assert server.principals == ["User:alice"]


def test_a_channel_uses_the_tickets_of_kinit(realm: Realm) -> None:
    realm.kdc.log_in("alice", realm.alice)
    server = trio.run(asked, realm.client("useTicketCache=true"), realm.listener())
    assert server.principals == ["User:alice"]


def test_rules_make_the_name(realm: Realm) -> None:
    rules = {
        LOCAL_RULES: f"RULE:[2:$1](mallory)s/mallory/bob/,RULE:[1:$1@$0](.*@{REALM})s/@.*///U",
    }
    for principal, keytab, name in (("alice", realm.alice, "ALICE"), (f"mallory/{HOST}", realm.mallory, "bob")):
        client = realm.client(f'keyTab="{keytab}" principal="{principal}@{REALM}"')
        assert trio.run(asked, client, realm.listener(**rules)).principals == [f"User:{name}"]


@pytest.mark.parametrize(
    ("jaas_options", "service", "problem"),
    [
        ('keyTab="{alice}" principal="nobody@' + REALM + '"', "kafka", "no ticket of Kerberos"),
        ('keyTab="/nowhere" principal="alice@' + REALM + '"', "kafka", "no ticket of Kerberos"),
        ('keyTab="{alice}" principal="alice@' + REALM + '"', "unknown", "no ticket of Kerberos: Server .* not found"),
        (
            'keyTab="{alice}" principal="alice@' + REALM + '"',
            "mallory",
            "invalid credentials with SASL mechanism GSSAPI",
        ),
    ],
)
def test_a_channel_without_the_right_ticket_is_nobody(
    realm: Realm, jaas_options: str, service: str, problem: str
) -> None:
    client = realm.client(jaas_options.format(alice=realm.alice), service)
    with pytest.RaisesGroup(pytest.RaisesExc(AuthenticationFailed, match=problem)):
        trio.run(asked, client, realm.listener())


def test_a_name_without_a_rule_is_nobody(realm: Realm) -> None:
    rules = {LOCAL_RULES: "RULE:[2:$1]"}
    client = realm.client(f'keyTab="{realm.alice}" principal="alice@{REALM}"')
    with pytest.RaisesGroup(pytest.RaisesExc(AuthenticationFailed, match="invalid credentials")):
        trio.run(asked, client, realm.listener(**rules))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"gssapi.sasl.jaas.config": f'{MODULE} keyTab="/nowhere" principal="kafka/{HOST}@{REALM}";'},
            "keyTab=/nowhere",
        ),
        ({"gssapi.sasl.jaas.config": f'{MODULE} keyTab="/nowhere";'}, "the option principal"),
        ({LOCAL_RULES: "RULE:[x"}, "not a rule"),
    ],
)
def test_bad_settings_of_a_listener_are_named(realm: Realm, change: dict[str, str], problem: str) -> None:
    world = real_world()
    with pytest.raises(SaslOptionsError, match=problem):
        SaslServer(
            world,
            realm.listener(**change),
            ports=SaslPorts(world.chance.randbytes, servers=ProviderMechanisms(world).servers),
        )


def ask_kafka_python(port: int) -> set[str]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        bootstrap_servers=f"{HOST}:{port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
        bootstrap_timeout_ms=4000,
    )
    try:
        return set(consumer.topics())
    finally:
        consumer.close()


def ask_aiokafka(port: int) -> set[str]:
    from aiokafka.client import AIOKafkaClient

    async def ask() -> set[str]:
        client = AIOKafkaClient(
            bootstrap_servers=f"{HOST}:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name="kafka",
        )
        try:
            await client.bootstrap()
            return set((await client.fetch_all_metadata()).topics())
        finally:
            await client.close()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(ask_kafka_python, marks=pytest.mark.client("kafka-python"), id="kafka-python"),
        pytest.param(ask_aiokafka, marks=pytest.mark.client("aiokafka"), id="aiokafka"),
    ],
)
def test_other_clients_are_served_by_their_tickets(realm: Realm, ask: Callable[[int], set[str]]) -> None:
    realm.kdc.log_in("alice", realm.alice)

    async def story() -> tuple[SaslServer, set[str]]:
        async with trio.open_nursery() as nursery:
            server, port = await serve(nursery, realm.listener())
            topics = await trio.to_thread.run_sync(ask, port)
            nursery.cancel_scope.cancel()
        return server, topics

    server, topics = trio.run(story)
    assert topics == {TOPIC} and set(server.principals) == {"User:alice"}


@pytest.mark.client("java")
def test_java_is_served_by_its_keytab(realm: Realm, tmp_path: Path) -> None:
    values = {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{MODULE} useKeyTab=true storeKey=true keyTab="{realm.alice}" principal="alice@{REALM}";',
    }
    properties = {"java.security.krb5.conf": realm.kdc.environment["KRB5_CONFIG"]}

    async def story() -> tuple[SaslServer, str]:
        async with trio.open_nursery() as nursery:
            server, port = await serve(nursery, realm.listener())
            out = await trio.to_thread.run_sync(list_topics, tmp_path, f"{HOST}:{port}", values, properties)
            nursery.cancel_scope.cancel()
        return server, out

    server, out = trio.run(story)
    assert TOPIC in out and set(server.principals) == {"User:alice"}


def test_hostile_tokens_are_refused(realm: Realm) -> None:
    from barnabas.protocol.sasl.mechanism import SaslRefused

    options = {"keyTab": str(realm.broker), "principal": f"kafka/{HOST}@{REALM}"}
    listener = kerberos_listener({}, options)
    for token in (b"", b"\x60", b"\x60\x84\xff\xff\xff\xff", b"\x00" * 500_000, b"\x60\x82" + b"\xff" * 65_000):
        mechanism = listener.mechanism()
        with pytest.raises(SaslRefused, match=r"^$"):
            mechanism.receive(token)
        with pytest.raises(SaslRefused):
            mechanism.receive(b"")
        assert mechanism.result is None
