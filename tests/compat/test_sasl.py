"""Other people's clients authenticate by SASL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import trio

from barnabas.runtime.real import real_world
from tests.runtime.sasl_listener import TOPIC, SaslServer

pytestmark = pytest.mark.compat

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Refused(Exception):
    """The client reported that it did not authenticate."""


def ask_confluent(port: int, mechanism: str, user: str, password: str) -> set[str]:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    errors: list[KafkaError] = []
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": errors.append,
        }
    )
    try:
        return set(admin.list_topics(timeout=5).topics)
    except KafkaException as error:
        admin.poll(0)
        [refusal, *_] = [each for each in errors if each.code() == KafkaError._AUTHENTICATION]
        raise Refused(refusal.str()) from error


def ask_kafka_python(port: int, mechanism: str, user: str, password: str) -> set[str]:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError as KafkaPythonError

    try:
        consumer = KafkaConsumer(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
            bootstrap_timeout_ms=4000,
        )
    except KafkaPythonError as error:
        raise Refused(str(error)) from error
    try:
        return set(consumer.topics())
    finally:
        consumer.close()


def ask_aiokafka(port: int, mechanism: str, user: str, password: str) -> set[str]:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.errors import KafkaError as AiokafkaError

    async def ask() -> set[str]:
        client = AIOKafkaClient(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
        try:
            await client.bootstrap()
            return set((await client.fetch_all_metadata()).topics())
        finally:
            await client.close()

    try:
        return asyncio.run(ask())
    except AiokafkaError as error:
        raise Refused(str(error)) from error


Ask = Callable[[int, str, str, str], set[str]]

CLIENTS = [
    pytest.param(ask_confluent, marks=pytest.mark.client("confluent-kafka"), id="confluent-kafka"),
    pytest.param(ask_kafka_python, marks=pytest.mark.client("kafka-python"), id="kafka-python"),
    pytest.param(ask_aiokafka, marks=pytest.mark.client("aiokafka"), id="aiokafka"),
]


async def _asked(ask: Ask, mechanism: str, user: str, password: str) -> tuple[SaslServer, set[str] | Refused]:
    world = real_world()
    server = SaslServer(world)
    listener = await world.network.listen("127.0.0.1", 0)
    result: set[str] | Refused
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listener)
        try:
            result = await trio.to_thread.run_sync(ask, listener.port, mechanism, user, password)
        except Refused as refused:
            result = refused
        nursery.cancel_scope.cancel()
    return server, result


@pytest.mark.feature("SE-03", "SE-04")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("ask", CLIENTS)
def test_a_client_with_the_right_password_is_served(ask: Ask, mechanism: str) -> None:
    server, result = trio.run(_asked, ask, mechanism, "alice", "alice-secret")
    assert result == {TOPIC}
    assert set(server.principals) == {"User:alice"}
    assert server.security.counts.successful > 0
    assert server.security.counts.failed == 0


@pytest.mark.feature("SE-03", "SE-04")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("ask", CLIENTS)
def test_a_client_with_a_wrong_password_is_not_served(ask: Ask, mechanism: str) -> None:
    server, result = trio.run(_asked, ask, mechanism, "alice", "guess")
    assert isinstance(result, Refused)
    assert server.principals == []
    assert server.security.counts.successful == 0
    assert server.security.counts.failed > 0
