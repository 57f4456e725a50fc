"""Core: whether data that was written with one Protobuf schema can be read with another, by Confluent's rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from barnabas.registry.schemas.protobuf_text import type_name

_SCALAR_KINDS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "general number"),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), "string or bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
"""Scalars of one kind have the same form on the wire."""
_TEXTS = {
    "PACKAGE_CHANGED": "The package at '{}' in the %s schema does not match the package in the %s schema",
    "MESSAGE_REMOVED": "The %s schema is missing a MESSAGE type at path '{}' in the %s schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{}' in the %s schema does not match the %s schema",
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{}' in the %s schema does not match its kind in the %s schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{}' in the %s schema does not match its type in the %s schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{}' in the %s schema does not match its label in the %s schema"
    ),
    "REQUIRED_FIELD_ADDED": "A required field  at path '{}' in the %s schema is missing in the %s schema",
    "REQUIRED_FIELD_REMOVED": "The %s schema is missing a required field at path: '{}' in the %s schema",
    "ONEOF_FIELD_REMOVED": "The %s schema is missing a oneof field at path '{}' in the %s schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{}' in the %s schema are outside a oneof in the %s schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{}' in the %s schema is outside an existing oneof in the %s schema"
    ),
}
_REQUIRED, _REPEATED = FieldDescriptorProto.LABEL_REQUIRED, FieldDescriptorProto.LABEL_REPEATED
Path = tuple[str, ...]


class ProtobufDifference(NamedTuple):
    """A change that is not compatible, and its place: names of messages, then the number of a field."""

    kind: str
    path: Path

    def message(self) -> str:
        text = _TEXTS[self.kind].replace("{}", "#/" + "/".join(self.path))
        return f'{{errorType:"{self.kind}", description:"{text}"}}'


@dataclass(frozen=True)
class Types:
    """A file, and all messages and enums that it can name, by their full names with a dot before."""

    file: FileDescriptorProto
    messages: Mapping[str, DescriptorProto]
    enums: Mapping[str, EnumDescriptorProto]
    packages: Mapping[str, str]
    """The package of each name."""

    @classmethod
    def of(cls, descriptor_set: bytes, name: str) -> Types:
        """The types of a compiled file and its imports."""
        files = {each.name: each for each in FileDescriptorSet.FromString(descriptor_set).file}
        messages: dict[str, DescriptorProto] = {}
        enums: dict[str, EnumDescriptorProto] = {}
        packages: dict[str, str] = {}
        for file in files.values():
            start = f".{file.package}" if file.package else ""
            waiting = [(f"{start}.{each.name}", each) for each in file.message_type]
            enums |= {f"{start}.{each.name}": each for each in file.enum_type}
            while waiting:
                full, message = waiting.pop()
                messages[full], packages[full] = message, file.package
                enums |= {f"{full}.{each.name}": each for each in message.enum_type}
                waiting += [(f"{full}.{each.name}", each) for each in message.nested_type]
        return cls(files[name], messages, enums, packages)

    def local_name(self, full: str) -> str:
        """A full name without its package."""
        package = self.packages.get(full, "")
        return full.removeprefix(f".{package}").removeprefix(".") if package else full.removeprefix(".")


Found = Iterator[ProtobufDifference]


def incompatibilities(original: Types, update: Types) -> list[ProtobufDifference]:
    """Reasons why data of `original` cannot be read with `update`."""
    return list(_Comparison(original, update).files())


class _Comparison:
    """One comparison. A message that is being compared is not compared again: so recursion ends."""

    def __init__(self, original: Types, update: Types) -> None:
        self._original = original
        self._update = update
        self._known: dict[tuple[str, str], list[ProtobufDifference]] = {}

    def files(self) -> Found:
        before, after = self._original.file, self._update.file
        if before.package != after.package:
            yield ProtobufDifference("PACKAGE_CHANGED", ())
        starts = tuple(f".{each.package}" if each.package else "" for each in (before, after))
        yield from self._messages(before.message_type, after.message_type, (starts[0], starts[1]), ())

    def _messages(
        self,
        before: Iterable[DescriptorProto],
        after: Iterable[DescriptorProto],
        starts: tuple[str, str],
        path: Path,
    ) -> Found:
        old = {each.name: each for each in before if not each.options.map_entry}
        new = {each.name: each for each in after if not each.options.map_entry}
        for name in sorted(old):
            place = (*path, name)
            if name not in new:
                yield ProtobufDifference("MESSAGE_REMOVED", place)
            else:
                full = f"{starts[0]}.{name}", f"{starts[1]}.{name}"
                yield from (each._replace(path=(*place, *each.path)) for each in self._message(*full))
                yield from self._messages(old[name].nested_type, new[name].nested_type, full, place)

    def _message(self, original: str, update: str) -> list[ProtobufDifference]:
        """Differences of the fields of two messages, with paths inside them."""
        pair = original, update
        if pair not in self._known:
            self._known[pair] = []
            self._known[pair] = list(self._fields(self._original.messages[original], self._update.messages[update]))
        return self._known[pair]

    def _fields(self, original: DescriptorProto, update: DescriptorProto) -> Found:
        before = {each.number: each for each in original.field}
        after = {each.number: each for each in update.field}
        old_choices, new_choices = _choices(original), _choices(update)
        yield from _newly_exclusive(update, set(before), old_choices, new_choices)
        kept = {old_choices[number] for number in before if number in old_choices and number in after}
        names = set(new_choices.values())
        for number in sorted({*before, *after}):
            if number not in after:
                yield from _removed(before[number], old_choices.get(number), names | kept)
            elif number not in before:
                if after[number].label == _REQUIRED:
                    yield ProtobufDifference("REQUIRED_FIELD_ADDED", (str(number),))
            else:
                choice = new_choices.get(number)
                place = (str(number),) if choice is None else (choice, str(number))
                yield from (
                    each._replace(path=(*place, *each.path)) for each in self._field(before[number], after[number])
                )

    def _field(self, before: FieldDescriptorProto, after: FieldDescriptorProto) -> Found:
        old_map, new_map = self._entry(before, self._original), self._entry(after, self._update)
        kinds = _kind(before, old_map), _kind(after, new_map)
        if kinds[0] != kinds[1]:
            yield ProtobufDifference("FIELD_KIND_CHANGED", ())
        elif old_map is not None and new_map is not None:
            for one, other in zip(old_map.field, new_map.field, strict=True):
                yield from self._field(one, other)
        elif kinds[0] == "scalar":
            yield from _scalars(before, after)
        elif self._names_differ(before, after) or self._message(before.type_name, after.type_name):
            yield ProtobufDifference("FIELD_NAMED_TYPE_CHANGED", ())

    def _names_differ(self, before: FieldDescriptorProto, after: FieldDescriptorProto) -> bool:
        return self._original.local_name(before.type_name) != self._update.local_name(after.type_name)

    @staticmethod
    def _entry(field: FieldDescriptorProto, types: Types) -> DescriptorProto | None:
        """The message of the entries, if the field is a map."""
        found = types.messages.get(field.type_name)
        return found if found is not None and found.options.map_entry else None


def _kind(field: FieldDescriptorProto, entry: DescriptorProto | None) -> str:
    if entry is not None:
        return "map"
    is_message = field.type in (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP)
    return "message" if is_message else "scalar"


def _scalar_kind(field: FieldDescriptorProto) -> str:
    return _SCALAR_KINDS.get(type_name(field), "general number")


def _scalars(before: FieldDescriptorProto, after: FieldDescriptorProto) -> Found:
    old, new = _scalar_kind(before), _scalar_kind(after)
    if old != new:
        yield ProtobufDifference("FIELD_SCALAR_KIND_CHANGED", ())
    elif old != "string or bytes" and (before.label == _REPEATED) != (after.label == _REPEATED):
        yield ProtobufDifference("FIELD_NUMERIC_LABEL_CHANGED", ())


def _choices(message: DescriptorProto) -> dict[int, str]:
    """The name of the oneof of each field that is in one; `optional` is none."""
    return {
        each.number: message.oneof_decl[each.oneof_index].name
        for each in message.field
        if each.HasField("oneof_index") and not each.proto3_optional
    }


def _newly_exclusive(
    update: DescriptorProto, before: set[int], old_choices: Mapping[int, str], new_choices: Mapping[int, str]
) -> Found:
    """Fields that could be set together before, and exclude each other now."""
    for oneof in update.oneof_decl:
        members = [number for number, name in new_choices.items() if name == oneof.name and number in before]
        alone = [number for number in members if number not in old_choices]
        groups = len(alone) + len({old_choices[number] for number in members if number in old_choices})
        if groups > 1:
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(alone) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield ProtobufDifference(kind, (oneof.name,))


def _removed(field: FieldDescriptorProto, choice: str | None, kept_choices: set[str]) -> Found:
    """A field may go, or a whole oneof, but no single member."""
    if choice is not None:
        if choice in kept_choices:
            yield ProtobufDifference("ONEOF_FIELD_REMOVED", (choice, str(field.number)))
    elif field.label == _REQUIRED:
        yield ProtobufDifference("REQUIRED_FIELD_REMOVED", (str(field.number),))
