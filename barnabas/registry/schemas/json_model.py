"""Core: a JSON Schema as a tree of nodes of one kind each, as comparisons need it.

A schema with keywords of several kinds is the combination of a node for each: `{"type": "object", "oneOf": […]}` is all
of an object and a choice. A list of types is any of them. References are followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urljoin

_BY_KEYWORD = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "maxProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
    ),
    "array": ("items", "additionalItems", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that stand for a type if none is named."""
CRITERIA = ("allOf", "anyOf", "oneOf")
METASCHEMA = "json-schema.org/"


class Unresolved(Exception):
    """A `$ref` that leads nowhere."""


class Node:
    """One schema. `kind`: true, false, object, array, string, number, boolean, null, enum, const, not, combined."""

    def __init__(self, documents: Documents, kind: str, raw: Mapping[str, Any], document: str) -> None:
        self.kind = kind
        self.raw = raw
        self.criterion = ""
        self.parts: list[Node] = []
        """The parts of a combination."""
        self._documents = documents
        self._document = document

    def child(self, raw: Any) -> Node:
        """The node of a schema inside this one."""
        return self._documents.node(raw, self._document)

    def schema(self, keyword: str) -> Node | None:
        """The node of the schema that a keyword has; None without it."""
        found = self.raw.get(keyword)
        return self.child(found) if isinstance(found, dict | bool) else None

    def schemas(self, keyword: str) -> dict[str, Node]:
        """Nodes by name, of a keyword that has an object of schemas."""
        found = self.raw.get(keyword)
        return {name: self.child(each) for name, each in found.items()} if isinstance(found, dict) else {}


class Documents:
    """A schema with those that it refers to, and their nodes."""

    def __init__(self, schema: Any, others: Mapping[str, Any]) -> None:
        self._documents: dict[str, Any] = {"": schema}
        for name, each in others.items():
            self._documents[name] = each
            if isinstance(each, dict) and isinstance(identity := each.get("$id", each.get("id")), str):
                self._documents.setdefault(identity, each)
        self._nodes: dict[tuple[int, str], Node] = {}
        self._making: set[int] = set()

    @property
    def root(self) -> Node:
        return self.node(self._documents[""], "")

    def check(self) -> None:
        """Raises `Unresolved` with a reference of the schema that leads nowhere, or in a circle."""
        for name, document in list(self._documents.items()):
            for reference in _references(document):
                self._resolve({"$ref": reference}, name)
            for each in _schemas(document):
                if any(criterion in each for criterion in CRITERIA):
                    self.node(each, name)

    def node(self, raw: Any, document: str) -> Node:
        """The node of a schema in this document. Raises `Unresolved`."""
        found = self._nodes.get((id(raw), document))
        if found is None:
            target, place = self._resolve(raw, document)
            if id(target) in self._making:
                raise Unresolved("a combination is a part of itself")
            self._making.add(id(target))
            found = self._nodes.get((id(target), place)) or self._made(target, place)
            self._making.discard(id(target))
            self._nodes[id(raw), document] = found
        return found

    def _resolve(self, raw: Any, document: str) -> tuple[Any, str]:
        """The schema that a reference leads to, and its document."""
        seen: set[int] = set()
        while isinstance(raw, dict) and isinstance(reference := raw.get("$ref"), str):
            if id(raw) in seen:
                raise Unresolved(f"{reference}: it leads to itself")
            seen.add(id(raw))
            raw, document = self._target(reference, document)
        return raw, document

    def _target(self, reference: str, document: str) -> tuple[Any, str]:
        if METASCHEMA in reference:
            return True, document
        place, _, fragment = reference.partition("#")
        if place:
            document = self._document(place, document)
        current = self._documents[document]
        if fragment and not fragment.startswith("/"):
            return self._anchor(current, fragment, reference), document
        for word in fragment.split("/")[1:]:
            word = unquote(word).replace("~1", "/").replace("~0", "~")
            if isinstance(current, dict) and word in current:
                current = current[word]
            elif isinstance(current, list) and word.isdigit() and int(word) < len(current):
                current = current[int(word)]
            else:
                raise Unresolved(reference)
        if not isinstance(current, dict | bool):
            raise Unresolved(reference)
        return current, document

    def _document(self, place: str, document: str) -> str:
        own = self._documents[document]
        base = own.get("$id", "") if isinstance(own, dict) else ""
        for each in (place, urljoin(base, place) if isinstance(base, str) else place):
            if each in self._documents:
                return each
            if isinstance(base, str) and each == base.partition("#")[0]:
                return document
        inner = next((name for name, each in self._documents.items() if _has_id(each, place)), None)
        if inner is None:
            raise Unresolved(place)
        return inner

    @staticmethod
    def _anchor(document: Any, name: str, reference: str) -> Any:
        for each in _schemas(document):
            if each.get("$anchor") == name or each.get("$id") == f"#{name}":
                return each
        raise Unresolved(reference)

    def _made(self, raw: Any, document: str) -> Node:
        if not isinstance(raw, dict):
            return Node(self, "true" if raw else "false", {}, document)
        parts = list(self._parts(raw, document))
        if not parts:
            return Node(self, "true", raw, document)
        if len(parts) == 1:
            return parts[0]
        return self._combined("allOf", parts, raw, document)

    def _parts(self, raw: Mapping[str, Any], document: str) -> Iterator[Node]:
        if isinstance(raw.get("enum"), list):
            yield Node(self, "enum", raw, document)
        if "const" in raw:
            yield Node(self, "const", raw, document)
        yield from self._typed(raw, document)
        for criterion in CRITERIA:
            if isinstance(raw.get(criterion), list):
                parts = [self.node(each, document) for each in raw[criterion]]
                yield self._combined(criterion, parts, raw, document)
        if isinstance(raw.get("not"), dict | bool):
            yield Node(self, "not", raw, document)

    def _typed(self, raw: Mapping[str, Any], document: str) -> Iterator[Node]:
        kind = raw.get("type")
        if isinstance(kind, list):
            kinds = [each for each in kind if isinstance(each, str)]
            parts = [Node(self, _kind(each), {**raw, "type": each}, document) for each in kinds]
            yield parts[0] if len(parts) == 1 else self._combined("anyOf", parts, raw, document)
        elif isinstance(kind, str):
            yield Node(self, _kind(kind), raw, document)
        else:
            for name, keywords in _BY_KEYWORD.items():
                if any(word in raw for word in keywords):
                    yield Node(self, name, raw, document)

    def _combined(self, criterion: str, parts: list[Node], raw: Mapping[str, Any], document: str) -> Node:
        node = Node(self, "combined", raw, document)
        node.criterion, node.parts = criterion, parts
        return node


def _kind(name: str) -> str:
    return "number" if name == "integer" else name


def _schemas(document: Any) -> Iterator[dict[str, Any]]:
    """All objects in a document."""
    waiting = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _has_id(document: Any, name: str) -> bool:
    return any(each.get("$id") == name for each in _schemas(document))


def _references(document: Any) -> Iterator[str]:
    """Texts of `$ref` in places of schemas: not in values of enum, const, default and examples, nor as the name of a
    property."""
    waiting = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            if isinstance(each.get("$ref"), str):
                yield each["$ref"]
            for name, value in each.items():
                if name in ("properties", "patternProperties", "definitions", "$defs") and isinstance(value, dict):
                    waiting += value.values()
                elif name not in ("enum", "const", "default", "examples"):
                    waiting.append(value)
