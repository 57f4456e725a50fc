"""Messages of Google's protobuf: generated classes are written; what is read are messages of classes made for it."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, EncodeError, Message

from barnabas.client.errors import SerializationException
from barnabas.client.schemas.lookup import NewSchema, RegisteredSchema, RegistryLookup
from barnabas.client.schemas.wire import HEADER_BYTES, read_indexes, write_indexes

_WELL_KNOWN = "google/protobuf/"


class _MessageWriter:
    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._place = write_indexes(_indexes_of(descriptor))

    def write(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, Message) or value.DESCRIPTOR is not self._descriptor:
            raise SerializationException(
                f"topic {topic}: expected a message {self._descriptor.full_name}; got {type(value).__name__}"
            )
        try:
            return self._place + bytes(value.SerializeToString())
        except EncodeError as error:
            raise SerializationException(f"topic {topic}: {error}") from error


class _MessageReader:
    def __init__(self, registered: RegisteredSchema) -> None:
        try:
            pool = descriptor_pool.DescriptorPool()
            for name, text in registered.references:
                _add(pool, name, text)
            self._file = _add(pool, "default.proto", registered.schema)
        except (DecodeError, TypeError, ValueError, KeyError) as error:
            raise SerializationException(f"schema {registered.id}: {error}") from error

    def read(self, topic: str, data: bytes) -> Any:
        indexes, at = read_indexes(topic, data, HEADER_BYTES)
        try:
            found: Any = list(self._file.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                found = found.nested_types[index]
            message = message_factory.GetMessageClass(found)()
            message.ParseFromString(data[at:])
        except (IndexError, DecodeError) as error:
            raise SerializationException(f"topic {topic}: message {indexes}: {error}") from error
        return message


def _add(pool: descriptor_pool.DescriptorPool, name: str, text: str) -> FileDescriptor:
    file = FileDescriptorProto.FromString(base64.b64decode(text))
    file.name = name
    for each in file.dependency:
        if each.startswith(_WELL_KNOWN):
            _add_well_known(pool, each)
    pool.Add(file)
    return pool.FindFileByName(name)


def _add_well_known(pool: descriptor_pool.DescriptorPool, name: str) -> None:
    try:
        pool.FindFileByName(name)
    except KeyError:
        module = __import__(name.removesuffix(".proto").replace("/", ".") + "_pb2", fromlist=["DESCRIPTOR"])
        for each in module.DESCRIPTOR.dependencies:
            _add_well_known(pool, each.name)
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _indexes_of(descriptor: Descriptor) -> list[int]:
    indexes: list[int] = []
    while descriptor.containing_type is not None:
        indexes.insert(0, list(descriptor.containing_type.nested_types).index(descriptor))
        descriptor = descriptor.containing_type
    return [list(descriptor.file.message_types_by_name.values()).index(descriptor), *indexes]


class _Protobuf:
    form = "serialized"

    def key_of(self, schema: str | None, value: Any) -> object:
        return getattr(value, "DESCRIPTOR", None)

    def record_name(self, schema: str | None, value: Any) -> str | None:
        descriptor = getattr(value, "DESCRIPTOR", None)
        return None if descriptor is None else str(descriptor.full_name)

    def new_schema(self, schema: str | None, value: Any, registry: RegistryLookup, registers: bool) -> NewSchema:
        if not isinstance(value, Message):
            raise SerializationException(f"expected a message of protobuf; got {type(value).__name__}")
        return self._of_file(value.DESCRIPTOR.file, registry, registers)

    def _of_file(self, file: FileDescriptor, registry: RegistryLookup, registers: bool) -> NewSchema:
        """Imports are registered under the names of their files, as Confluent's serializers do."""
        references = []
        for each in file.dependencies:
            if each.name.startswith(_WELL_KNOWN):
                continue
            inner = self._of_file(each, registry, registers)
            if registers:
                registry.register(each.name, inner)
            references.append((each.name, each.name, int(registry.find(each.name, inner)["version"])))
        return NewSchema("PROTOBUF", base64.b64encode(file.serialized_pb).decode(), references)

    def writer(self, registered: RegisteredSchema, value: Any) -> _MessageWriter:
        return _MessageWriter(value.DESCRIPTOR)

    def reader(self, registered: RegisteredSchema) -> _MessageReader:
        return _MessageReader(registered)


FORMAT = _Protobuf()
