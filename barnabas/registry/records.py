"""Core: the records of the topic `_schemas`, in the form of Confluent's registry, so that either can read the other's.

Keys and values are JSON without spaces, with fields in Confluent's order; fields without a value are left out.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

AVRO, JSON_SCHEMA, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
SCHEMA_TYPES = (AVRO, JSON_SCHEMA, PROTOBUF)

SCHEMA, CONFIG, MODE = "SCHEMA", "CONFIG", "MODE"
DELETE_SUBJECT, CLEAR_SUBJECT, NOOP = "DELETE_SUBJECT", "CLEAR_SUBJECT", "NOOP"


class WrongRecord(Exception):
    """Not a record of a registry. The text has no offset."""


class Reference(NamedTuple):
    """A name in a schema, and the version of a subject that defines it."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class Key(NamedTuple):
    """The key of a record. `subject` None stands for all subjects."""

    keytype: str
    subject: str | None = None
    version: int = 0

    def encode(self) -> bytes:
        shown: dict[str, Any] = {"keytype": self.keytype}
        if self.subject is not None:
            shown["subject"] = self.subject
        if self.keytype == SCHEMA:
            shown["version"] = self.version
        shown["magic"] = 1 if self.keytype == SCHEMA else 0
        return compact(shown)


@dataclass(frozen=True, slots=True)
class SchemaValue:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    deleted: bool = False
    timestamp_ms: int = field(default=0, compare=False)
    """The timestamp of its record; not part of the value."""

    @property
    def key(self) -> Key:
        return Key(SCHEMA, self.subject, self.version)

    @property
    def content(self) -> Content:
        return Content(self.schema_type, self.schema, self.references, _frozen(self.metadata), _frozen(self.rule_set))

    @property
    def md5(self) -> bytes:
        """A digest of schema, references, metadata and rules; shown as a UUID it is the `guid` of the schema."""
        digest = hashlib.md5(self.schema.encode(errors="surrogatepass"), usedforsecurity=False)
        for each in self.references:
            digest.update(each.name.encode() + each.subject.encode() + each.version.to_bytes(4, "big"))
        for part in (self.metadata, self.rule_set):
            if part is not None:
                digest.update(b"\x01" + _frozen(part).encode())
        return digest.digest()

    @property
    def guid(self) -> str:
        return str(UUID(bytes=self.md5))

    def encode(self) -> bytes:
        return compact(
            _given(
                subject=self.subject,
                version=self.version,
                id=self.id,
                md5=base64.b64encode(self.md5).decode(),
                schemaType=self.schema_type,
                references=[each.to_json() for each in self.references],
                metadata=self.metadata,
                ruleSet=self.rule_set,
                schema=self.schema,
                deleted=self.deleted,
            )
        )


class Content(NamedTuple):
    """A schema with all that belongs to it: the same content has the same id under all subjects."""

    schema_type: str
    schema: str
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    rule_set: str = ""


Value = SchemaValue | Mapping[str, Any] | None
"""A version, the fields of another kind of record, or None for a deleted key."""


@dataclass(frozen=True, slots=True)
class Change:
    """A record to write."""

    key: Key
    value: Value = None

    def encode(self) -> tuple[bytes, bytes | None]:
        if self.value is None:
            return self.key.encode(), None
        return self.key.encode(), self.value.encode() if isinstance(self.value, SchemaValue) else compact(self.value)


NOOP_CHANGE = Change(Key(NOOP))
"""A record without effect: it is written to learn the end of the topic."""


def config_change(subject: str | None, config: Mapping[str, Any] | None) -> Change:
    value = None if config is None else _given(subject=subject, **config)
    return Change(Key(CONFIG, subject), value)


def mode_change(subject: str | None, mode: str | None) -> Change:
    return Change(Key(MODE, subject), None if mode is None else _given(subject=subject, mode=mode))


def delete_subject(subject: str, version: int) -> Change:
    """Marks all versions up to this one as deleted."""
    return Change(Key(DELETE_SUBJECT, subject), {"subject": subject, "version": version})


def clear_subject(subject: str | None) -> Change:
    return Change(Key(CLEAR_SUBJECT, subject), _given(subject=subject) or {})


def decode(key: bytes | None, value: bytes | None, timestamp_ms: int = 0) -> Change:
    """The change that a record makes. Raises `WrongRecord`."""
    found = _object(key or b"", "key")
    keytype, subject, version = found.get("keytype"), found.get("subject"), found.get("version", 0)
    if not isinstance(keytype, str) or not isinstance(subject, str | None) or type(version) is not int:
        raise WrongRecord("the key has no keytype, subject or version")
    if keytype == SCHEMA and (subject is None or version < 1):
        raise WrongRecord("the key of a schema has no subject or version")
    if keytype == SCHEMA and found.get("magic") not in (0, 1):
        raise WrongRecord(f"magic must be 0 or 1; got {found.get('magic')!r}")
    if value is None:
        return Change(Key(keytype, subject, version))
    fields = _object(value, "value")
    if keytype == SCHEMA:
        assert subject is not None
        return Change(Key(keytype, subject, version), _schema_value(subject, version, fields, timestamp_ms))
    return Change(Key(keytype, subject, version if keytype == SCHEMA else 0), fields)


def references_in(found: object) -> tuple[Reference, ...]:
    """References of a JSON list. Raises `WrongRecord`."""
    if found is None:
        return ()
    if not isinstance(found, list):
        raise WrongRecord("references must be a list")
    references = []
    for each in found:
        match each:
            case {"name": str(name), "subject": str(subject), "version": int(version)} if type(version) is int:
                references.append(Reference(name, subject, version))
            case _:
                raise WrongRecord("a reference must have a name, a subject and a version")
    return tuple(references)


def compact(value: object) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _schema_value(subject: str, version: int, fields: Mapping[str, Any], timestamp_ms: int) -> SchemaValue:
    schema, schema_id, schema_type = fields.get("schema"), fields.get("id"), fields.get("schemaType") or AVRO
    if not isinstance(schema, str) or type(schema_id) is not int or not isinstance(schema_type, str):
        raise WrongRecord("the value of a schema has no schema or id")
    return SchemaValue(
        subject,
        version,
        schema_id,
        schema,
        schema_type,
        references_in(fields.get("references")),
        _mapping(fields.get("metadata")),
        _mapping(fields.get("ruleSet")),
        fields.get("deleted") is True,
        timestamp_ms,
    )


def _mapping(found: object) -> Mapping[str, Any] | None:
    return found if isinstance(found, dict) else None


def _object(data: bytes, part: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise WrongRecord(f"the {part} is not JSON") from None
    if not isinstance(found, dict):
        raise WrongRecord(f"the {part} is not a JSON object")
    return found


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value not in ([], "")}


def _frozen(part: Mapping[str, Any] | None) -> str:
    return "" if part is None else json.dumps(part, sort_keys=True, separators=(",", ":"))


def as_sequence(references: Sequence[Reference]) -> list[dict[str, Any]]:
    return [each.to_json() for each in references]
