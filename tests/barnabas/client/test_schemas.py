"""Our clients over a schema registry: settings, subjects, and what happens when the registry says no."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas import sync
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import ConfigException, RecordDeserializationException, SerializationException
from barnabas.client.interceptors import ProducerInterceptor, ProducerRecord
from barnabas.client.producer.producer import Producer
from barnabas.client.schemas.names import strategy_of
from barnabas.client.schemas.wire import read_indexes, schema_id_of, with_header, write_indexes
from barnabas.client.serialization import deserializer_of
from barnabas.cluster.local import code_environment
from barnabas.dev.embedded import EmbeddedServers, embedded
from tests.barnabas.registry.test_running import ask_now

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"}]}'
GROWN = ORDER.replace("}]}", '},{"name":"n","type":"int","default":0}]}')


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedServers]:
    with embedded(registry=True) as servers:
        yield servers


@pytest.fixture
def servers(running: EmbeddedServers) -> EmbeddedServers:
    running.reset()
    running.create_topic("orders")
    return running


def producer(servers: EmbeddedServers, **settings: Any) -> Producer:
    given = {"value_serializer": "avro", "value_schema": ORDER, "schema_registry_url": servers.registry_url}
    return Producer(bootstrap_servers=servers, **{**given, **settings})


def consumer(servers: EmbeddedServers, group_id: str = "readers", **settings: Any) -> Consumer:
    given = {"value_deserializer": "avro", "schema_registry_url": servers.registry_url}
    return Consumer(
        "orders",
        bootstrap_servers=servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        **{**given, **settings},
    )


def subjects(servers: EmbeddedServers) -> list[str]:
    found: list[str] = ask_now(servers.registry_url, "GET", "/subjects")[1]
    return found


async def test_values_come_as_they_went(servers: EmbeddedServers) -> None:
    async with producer(servers, key_serializer="avro", key_schema='"string"') as sending:
        await sending.send("orders", {"id": 1}, key="a")
        await (await sending.enqueue("orders", {"id": 2}, key="b"))
        await sending.send_nowait("orders", {"id": 3}, key="c")
        await sending.send("orders", None, key="a")
    assert await trio.to_thread.run_sync(subjects, servers) == ["orders-key", "orders-value"]
    async with consumer(servers, key_deserializer="avro") as reading:
        found = [(each.key, each.value) async for each in taken(reading, 4)]
    assert found == [("a", {"id": 1}), ("b", {"id": 2}), ("c", {"id": 3}), ("a", None)]


async def taken(reading: Consumer, count: int) -> Any:
    for _ in range(count):
        yield await anext(reading)


def test_values_go_without_await_too(servers: EmbeddedServers) -> None:
    with sync.Producer(
        bootstrap_servers=servers,
        value_serializer="avro",
        value_schema=ORDER,
        schema_registry_url=servers.registry_url,
    ) as sending:
        assert sending.send("orders", {"id": 1}).offset == 0


async def test_a_record_that_cannot_wait_for_its_schema_is_refused(servers: EmbeddedServers) -> None:
    async with producer(servers) as sending:
        with pytest.raises(SerializationException, match="is not known yet"):
            sending.send_nowait("orders", {"id": 1})
        await sending.send("orders", {"id": 1})
        await sending.send_nowait("orders", {"id": 2})


async def test_interceptors_see_each_record_once(servers: EmbeddedServers) -> None:
    seen: list[Any] = []

    class Watching(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(record.value)
            return record

    async with producer(servers, interceptors=[Watching()]) as sending:
        await sending.send("orders", {"id": 1})
    assert seen == [{"id": 1}]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "orders-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order"),
        ("TopicRecordNameStrategy", "orders-shop.Order"),
        (lambda topic, is_key, record: f"{record} of {topic}", "shop.Order of orders"),
    ],
)
async def test_subjects_are_named_by_the_strategy(servers: EmbeddedServers, strategy: Any, subject: str) -> None:
    async with producer(servers, value_subject_name_strategy=strategy) as sending:
        await sending.send("orders", {"id": 1})
    assert await trio.to_thread.run_sync(subjects, servers) == [subject]


async def test_without_registration_the_schema_has_to_be_there(servers: EmbeddedServers) -> None:
    async with producer(servers, auto_register_schemas=False) as sending:
        with pytest.raises(SerializationException, match="Subject 'orders-value' not found"):
            await sending.send("orders", {"id": 1})
        await trio.to_thread.run_sync(
            ask_now, servers.registry_url, "POST", "/subjects/orders-value/versions", {"schema": ORDER}
        )
        await sending.send("orders", {"id": 1})


async def test_the_latest_version_is_used_if_it_is_wanted(servers: EmbeddedServers) -> None:
    for schema in (ORDER, GROWN):
        await trio.to_thread.run_sync(
            ask_now, servers.registry_url, "POST", "/subjects/orders-value/versions", {"schema": schema}
        )
    async with producer(servers, use_latest_version=True) as sending:
        await sending.send("orders", {"id": 1})
    async with consumer(servers) as reading:
        assert (await anext(reading)).value == {"id": 1, "n": 0}


async def test_an_incompatible_schema_is_refused_before_a_record_is_sent(servers: EmbeddedServers) -> None:
    async with producer(servers) as sending:
        await sending.send("orders", {"id": 1})
    async with producer(servers, value_schema=ORDER.replace('"int"', '"string"')) as sending:
        with pytest.raises(SerializationException, match="answered 409: Schema being registered is incompatible"):
            await sending.send("orders", {"id": "x"})


async def test_a_value_that_does_not_fit_is_refused(servers: EmbeddedServers) -> None:
    schema = '{"type":"object","required":["id"]}'
    async with (
        producer(servers) as avro,
        producer(
            servers, value_serializer="json-schema", value_schema=schema, value_subject_name_strategy=lambda *_: "j"
        ) as json_schema,
    ):
        with pytest.raises(SerializationException, match="topic orders"):
            await avro.send("orders", {"id": "x"})
        with pytest.raises(SerializationException, match="'id' is a required property"):
            await json_schema.send("orders", {})


async def test_bytes_of_others_can_be_stepped_over(servers: EmbeddedServers) -> None:
    async with Producer(bootstrap_servers=servers) as raw:
        await raw.send("orders", b"plain text")
        await raw.send("orders", with_header(99, b"x"))
    async with producer(servers) as sending:
        await sending.send("orders", {"id": 1})
    async with consumer(servers) as reading:
        for reason in ("expected 0 and the id of a schema", "Schema 99 not found"):
            with pytest.raises(RecordDeserializationException, match=reason) as caught:
                await anext(reading)
            partition = reading.assignment()[0]
            reading.seek(partition, caught.value.offset + 1)
        assert (await anext(reading)).value == {"id": 1}


async def test_a_registry_that_is_away_is_named(servers: EmbeddedServers) -> None:
    away = "http://127.0.0.1:9"
    async with producer(servers, schema_registry_url=away) as sending:
        with pytest.raises(SerializationException, match=r"no schema registry answered: http://127.0.0.1:9/"):
            await sending.send("orders", {"id": 1})
    async with producer(servers, schema_registry_url=f"{away}, {servers.registry_url}") as sending:
        await sending.send("orders", {"id": 1})
    async with consumer(servers, schema_registry_url=away) as reading:
        with pytest.raises(RecordDeserializationException, match="no schema registry answered"):
            await anext(reading)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"value_serializer": "avro"}, "value_serializer needs schema_registry_url"),
        ({"value_serializer": "avro", "schema_registry_url": "localhost"}, "got 'localhost'"),
        ({"value_serializer": "avr"}, "did you mean 'avro'"),
        (
            {"value_serializer": "avro", "schema_registry_url": "http://x", "value_subject_name_strategy": "Mine"},
            "value_subject_name_strategy must be one of TopicNameStrategy",
        ),
        (
            {"value_serializer": "avro", "schema_registry_url": "http://x", "value_schema": Path("/no/such")},
            "value_schema /no/such: No such file",
        ),
        ({"value_serializer": "avro", "schema_registry_url": "http://x", "value_schema": 1}, "must be text or a Path"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigException, match=reason):
        Producer(bootstrap_servers="127.0.0.1:9092", **settings)


def test_share_consumers_have_no_schemas() -> None:
    with pytest.raises(ConfigException, match="value_deserializer 'avro' needs a schema registry, which this client"):
        deserializer_of("avro")


def test_without_a_record_name_there_is_no_subject() -> None:
    with pytest.raises(SerializationException, match="this schema has no name"):
        strategy_of("RecordNameStrategy", "x")("t", False, None)


@pytest.mark.parametrize("indexes", [[0], [1], [0, 0], [2, 0, 300], [70_000]])
def test_places_of_messages_are_read_as_written(indexes: list[int]) -> None:
    data = with_header(1, write_indexes(indexes) + b"rest")
    found, at = read_indexes("t", data, 5)
    assert (found, data[at:]) == (indexes, b"rest")


def test_the_first_message_of_a_file_is_one_byte() -> None:
    assert write_indexes([0]) == b"\x00"
    assert write_indexes([1, 0]) == b"\x04\x02\x00"


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01x"])
def test_bytes_without_an_id_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationException):
        schema_id_of("t", data)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10, b"\x03", b"\x02", b"\xfe\xff\xff\xff\x0f"])
def test_a_broken_place_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationException):
        read_indexes("t", data, 0)


def test_nothing_of_the_registry_is_loaded_without_it() -> None:
    program = (
        "import sys, barnabas\n"
        "from barnabas import sync\n"
        "with barnabas.embedded(topics=['t']) as servers, sync.Producer(bootstrap_servers=servers) as producer:\n"
        "    producer.send('t', b'x')\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=code_environment()
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"fastavro", "jsonschema", "google.protobuf", "hypercorn", "barnabas.registry"}
