"""Our client on Apache Kafka with TLS and SASL: it gets in with the right credentials, and says why it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas import Admin, Consumer, Producer
from barnabas.cluster.ports import free_base_port
from tests.compat.client.any_cluster import APACHE_KAFKA
from tests.compat.client.secured_kafka import JAAS_PASSWORD, PORTS, USER, SecuredKafka, secured_kafka

pytestmark = [pytest.mark.compat, pytest.mark.client(APACHE_KAFKA)]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN_MODULES = {"PLAIN": "plain.PlainLoginModule"}


@pytest.fixture(scope="module")
def kafka(libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    directory = tmp_path_factory.mktemp("secured-kafka")
    with secured_kafka(libs, directory, free_base_port(tuple(range(len(PORTS) + 1)))) as node:
        yield node


def jaas(mechanism: str, user: str = USER, password: str = JAAS_PASSWORD, more: str = "") -> str:
    module = LOGIN_MODULES.get(mechanism, "scram.ScramLoginModule")
    return (
        f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}"{more};'
    )


async def write_and_read(options: dict[str, Any], topic: str) -> None:
    """A topic, a transaction with two records, a group that reads them, and an aborted one that it does not."""
    async with Admin(**options) as admin:
        await admin.create_topics({topic: 1})
    async with Producer(**options, transactional_id=f"{topic}-writer") as producer:
        async with producer.transaction():
            await producer.enqueue(topic, b"one")
            await producer.enqueue(topic, b"two")
        with pytest.raises(RuntimeError):
            async with producer.transaction():
                await producer.enqueue(topic, b"never")
                raise RuntimeError
        async with producer.transaction():
            await producer.enqueue(topic, b"three")
    reading = {"group_id": f"{topic}-readers", "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer(topic, **options, **reading) as consumer:
        values = []
        with trio.fail_after(20):
            while len(values) < 3:
                values += [record.value async for record in take(consumer, 3 - len(values))]
        await consumer.commit()
    assert values == [b"one", b"two", b"three"]


async def take(consumer: Consumer, count: int) -> Any:
    async for record in consumer:
        yield record
        count -= 1
        if not count:
            return


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_user_with_a_password_writes_and_reads(kafka: SecuredKafka, listener: str, mechanism: str) -> None:
    await write_and_read(kafka.options(listener, mechanism), f"by-{listener}-{mechanism}")


@pytest.mark.feature("CL-01")
async def test_a_client_of_tls_writes_and_reads(kafka: SecuredKafka) -> None:
    await write_and_read(kafka.options("SSL"), "by-tls")
