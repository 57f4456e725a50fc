"""Core: parses schemas of all types, and remembers those that were parsed lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.registry.records import AVRO
from barnabas.registry.schemas.parsed import ParsedSchema, SchemaError, Source

REMEMBERED_CHARACTERS = 1 << 20
"""Text of schemas that are kept parsed. A parsed schema takes about ten times as much memory, in objects that the
garbage collector visits."""

Parse = Callable[[Source], ParsedSchema]


class _Remembered(NamedTuple):
    parsed: ParsedSchema
    size: int


class Formats:
    """Parses schemas; `parsers` has the function for each type. Used by one thread at a time."""

    def __init__(self, parsers: Mapping[str, Parse]) -> None:
        self._parsers = parsers
        self._remembered: OrderedDict[tuple[object, ...], _Remembered] = OrderedDict()
        self._characters = 0

    def parse(self, source: Source) -> ParsedSchema:
        """Raises `SchemaError`, whose message begins as Confluent's does."""
        key = (source.schema_type, source.schema, tuple(source.resolved))
        found = self._remembered.get(key)
        if found is not None:
            self._remembered.move_to_end(key)
            return found.parsed
        parser = self._parsers.get(source.schema_type)
        if parser is None:
            raise SchemaError(f"Invalid schema type {source.schema_type}")
        try:
            parsed = parser(source)
        except SchemaError as error:
            kind = source.schema_type or AVRO
            raise SchemaError(f"Invalid schema of type {kind}, details: {error}") from None
        self._remember(key, _Remembered(parsed, len(source.schema) + sum(len(each.schema) for each in source.resolved)))
        return parsed

    def _remember(self, key: tuple[object, ...], entry: _Remembered) -> None:
        self._remembered[key] = entry
        self._characters += entry.size
        while self._characters > REMEMBERED_CHARACTERS and len(self._remembered) > 1:
            _, oldest = self._remembered.popitem(last=False)
            self._characters -= oldest.size
