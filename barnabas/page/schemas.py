"""The view "Schemas": the subjects of a schema registry, and one of them with its versions and its newest schema.

The list is kept for some seconds, so that a filter that is being typed asks once.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

import trio

from barnabas.client.errors import SerializationException
from barnabas.client.schemas.lookup import RegistryLookup
from barnabas.page.access_tables import Filter, Row, page_of

KEPT_SECONDS = 3.0
MOST_VERSIONS = 200
MOST_SCHEMA_CHARACTERS = 50_000
NO_REGISTRY = "The page knows no schema registry: start it with --schema-registry URL."

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs what blocks in a thread."""


@dataclass
class Schemas:
    """The subjects of one registry, for all readers."""

    registry: RegistryLookup | None
    in_thread: InThread

    def __post_init__(self) -> None:
        self._lock = trio.Lock()
        self._rows: Sequence[Row] = ()
        self._problem = ""
        self._asked_at: float | None = None

    async def listing(self, wanted: Filter) -> dict[str, Any]:
        """One page of the subjects. `wanted.principal` is searched in the name, `wanted.resource` in the type."""
        async with self._lock:
            if self._asked_at is None or trio.current_time() - self._asked_at > KEPT_SECONDS:
                listed, self._problem = await self._ask(_listed)
                self._rows = listed or ()
                self._asked_at = trio.current_time()
        found: dict[str, Any] = await self.in_thread(partial(page_of, self._rows, wanted))
        return found | {"problem": self._problem}

    async def describe(self, subject: str) -> dict[str, Any]:
        """One subject, or the reason why it cannot be shown."""
        found, problem = await self._ask(partial(_described, subject))
        return {"schema": subject, "problem": problem} if found is None else found | {"problem": ""}

    async def _ask(self, work: Callable[[RegistryLookup], Any]) -> tuple[Any, str]:
        """The result of `work`, or None and the problem in one line."""
        registry = self.registry
        if registry is None:
            return None, NO_REGISTRY
        try:
            return await self.in_thread(lambda: work(registry)), ""
        except SerializationException as error:
            return None, " ".join(str(error.message).split())
        except (KeyError, TypeError, ValueError):
            return None, f"{', '.join(registry.urls)} does not answer as a schema registry does"


def _listed(registry: RegistryLookup) -> list[Row]:
    return sorted(map(_row, registry.ask("/schemas?latestOnly=true")), key=lambda row: str(row["who"]))


def _row(found: Mapping[str, Any]) -> Row:
    kind = _kind(found)
    return {
        "who": str(found["subject"]),
        "resource": kind,
        "name": "",
        "type": kind,
        "version": int(found["version"]),
        "id": int(found["id"]),
    }


def _kind(found: Mapping[str, Any]) -> str:
    return {"JSON": "JSON Schema", "PROTOBUF": "Protobuf"}.get(found.get("schemaType") or "AVRO", "Avro")


def _described(subject: str, registry: RegistryLookup) -> dict[str, Any]:
    place = f"/subjects/{quote(subject, safe='')}/versions"
    newest = registry.ask(f"{place}/latest")
    versions = [int(each) for each in registry.ask(place)]
    level = registry.ask(f"/config/{quote(subject, safe='')}?defaultToGlobal=true")["compatibilityLevel"]
    text = _readable(str(newest["schema"]))
    return {
        **_row(newest),
        "schema": subject,
        "compatibility": str(level).lower().replace("_", " "),
        "versions": versions[-MOST_VERSIONS:],
        "versions_left_out": max(0, len(versions) - MOST_VERSIONS),
        "text": text[:MOST_SCHEMA_CHARACTERS],
        "characters_left_out": max(0, len(text) - MOST_SCHEMA_CHARACTERS),
        "references": [
            {"name": str(each["name"]), "subject": str(each["subject"]), "version": int(each["version"])}
            for each in newest.get("references") or ()
        ],
    }


def _readable(text: str) -> str:
    """JSON with line ends; other text as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
