"""Core: compatibility of a new schema with earlier versions of its subject, by level."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from barnabas.registry.schemas.parsed import ParsedSchema

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
DIFFERENT_TYPE = "Incompatible because of different schema type"
MOST_SHOWN = 10 << 10
"""Characters of an earlier schema that a message shows."""


class Earlier(NamedTuple):
    """An earlier version; `parse` is called only if it is compared."""

    version: int
    parse: Callable[[], ParsedSchema]


Messages = Generator[None, None, list[str]]
"""A comparison in steps, one for each version; returns messages, none if the schema is compatible."""


def compare(level: str, new: ParsedSchema, earlier: Sequence[Earlier]) -> Messages:
    """Messages about the newest of the versions that the level looks at and the schema does not agree with. `earlier`
    is in ascending order of versions."""
    looked_at = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    if level == "NONE":
        return []
    for each in reversed(looked_at):
        found = _messages(level.removesuffix("_TRANSITIVE"), new, each)
        if found:
            return [*found, f"{{validateFields: 'false', compatibility: '{level}'}}"]
        yield
    return []


def _messages(level: str, new: ParsedSchema, earlier: Earlier) -> list[str]:
    old = earlier.parse()
    if old.schema_type != new.schema_type:
        return [DIFFERENT_TYPE]
    found = []
    if level in ("FORWARD", "FULL"):
        found += [_filled(each, "old", "new") for each in old.differences(new)]
    if level in ("BACKWARD", "FULL"):
        found += [_filled(each, "new", "old") for each in new.differences(old)]
    return [*found, *_shown(earlier.version, old.canonical)] if found else []


def _filled(message: str, reader: str, writer: str) -> str:
    """The message with both names in their places, which are the first and the second `%s`."""
    return message.replace("%s", reader, 1).replace("%s", writer, 1)


def _shown(version: int, schema: str) -> list[str]:
    if len(schema) <= MOST_SHOWN:
        return [f"{{oldSchemaVersion: {version}}}", f"{{oldSchema: '{schema}'}}"]
    return [f"{{oldSchemaVersion: {version}}}", f"{{oldSchema: <truncated> '{schema[:MOST_SHOWN]}...'}}"]
