"""Core: Avro schemas. fastavro checks them; the canonical form is the text that Avro's Java library writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from barnabas.registry.schemas.avro_reading import incompatibilities
from barnabas.registry.schemas.parsed import ParsedSchema, SchemaError, Source

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
_RESERVED = frozenset({"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"})
_FIELD_RESERVED = frozenset({"default", "doc", "name", "order", "type", "aliases"})
MOST_DEPTH = 200
"""Levels of a schema; recursion over it is bounded by this."""


class AvroSchema(ParsedSchema):
    """A valid Avro schema."""

    def __init__(self, source: Source) -> None:
        known: dict[str, Any] = {}
        for each in source.resolved:
            _check(_json(each.schema), known)
        written = _json(source.schema)
        self._resolved = _check(written, known)
        self._named = known
        super().__init__(source, _text(written, sorted_properties=False))
        self._written = written

    def normalized(self) -> str:
        return _text(self._written, sorted_properties=True)

    def differences(self, writer: AvroSchema) -> list[str]:
        found = incompatibilities((self._resolved, self._named), (writer._resolved, writer._named))
        return [each.message() for each in found]


def _text(written: Any, *, sorted_properties: bool) -> str:
    """The canonical text. Raises `SchemaError`."""
    try:
        schema = _Writer(sorted_properties=sorted_properties).write(written, "")
        return json.dumps(schema, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except KeyError as error:
        raise SchemaError(f"a type or field has no {error}") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise SchemaError(f"not a schema: {error}") from None


def _json(text: str) -> Any:
    try:
        found = json.loads(text)
    except RecursionError:
        raise SchemaError(f"the schema is nested deeper than {MOST_DEPTH} levels") from None
    except ValueError as error:
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise SchemaError(f"not JSON: {error}") from None
    waiting = [(found, 0)]
    while waiting:
        each, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise SchemaError(f"the schema is nested deeper than {MOST_DEPTH} levels")
        if isinstance(each, dict | list):
            waiting += [(inner, depth + 1) for inner in (each.values() if isinstance(each, dict) else each)]
    return found


def _check(written: Any, known: dict[str, Any]) -> Any:
    """The schema with full names. Raises `SchemaError`."""
    try:
        found = fastavro.parse_schema(written, named_schemas=known, _ignore_default_error=True)
    except UnknownType as error:
        raise SchemaError(f"Undefined schema: {error.name}") from None
    except SchemaParseException as error:
        raise SchemaError(" ".join(str(error).split())) from None
    except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
        # A schema of an unexpected shape, such as a record whose fields are no list.
        raise SchemaError(f"{type(error).__name__}: {error}") from None
    if isinstance(found, list) and any(isinstance(each, list) for each in found):
        raise SchemaError("Nested union")
    return found


class _Writer:
    """Writes a schema in Java's order: definitions where a name is first used, other properties behind the known
    ones."""

    def __init__(self, *, sorted_properties: bool) -> None:
        self._sorted = sorted_properties

    def write(self, schema: Any, space: str) -> Any:
        if isinstance(schema, list):
            branches = [self.write(each, space) for each in schema]
            _check_unique("union", [_branch_name(each) for each in branches])
            return branches
        if isinstance(schema, str):
            return self._reference(schema, space)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.write(kind, space)
        if kind in NAMED:
            return self._named(schema, kind, space)
        others = self._others(schema, _RESERVED)
        if kind == "array":
            return {"type": kind, "items": self.write(schema["items"], space), **others}
        if kind == "map":
            return {"type": kind, "values": self.write(schema["values"], space), **others}
        if kind in PRIMITIVES:
            return {"type": kind, **others} if others else kind
        return self._reference(kind, space)

    def _reference(self, name: str, space: str) -> str:
        if name in PRIMITIVES:
            return name
        full = name if "." in name or not space else f"{space}.{name}"
        inside, _, simple = full.rpartition(".")
        return simple if inside == space else full

    def _named(self, schema: Mapping[str, Any], kind: str, space: str) -> dict[str, Any]:
        if not isinstance(schema["name"], str) or not schema["name"]:
            raise SchemaError(f"the name of a type must be text; got {schema['name']!r}")
        inside, _, simple = schema["name"].rpartition(".")
        inside = inside or str(schema.get("namespace") or "") or ("" if "namespace" in schema else space)
        written: dict[str, Any] = {"type": kind, "name": simple}
        if inside != space:
            written["namespace"] = inside
        if schema.get("doc") is not None:
            written["doc"] = schema["doc"]
        if kind in ("record", "error"):
            written["fields"] = [self._field(each, inside) for each in schema["fields"]]
            _check_unique(f"record {simple}", [each["name"] for each in schema["fields"]])
        elif kind == "enum":
            written["symbols"] = list(schema["symbols"])
            if schema.get("default") is not None:
                written["default"] = schema["default"]
        else:
            if type(schema["size"]) is not int or schema["size"] < 0:
                raise SchemaError(f"the size of fixed {simple} must be a whole number; got {schema['size']!r}")
            written["size"] = schema["size"]
        written |= self._others(schema, _RESERVED | {"default"} if kind == "enum" else _RESERVED)
        if schema.get("aliases"):
            written["aliases"] = [self._alias(each, inside) for each in schema["aliases"]]
        return written

    @staticmethod
    def _alias(name: str, space: str) -> str:
        return name.removeprefix(f"{space}.") if space and "." not in name.removeprefix(f"{space}.") else name

    def _field(self, field: Mapping[str, Any], space: str) -> dict[str, Any]:
        if not isinstance(field["name"], str):
            raise SchemaError(f"the name of a field must be text; got {field['name']!r}")
        written: dict[str, Any] = {"name": field["name"], "type": self.write(field["type"], space)}
        if field.get("doc") is not None:
            written["doc"] = field["doc"]
        if "default" in field:
            written["default"] = field["default"]
        if field.get("order", "ascending") != "ascending":
            written["order"] = field["order"]
        if field.get("aliases"):
            written["aliases"] = list(field["aliases"])
        return written | self._others(field, _FIELD_RESERVED)

    def _others(self, schema: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
        found = {name: value for name, value in schema.items() if name not in reserved}
        return dict(sorted(found.items())) if self._sorted else found


def _branch_name(branch: Any) -> str:
    """The name of a branch of a union, or its type if it has none. These must differ."""
    if isinstance(branch, str):
        return branch
    return str(branch.get("name") or branch["type"])


def _check_unique(place: str, names: list[str]) -> None:
    seen: set[str] = set()
    for each in names:
        if each in seen:
            raise SchemaError(f"Duplicate in {place}: {each}")
        seen.add(each)
