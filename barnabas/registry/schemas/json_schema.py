"""Core: JSON Schemas. The library jsonschema checks them against the draft that they name, else against draft 7."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError as Invalid
from jsonschema.validators import validator_for

from barnabas.registry.schemas.json_model import Documents, Unresolved
from barnabas.registry.schemas.json_reading import TooComplex, incompatibilities
from barnabas.registry.schemas.parsed import ParsedSchema, SchemaError, Source

MOST_DEPTH = 100
"""Levels of a schema; recursion over it is bounded by this."""


class JsonSchema(ParsedSchema):
    """A valid JSON Schema."""

    def __init__(self, source: Source) -> None:
        self._written = _json(source.schema)
        super().__init__(source, _text(self._written))
        _check(self._written)
        others = {each.reference.name: _json(each.schema) for each in source.resolved}
        self._documents = Documents(self._written, others)
        try:
            self._documents.check()
        except Unresolved as error:
            raise SchemaError(f"unresolved $ref {error}") from None

    def normalized(self) -> str:
        return _text(self._written, sort_keys=True)

    def differences(self, writer: JsonSchema) -> list[str]:
        try:
            return [each.message() for each in incompatibilities(writer._documents.root, self._documents.root)]
        except TooComplex as error:
            return [f"Incompatible because {error}"]


def _json(text: str) -> Any:
    try:
        found = json.loads(text)
    except RecursionError:
        raise SchemaError(f"the schema is nested deeper than {MOST_DEPTH} levels") from None
    except ValueError as error:
        raise SchemaError(f"not JSON: {error}") from None
    if not isinstance(found, dict | bool):
        raise SchemaError("a JSON Schema must be an object, true or false")
    waiting = [(found, 0)]
    while waiting:
        each, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise SchemaError(f"the schema is nested deeper than {MOST_DEPTH} levels")
        if isinstance(each, dict | list):
            waiting += [(inner, depth + 1) for inner in (each.values() if isinstance(each, dict) else each)]
    return found


def _text(written: Any, *, sort_keys: bool = False) -> str:
    try:
        return json.dumps(written, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys, allow_nan=False)
    except ValueError as error:
        raise SchemaError(f"not JSON: {error}") from None


def _check(written: Any) -> None:
    """Raises `SchemaError` for what the draft does not allow."""
    draft = validator_for(written, default=Draft7Validator)
    try:
        draft.check_schema(written)
    except Invalid as error:
        place = "/".join(str(each) for each in error.absolute_path)
        raise SchemaError(f"#/{place}: {error.message[:200]}") from None
    except (RecursionError, TypeError, ValueError) as error:
        raise SchemaError(f"{type(error).__name__}: {error}") from None
