"""Other people's clients ask a listener with SASL for the topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import trio

from barnabas.runtime.world import World
from tests.runtime.sasl_listener import SaslServer

Use = Callable[[int], set[str]]
"""Uses the listener at a port, and returns what it saw."""


class Refused(Exception):
    """The client reported that it did not authenticate."""


def topics_by_confluent(port: int, mechanism: str, *, needs_token: bool = False, **more: object) -> set[str]:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    errors: list[KafkaError] = []
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "error_cb": errors.append,
            **more,
        }
    )
    if needs_token:
        admin.poll(1)  # serves the callback for tokens
    try:
        return set(admin.list_topics(timeout=5).topics)
    except KafkaException as error:
        admin.poll(0)
        [refusal, *_] = [each for each in errors if each.code() == KafkaError._AUTHENTICATION]
        raise Refused(refusal.str()) from error


def topics_by_kafka_python(port: int, mechanism: str, **more: Any) -> set[str]:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError as KafkaPythonError

    try:
        consumer = KafkaConsumer(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            bootstrap_timeout_ms=4000,
            **more,
        )
    except KafkaPythonError as error:
        raise Refused(str(error)) from error
    try:
        return set(consumer.topics())
    finally:
        consumer.close()


def topics_by_aiokafka(port: int, mechanism: str, **more: Any) -> set[str]:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.errors import KafkaError as AiokafkaError

    async def ask() -> set[str]:
        client = AIOKafkaClient(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            **more,
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


async def used(world: World, server: SaslServer, use: Use) -> set[str] | Refused:
    """Serves a client in a thread; returns the topics that it saw, or its refusal."""
    listener = await world.network.listen("127.0.0.1", 0)
    result: set[str] | Refused
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listener)
        try:
            result = await trio.to_thread.run_sync(use, listener.port)
        except Refused as refused:
            result = refused
        nursery.cancel_scope.cancel()
    return result
