"""Core: a file descriptor as the text of a .proto file. Types are written with their full names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

_SCALARS = {
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_UINT64: "uint64",
    FieldDescriptorProto.TYPE_INT32: "int32",
    FieldDescriptorProto.TYPE_FIXED64: "fixed64",
    FieldDescriptorProto.TYPE_FIXED32: "fixed32",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_UINT32: "uint32",
    FieldDescriptorProto.TYPE_SFIXED32: "sfixed32",
    FieldDescriptorProto.TYPE_SFIXED64: "sfixed64",
    FieldDescriptorProto.TYPE_SINT32: "sint32",
    FieldDescriptorProto.TYPE_SINT64: "sint64",
}
_OPTIONAL, _REQUIRED, _REPEATED = (
    FieldDescriptorProto.LABEL_OPTIONAL,
    FieldDescriptorProto.LABEL_REQUIRED,
    FieldDescriptorProto.LABEL_REPEATED,
)
MOST_NUMBER = 536_870_911
_EDITIONS = {998: "proto2", 999: "proto3"}


def text_of(file: FileDescriptorProto) -> str:
    """The text of a file."""
    return "\n".join(_Printer(file).lines()) + "\n"


def type_name(field: FieldDescriptorProto) -> str:
    """The name of a field's type: a scalar, or the full name of a message or enum."""
    return _SCALARS.get(field.type) or field.type_name


def has_custom_options(file: FileDescriptorProto) -> bool:
    """True if it has options that other files define: a descriptor has them as unknown fields."""
    return any(_is_custom(each) for each in _all_options(file))


def _is_custom(options: Any) -> bool:
    kept = type(options)()
    for descriptor, _ in options.ListFields():
        if descriptor.is_extension:
            return True
    kept.CopyFrom(options)
    kept.DiscardUnknownFields()
    return bool(kept.ByteSize() != options.ByteSize())


def _all_options(file: FileDescriptorProto) -> Iterator[Any]:
    yield file.options
    messages, enums = list(file.message_type), list(file.enum_type)
    while messages:
        message = messages.pop()
        yield message.options
        yield from (each.options for each in [*message.field, *message.extension, *message.oneof_decl])
        messages += message.nested_type
        enums += message.enum_type
    for enum in enums:
        yield enum.options
        yield from (each.options for each in enum.value)
    for service in file.service:
        yield service.options
        yield from (each.options for each in service.method)
    yield from (each.options for each in file.extension)


class _Printer:
    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._is_proto2 = file.syntax in ("", "proto2")

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{_edition(file.edition)}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        if file.dependency:
            yield ""
        for index, name in enumerate(file.dependency):
            kind = "public " if index in file.public_dependency else ""
            yield f"import {kind}{_quoted(name)};"
        options = list(_options(file.options))
        if options:
            yield ""
        yield from (f"option {each};" for each in options)
        for message in file.message_type:
            yield ""
            yield from self._message(message, "")
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum, "")
        yield from self._extensions(file.extension, "")
        for service in file.service:
            yield ""
            yield from self._service(service)

    def _message(self, message: DescriptorProto, indent: str) -> Iterator[str]:
        yield f"{indent}message {message.name} {{"
        yield from self._body(message, indent + "  ")
        yield f"{indent}}}"

    def _body(self, message: DescriptorProto, inner: str) -> Iterator[str]:
        yield from (f"{inner}option {each};" for each in _options(message.options, without=("map_entry",)))
        yield from self._reserved(message, inner)
        nested = {each.name: each for each in message.nested_type}
        grouped = [each for each in message.field if each.type == FieldDescriptorProto.TYPE_GROUP]
        groups = {each.type_name.rpartition(".")[2] for each in grouped}
        written: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, nested, inner)
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                yield f"{inner}oneof {oneof.name} {{"
                yield from (f"{inner}  option {each};" for each in _options(oneof.options))
                for member in message.field:
                    if member.HasField("oneof_index") and member.oneof_index == field.oneof_index:
                        yield from self._field(member, nested, inner + "  ")
                yield f"{inner}}}"
        yield from (
            f"{inner}extensions {_range(each.start, each.end - 1, MOST_NUMBER)};" for each in message.extension_range
        )
        for each in message.nested_type:
            if not each.options.map_entry and each.name not in groups:
                yield ""
                yield from self._message(each, inner)
        for enum in message.enum_type:
            yield ""
            yield from self._enum(enum, inner)
        yield from self._extensions(message.extension, inner)

    @staticmethod
    def _reserved(message: DescriptorProto, inner: str) -> Iterator[str]:
        numbers = [_range(each.start, each.end - 1, MOST_NUMBER) for each in message.reserved_range]
        if numbers:
            yield f"{inner}reserved {', '.join(numbers)};"
        if message.reserved_name:
            yield f"{inner}reserved {', '.join(map(_quoted, message.reserved_name))};"

    def _field(self, field: FieldDescriptorProto, nested: dict[str, DescriptorProto], inner: str) -> Iterator[str]:
        own = nested.get(field.type_name.rpartition(".")[2])
        options = _field_options(field)
        if own is not None and own.options.map_entry:
            key, value = own.field
            yield f"{inner}map<{type_name(key)}, {type_name(value)}> {field.name} = {field.number}{options};"
        elif field.type == FieldDescriptorProto.TYPE_GROUP and own is not None:
            yield f"{inner}{self._label(field)}group {own.name} = {field.number}{options} {{"
            yield from self._body(own, inner + "  ")
            yield f"{inner}}}"
        else:
            yield f"{inner}{self._label(field)}{type_name(field)} {field.name} = {field.number}{options};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == _REPEATED:
            return "repeated "
        if field.HasField("oneof_index") and not field.proto3_optional:
            return ""
        if field.label == _REQUIRED:
            return "required "
        return "optional " if field.proto3_optional or self._is_proto2 else ""

    def _enum(self, enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        yield from (f"{indent}  option {each};" for each in _options(enum.options))
        numbers = [_range(each.start, each.end, 2**31 - 1) for each in enum.reserved_range]
        if numbers:
            yield f"{indent}  reserved {', '.join(numbers)};"
        if enum.reserved_name:
            yield f"{indent}  reserved {', '.join(map(_quoted, enum.reserved_name))};"
        for each in enum.value:
            yield f"{indent}  {each.name} = {each.number}{_in_brackets(list(_options(each.options)))};"
        yield f"{indent}}}"

    def _extensions(self, extensions: Any, indent: str) -> Iterator[str]:
        for extendee in dict.fromkeys(each.extendee for each in extensions):
            yield ""
            yield f"{indent}extend {extendee} {{"
            for each in extensions:
                if each.extendee == extendee:
                    yield from self._field(each, {}, indent + "  ")
            yield f"{indent}}}"

    @staticmethod
    def _service(service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from (f"  option {each};" for each in _options(service.options))
        for method in service.method:
            given = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            returned = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            options = list(_options(method.options))
            line = f"  rpc {method.name} ({given}) returns ({returned})"
            if options:
                yield f"{line} {{"
                yield from (f"    option {each};" for each in options)
                yield "  }"
            else:
                yield f"{line};"
        yield "}"


def _field_options(field: FieldDescriptorProto) -> str:
    options = []
    if field.HasField("default_value"):
        is_text = field.type in (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)
        is_bytes = field.type == FieldDescriptorProto.TYPE_BYTES
        # The default of bytes is escaped already.
        value = f'"{field.default_value}"' if is_bytes else _quoted(field.default_value)
        options.append(f"default = {value if is_text else field.default_value}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.append(f"json_name = {_quoted(field.json_name)}")
    return _in_brackets([*options, *_options(field.options)])


def _in_brackets(options: list[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _options(options: Any, without: tuple[str, ...] = ()) -> Iterator[str]:
    """Known options as `name = value`."""
    for descriptor, value in options.ListFields():
        if descriptor.name in without or descriptor.name == "uninterpreted_option" or descriptor.is_extension:
            continue
        for each in value if descriptor.is_repeated else [value]:
            yield f"{descriptor.name} = {_option_value(descriptor, each)}"


def _option_value(descriptor: FieldDescriptor, value: Any) -> str:
    if descriptor.enum_type is not None:
        return str(descriptor.enum_type.values_by_number[value].name)
    if descriptor.message_type is not None:
        inner = (f"{field.name}: {_option_value(field, each)}" for field, each in value.ListFields())
        return f"{{ {', '.join(inner)} }}"
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case _:
            return str(value)


def _json_name(name: str) -> str:
    """The name in JSON that the compiler gives."""
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def _range(start: int, end: int, most: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == most else end}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _edition(number: int) -> str:
    return _EDITIONS.get(number) or str({1000: 2023, 1001: 2024}.get(number, number))
