"""Core: Protobuf schemas, as descriptors. The compiler is a port: it gets files, and returns the descriptors.

A schema is sent as text, or as base64 of its descriptor, as Confluent's client for Python does. It is kept as text that
is written from the descriptor: two texts that differ in spaces and comments alone are one schema.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from barnabas.registry.schemas.parsed import ParsedSchema, SchemaError, Source
from barnabas.registry.schemas.protobuf_reading import Types, incompatibilities
from barnabas.registry.schemas.protobuf_text import has_custom_options, text_of

MAIN = "default.proto"
"""The name of the file of a schema, as in Confluent's registry."""

Compile = Callable[[Mapping[str, str]], bytes]
"""Compiles files by name; returns the `FileDescriptorSet` of the first and all that it imports. Raises SchemaError."""


class ProtobufSchema(ParsedSchema):
    """A valid Protobuf schema."""

    def __init__(self, source: Source, compile_files: Compile) -> None:
        files = {MAIN: _text(source.schema)}
        for each in source.resolved:
            files.setdefault(each.reference.name, _text(each.schema))
        self._types = Types.of(compile_files(files), MAIN)
        written = text_of(self._types.file)
        super().__init__(source, files[MAIN] if has_custom_options(self._types.file) else written)
        self._normalized = written

    def normalized(self) -> str:
        return self._normalized if not has_custom_options(self._types.file) else self.canonical

    def serialized(self) -> str:
        """Base64 of the file descriptor."""
        return base64.b64encode(self._types.file.SerializeToString(deterministic=True)).decode()

    def differences(self, writer: ProtobufSchema) -> list[str]:
        return [each.message() for each in incompatibilities(writer._types, self._types)]


def _text(schema: str) -> str:
    """The text of a schema that may be base64 of a descriptor."""
    try:
        data = base64.b64decode(schema, validate=True)
        descriptor = FileDescriptorProto.FromString(data)
    except (binascii.Error, DecodeError, ValueError):
        return schema
    if not descriptor.message_type and not descriptor.enum_type and not descriptor.service:
        raise SchemaError("the descriptor has no message, enum or service")
    try:
        return text_of(descriptor)
    except (IndexError, KeyError, ValueError) as error:
        raise SchemaError(f"the descriptor does not describe a file: {error}") from None
