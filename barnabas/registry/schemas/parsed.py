"""Core: the interface of all formats of schemas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.registry.records import Reference


class SchemaError(Exception):
    """The text is not a schema of its type. The message is one line."""


class Resolved(NamedTuple):
    """A reference, and the text that it leads to."""

    reference: Reference
    schema: str


@dataclass(frozen=True)
class Source:
    """A schema as it was sent, with all that it refers to: definitions before those that need them."""

    schema_type: str
    schema: str
    references: tuple[Reference, ...] = ()
    resolved: Sequence[Resolved] = ()


class ParsedSchema(ABC):
    """A valid schema."""

    def __init__(self, source: Source, canonical: str) -> None:
        self.schema_type = source.schema_type
        self.references = source.references
        self.canonical = canonical
        """The form in which it is kept."""

    @abstractmethod
    def normalized(self) -> str:
        """A form that is the same for texts that differ in order or spelling alone."""

    @abstractmethod
    def differences(self, writer: Any) -> list[str]:
        """Reasons why this schema cannot read data that was written with `writer`, a schema of the same type. Each has
        two places `%s`, for what this schema is called and what the writer's is called."""

    def serialized(self) -> str:
        """The schema in another form, if its type has one: base64 of the descriptor of Protobuf."""
        return self.canonical
