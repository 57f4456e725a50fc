"""Confluent's serializers for Python against our registry, and our serializers against theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.timestamp_pb2 import Timestamp

from barnabas import sync
from barnabas.dev.embedded import EmbeddedServers, embedded

pytestmark = pytest.mark.compat

AVRO = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"}]}'
JSON = '{"type":"object","title":"Order","properties":{"id":{"type":"integer"}},"required":["id"]}'


def messages() -> tuple[Any, Any]:
    """Classes of a message, and of one inside it, in a file that imports another."""
    parts = descriptor_pb2.FileDescriptorProto(name="shop/parts.proto", package="shop", syntax="proto3")
    parts.message_type.add(name="Part").field.add(name="name", number=1, type=9, label=1)
    file = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "shop/parts.proto"],
    )
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=5, label=1)
    order.field.add(name="at", number=2, type=11, type_name=".google.protobuf.Timestamp", label=1)
    order.field.add(name="part", number=3, type=11, type_name=".shop.Part", label=1)
    order.nested_type.add(name="Line").field.add(name="text", number=1, type=9, label=1)
    pool = descriptor_pool.Default()
    pool.Add(parts)
    pool.Add(file)
    names = ("shop.Order", "shop.Order.Line")
    one, other = (message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return one, other


ORDER, LINE = messages()


@pytest.fixture(scope="module")
def servers() -> Iterator[EmbeddedServers]:
    with embedded(registry=True) as node:
        yield node


@pytest.fixture
def registry(servers: EmbeddedServers) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    servers.reset()
    return SchemaRegistryClient({"url": servers.registry_url})


def of_value(topic: str) -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE)


def through_kafka(servers: EmbeddedServers, topic: str, data: bytes) -> bytes:
    """The bytes as librdkafka brings them through the broker."""
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": str(servers)})
    producer.produce(topic, data)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": str(servers), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


def test_avro_goes_through(servers: EmbeddedServers, registry: Any) -> None:
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    servers.create_topic("avro")
    data = AvroSerializer(registry, AVRO)({"id": 7}, of_value("avro"))
    assert AvroDeserializer(registry)(through_kafka(servers, "avro", data), of_value("avro")) == {"id": 7}
    assert registry.get_subjects() == ["avro-value"]
    assert registry.get_latest_version("avro-value").schema.schema_str == AVRO


def test_json_schema_goes_through(servers: EmbeddedServers, registry: Any) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    servers.create_topic("json")
    data = JSONSerializer(JSON, registry)({"id": 7}, of_value("json"))
    reader = JSONDeserializer(None, schema_registry_client=registry)
    assert reader(through_kafka(servers, "json", data), of_value("json")) == {"id": 7}
    assert registry.get_latest_version("json-value").schema.schema_type == "JSON"


@pytest.mark.parametrize("message", [ORDER(id=7, at=Timestamp(seconds=3)), LINE(text="x")], ids=["outer", "inner"])
def test_protobuf_goes_through_with_what_it_imports(servers: EmbeddedServers, registry: Any, message: Any) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    servers.create_topic("protobuf")
    data = ProtobufSerializer(type(message), registry)(message, of_value("protobuf"))
    fresh = SchemaRegistryClient({"url": servers.registry_url})  # the other one knows what it registered
    reader = ProtobufDeserializer(type(message), {}, fresh)
    assert reader(through_kafka(servers, "protobuf", data), of_value("protobuf")) == message
    assert registry.get_subjects() == ["protobuf-value", "shop/parts.proto"]
    text = registry.get_latest_version("protobuf-value").schema.schema_str
    assert 'import "shop/parts.proto";' in text


def test_ours_and_theirs_write_the_same_bytes(servers: EmbeddedServers, registry: Any) -> None:
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    order = ORDER(id=7)
    cases: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("avro", AvroSerializer(registry, AVRO), {"id": 7}, {"value_schema": AVRO}),
        ("json-schema", JSONSerializer(JSON, registry), {"id": 7}, {"value_schema": JSON}),
        ("protobuf", ProtobufSerializer(ORDER, registry), order, {}),
        ("protobuf", ProtobufSerializer(LINE, registry), LINE(text="x"), {}),
    ]
    url = servers.registry_url
    for number, (kind, theirs, value, schema) in enumerate(cases):
        topic = servers.create_topic(f"both-{number}")
        with sync.Producer(
            bootstrap_servers=servers, value_serializer=kind, schema_registry_url=url, **schema
        ) as producer:
            producer.send(topic, value)
        with sync.Consumer(topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest") as raw:
            ours = next(iter(raw)).value
        expected = theirs(value, of_value(topic))
        if kind == "json-schema":
            expected = expected.replace(b": ", b":")  # JSON without spaces is the same
        assert ours == expected
        with sync.Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=f"{topic}-decoded",
            auto_offset_reset="earliest",
            value_deserializer=kind,
            schema_registry_url=url,
        ) as decoded:
            found = next(iter(decoded)).value
        if kind == "protobuf":
            assert found.SerializeToString() == value.SerializeToString()
        else:
            assert found == value


def test_their_client_knows_the_answers(registry: Any) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    registry.register_schema("inner", Schema('{"type":"record","name":"I","fields":[]}', "AVRO"))
    reference = SchemaReference("I", "inner", 1)
    text = '{"type":"record","name":"O","fields":[{"name":"i","type":"I"}]}'
    outer = Schema(text, "AVRO", [reference])
    schema_id = registry.register_schema("outer", outer)
    assert registry.get_schema(schema_id).references == outer.references
    assert registry.lookup_schema("outer", outer).version == 1
    assert registry.get_versions("outer") == [1]
    with pytest.raises(SchemaRegistryError) as caught:
        registry.delete_subject("inner")
    assert (caught.value.http_status_code, caught.value.error_code) == (422, 42206)
    assert registry.set_compatibility("outer", "FULL")["compatibility"] == "FULL"
    assert registry.get_compatibility("outer") == "FULL"
    assert registry.test_compatibility("outer", outer)
    assert registry.delete_version("outer", 1) == 1
    with pytest.raises(SchemaRegistryError) as caught:
        registry.get_latest_version("outer")
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40401)


@pytest.mark.client("confluent-kafka")
def test_confluents_client_logs_in_over_https() -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    with embedded(secure=True, registry=True) as node:
        ours = node.registry_settings
        settings = {
            "url": node.registry_url,
            "ssl.ca.location": ours["schema_registry_ssl_truststore_location"],
            "basic.auth.user.info": ours["schema_registry_basic_auth_user_info"],
        }
        client = SchemaRegistryClient(settings)
        assert client.register_schema("orders-value", Schema(AVRO, "AVRO")) == 1
        stranger = SchemaRegistryClient({**settings, "basic.auth.user.info": "alice:wrong"})
        with pytest.raises(SchemaRegistryError) as refused:
            stranger.get_subjects()
        assert refused.value.http_status_code == 401
        assert client.get_subjects() == ["orders-value"]
