"""Core: Avro's schema resolution: whether data that was written with one schema can be read with another.

The rules, places and types of incompatibilities are those of Avro's `SchemaCompatibility`; messages are Confluent's.
Schemas are those of `fastavro.parse_schema`: names are full, and defined once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Resolved = tuple[Any, Mapping[str, Any]]
"""A schema, and the definitions of the names in it."""

_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}
_RECORDS = ("record", "error")


class Incompatibility(NamedTuple):
    """A reason why the reader cannot read what the writer wrote."""

    kind: str
    path: str
    info: str

    def message(self) -> str:
        path = self.path
        match self.kind:
            case "FIXED_SIZE_MISMATCH":
                place = f"field at path '{path}' in the %s schema"
                text = f"The size of FIXED type {place} does not match with the %s schema"
            case "TYPE_MISMATCH":
                text = f"The type (path '{path}') of a field in the %s schema does not match with the %s schema"
            case "NAME_MISMATCH":
                text = f"The name of the schema has changed (path '{path}')"
            case "MISSING_ENUM_SYMBOLS":
                text = f"The %s schema is missing enum symbols '{self.info}' at path '{path}' in the %s schema"
            case "MISSING_UNION_BRANCH":
                text = f"The %s schema is missing a type inside a union field at path '{path}' in the %s schema"
            case _:
                text = (
                    f"The field '{self.info}' at path '{path}' in the %s schema has no default value and is missing "
                    "in the %s schema"
                )
        return f"{{errorType:'{self.kind}', description:'{text}', additionalInfo:'{self.info}'}}"


def incompatibilities(reader: Resolved, writer: Resolved) -> list[Incompatibility]:
    """Reasons why `reader` cannot read data of `writer`, in the order of the fields; empty if it can."""
    return _Comparison(reader[1], writer[1]).compare(reader[0], writer[0], ())


class _Comparison:
    """One comparison. A pair of named types that is being compared is taken as compatible: so recursion ends."""

    def __init__(self, readers: Mapping[str, Any], writers: Mapping[str, Any]) -> None:
        self._readers = readers
        self._writers = writers
        self._seen: dict[tuple[str, str], list[Incompatibility]] = {}

    def compare(self, reader: Any, writer: Any, path: tuple[str, ...]) -> list[Incompatibility]:
        reader, writer = _definition(reader, self._readers), _definition(writer, self._writers)
        pair = _name(reader), _name(writer)
        if not pair[0] or not pair[1]:
            return list(self._compare(reader, writer, path))
        if pair not in self._seen:
            self._seen[pair] = []
            self._seen[pair] = list(self._compare(reader, writer, path))
        return self._seen[pair]

    def _compare(self, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Incompatibility]:
        kind, written = _kind(reader), _kind(writer)
        if written == "union" and kind == "union":
            for index, branch in enumerate(writer):
                if self.compare(reader, branch, ()):
                    yield self._lacks(self._writer_kind(branch), (*path, str(index)))
        elif written == "union":
            for index, branch in enumerate(writer):
                yield from self.compare(reader, branch, (*path, str(index)))
        elif kind == "union":
            if all(self.compare(branch, writer, ()) for branch in reader):
                yield self._lacks(written, path)
        elif kind == written:
            yield from self._same_kind(kind, reader, writer, path)
        elif written not in _PROMOTIONS.get(kind, ()):
            info = f"reader type: {kind.upper()} not compatible with writer type: {written.upper()}"
            yield Incompatibility("TYPE_MISMATCH", _pointer(path), info)

    def _writer_kind(self, branch: Any) -> str:
        return _kind(_definition(branch, self._writers))

    @staticmethod
    def _lacks(kind: str, path: tuple[str, ...]) -> Incompatibility:
        return Incompatibility(
            "MISSING_UNION_BRANCH", _pointer(path), f"reader union lacking writer type: {kind.upper()}"
        )

    def _same_kind(self, kind: str, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Incompatibility]:
        if kind == "array":
            yield from self.compare(reader["items"], writer["items"], (*path, "items"))
        elif kind == "map":
            yield from self.compare(reader["values"], writer["values"], (*path, "values"))
        elif kind in ("record", "enum", "fixed"):
            if not _is_called_as(reader, writer):
                yield Incompatibility("NAME_MISMATCH", _pointer((*path, "name")), f"expected: {writer['name']}")
            if kind == "record":
                yield from self._fields(reader, writer, (*path, "fields"))
            elif kind == "enum":
                yield from _symbols(reader, writer, (*path, "symbols"))
            elif reader["size"] != writer["size"]:
                info = f"expected: {writer['size']}, found: {reader['size']}"
                yield Incompatibility("FIXED_SIZE_MISMATCH", _pointer((*path, "size")), info)

    def _fields(self, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Incompatibility]:
        written = {each["name"]: each for each in writer["fields"]}
        for index, field in enumerate(reader["fields"]):
            place = (*path, str(index))
            name = next((each for each in (field["name"], *field.get("aliases", ())) if each in written), None)
            if name is not None:
                yield from self.compare(field["type"], written[name]["type"], (*place, "type"))
            elif "default" not in field:
                of_field = _definition(field["type"], self._readers)
                if _kind(of_field) == "enum" and of_field.get("default") is not None:
                    yield from self.compare(of_field, writer, (*place, "type"))
                else:
                    yield Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", _pointer(place), field["name"])


def _symbols(reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Incompatibility]:
    missing = sorted(set(writer["symbols"]) - set(reader["symbols"]))
    if missing and reader.get("default") not in reader["symbols"]:
        yield Incompatibility("MISSING_ENUM_SYMBOLS", _pointer(path), f"[{', '.join(missing)}]")


def _definition(schema: Any, named: Mapping[str, Any]) -> Any:
    """The schema that a name or a wrapped type stands for."""
    while True:
        if isinstance(schema, str):
            found = named.get(schema)
            if found is None:
                return schema
            schema = found
        elif isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        elif isinstance(schema, dict) and schema["type"] in named:
            schema = named[schema["type"]]
        else:
            return schema


def _kind(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, Sequence):
        return "union"
    kind: str = schema["type"]
    return "record" if kind in _RECORDS else kind


def _name(schema: Any) -> str:
    return str(schema.get("name", "")) if isinstance(schema, dict) else ""


def _is_called_as(reader: Any, writer: Any) -> bool:
    full, names = writer["name"], reader["name"]
    if names.rpartition(".")[2] == full.rpartition(".")[2]:
        return True
    space = names.rpartition(".")[0]
    return full in (each if "." in each or not space else f"{space}.{each}" for each in reader.get("aliases", ()))


def _pointer(path: Sequence[str]) -> str:
    return "/" + "/".join(each.replace("~", "~0").replace("/", "~1") for each in path)
