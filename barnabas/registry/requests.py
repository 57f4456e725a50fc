"""Core: bodies and words of requests, as values. Whatever a peer sends is answered with a code."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.registry.compatibility import LEVELS
from barnabas.registry.errors import (
    invalid_level,
    invalid_mode,
    invalid_schema,
    invalid_subject,
    invalid_version,
    schema_too_large,
    unreadable,
)
from barnabas.registry.records import AVRO, Reference, WrongRecord, references_in

MOST_SCHEMA_CHARACTERS = 512 << 10
MOST_SUBJECT_CHARACTERS = 1_024
MOST_REFERENCES = 200
LATEST = -1
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_NOT_SERVED = (
    "alias",
    "compatibilityGroup",
    "compatibilityPolicy",
    "validateFields",
    "validateRules",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
"""Fields of a config that would change what the registry does, and do not do so here."""
_GLOBAL_NAMES = ("__GLOBAL", "__EMPTY")


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema to register, to look up or to compare."""

    schema: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    version: int = 0
    """The version to give it; 0: the next one."""
    id: int = -1
    """The id to give it; -1: the next one."""


def read_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Raises `RegistryError`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise unreadable("the body must be JSON") from None
    if not isinstance(found, dict):
        raise unreadable("the body must be a JSON object")
    return found


def read_schema(body: bytes) -> SchemaRequest:
    """Raises `RegistryError`."""
    fields = read_object(body)
    schema = fields.get("schema")
    if not isinstance(schema, str) or not schema.strip():
        raise invalid_schema("Empty schema")
    if len(schema) > MOST_SCHEMA_CHARACTERS:
        raise schema_too_large()
    schema_type = fields.get("schemaType") or AVRO
    if not isinstance(schema_type, str):
        raise unreadable(f"schemaType must be text; got {schema_type!r}")
    try:
        references = references_in(fields.get("references"))
    except WrongRecord as error:
        raise unreadable(str(error)) from None
    if len(references) > MOST_REFERENCES:
        raise invalid_schema(f"a schema must have at most {MOST_REFERENCES} references; got {len(references)}")
    return SchemaRequest(
        schema,
        schema_type.upper(),
        references,
        _part(fields, "metadata"),
        _part(fields, "ruleSet"),
        max(0, _whole(fields, "version", 0)),
        _whole(fields, "id", -1),
    )


def read_config(body: bytes) -> dict[str, Any]:
    """Fields of a config to set, with Confluent's names in records. Raises `RegistryError`."""
    fields = read_object(body)
    config: dict[str, Any] = {}
    level = fields.get("compatibility", fields.get("compatibilityLevel"))
    if level is not None:
        if not isinstance(level, str) or level.upper() not in LEVELS:
            raise invalid_level()
        config["compatibilityLevel"] = level.upper()
    normalize = fields.get("normalize")
    if normalize is not None:
        if not isinstance(normalize, bool):
            raise unreadable(f"normalize must be true or false; got {normalize!r}")
        config["normalize"] = normalize
    for name in _NOT_SERVED:
        if fields.get(name) not in (None, False):
            raise unreadable(f"{name} is not served by this registry")
    return config


def read_mode(body: bytes) -> str:
    """Raises `RegistryError`."""
    mode = read_object(body).get("mode")
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise invalid_mode()
    return mode.upper()


def read_version(text: str) -> int:
    """A version, or `LATEST`. Raises `RegistryError`."""
    word = text.strip().lower()
    if word in ("latest", "-1"):
        return LATEST
    digits = word.removeprefix("+")
    if digits.isascii() and digits.isdigit() and len(digits) <= 10 and 0 < int(digits) < 2**31:
        return int(digits)
    raise invalid_version(text)


def check_subject(subject: str) -> None:
    """Raises `RegistryError` for a name that no subject can have."""
    if (
        not subject
        or len(subject) > MOST_SUBJECT_CHARACTERS
        or subject in _GLOBAL_NAMES
        or subject.startswith(":.")
        or any(unicodedata.category(each) in ("Cc", "Cs") for each in subject)
    ):
        raise invalid_subject(subject[:MOST_SUBJECT_CHARACTERS])


def _part(fields: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = fields.get(name)
    if found is not None and not isinstance(found, dict):
        raise unreadable(f"{name} must be an object; got {type(found).__name__}")
    return found


def _whole(fields: Mapping[str, Any], name: str, default: int) -> int:
    found = fields.get(name)
    if found is None:
        return default
    if type(found) is not int or not -1 <= found < 2**31:
        raise unreadable(f"{name} must be a whole number below 2^31; got {found!r}")
    return found
