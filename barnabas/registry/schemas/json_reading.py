"""Core: whether documents that were valid under one JSON Schema are valid under another.

The rules are those of Confluent's schema registry with its strict policy, which compares keyword by keyword: it can
call schemas incompatible that accept the same documents, and does not look at formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import re2

from barnabas.registry.schemas.json_messages import text_of
from barnabas.registry.schemas.json_model import Node

MOST_COMPARISONS = 50_000
"""Pairs of schemas in one comparison. Choices of choices multiply."""

Path = tuple[str, ...]


class TooComplex(Exception):
    """A comparison would take too long."""


class JsonDifference(NamedTuple):
    """A change that is not compatible, and its place."""

    kind: str
    path: Path = ()

    def under(self, *words: str) -> JsonDifference:
        return JsonDifference(self.kind, (*words, *self.path))

    def message(self) -> str:
        place = "#/" + "/".join(self.path)
        return f'{{errorType:"{self.kind}", description:"{text_of(self.kind, place)}\'}}'


Found = Iterator[JsonDifference]


def incompatibilities(original: Node, update: Node) -> list[JsonDifference]:
    """Reasons why documents that `original` accepts may not be accepted by `update`. Raises `TooComplex`."""
    return _Comparison().compare(original, update)


class _Comparison:
    """One comparison. A pair that is being compared is taken as compatible: so recursion ends."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[JsonDifference]] = {}
        self._kept: list[tuple[Node, Node]] = []
        self._count = 0

    def compare(self, original: Node, update: Node) -> list[JsonDifference]:
        pair = id(original), id(update)
        found = self._known.get(pair)
        if found is None:
            self._count += 1
            if self._count > MOST_COMPARISONS:
                raise TooComplex(f"the comparison takes more than {MOST_COMPARISONS} steps")
            self._known[pair] = []
            self._kept.append((original, update))  # as long as their ids are known
            found = self._known[pair] = list(self._compare(original, update))
        return found

    def _compare(self, original: Node, update: Node) -> Found:
        if self._matches_a_part(original, update):
            return
        if original.kind != update.kind:
            if original.kind != "false" and update.kind != "true":
                yield JsonDifference("TYPE_CHANGED")
            return
        match original.kind:
            case "string":
                yield from _strings(original.raw, update.raw)
            case "number":
                yield from _numbers(original.raw, update.raw)
            case "enum":
                yield from _enums(original.raw["enum"], update.raw["enum"])
            case "const" if not _same(original.raw["const"], update.raw["const"]):
                yield JsonDifference("ENUM_ARRAY_CHANGED", ("const",))
            case "not":
                # What must not match may become less.
                if self.compare(update.child(update.raw["not"]), original.child(original.raw["not"])):
                    yield JsonDifference("NOT_TYPE_EXTENDED", ("not",))
            case "combined":
                yield from self._combined(original, update)
            case "object":
                yield from self._objects(original, update)
            case "array":
                yield from self._arrays(original, update)

    def _matches_a_part(self, original: Node, update: Node) -> bool:
        """True if one of them is a combination, and a part of it decides alone."""
        if original.kind != "combined" and update.kind == "combined":
            decides = len(update.parts) == 1 or update.criterion in ("anyOf", "oneOf")
            return decides and any(not self.compare(original, each) for each in update.parts)
        if original.kind == "combined" and update.kind != "combined":
            decides = len(original.parts) == 1 or original.criterion == "allOf"
            return decides and any(not self.compare(each, update) for each in original.parts)
        return False

    # ---- combinations

    def _combined(self, original: Node, update: Node) -> Found:
        if not _criterion_fits(original, update):
            yield JsonDifference("COMBINED_TYPE_CHANGED")
            return
        before, after = _distinct(original.parts), _distinct(update.parts)
        if len(before) < len(after) and update.criterion == "allOf":
            yield JsonDifference("PRODUCT_TYPE_EXTENDED")
        if len(before) > len(after) and original.criterion in ("anyOf", "oneOf"):
            yield JsonDifference("SUM_TYPE_NARROWED")
        edges = [[j for j, other in enumerate(after) if not self.compare(each, other)] for each in before]
        if _largest_matching(edges) < min(len(before), len(after)):
            yield JsonDifference("COMBINED_TYPE_SUBSCHEMAS_CHANGED")

    # ---- objects

    def _objects(self, original: Node, update: Node) -> Found:
        before, after = original.schemas("properties"), update.schemas("properties")
        needed, needs = _names(original.raw.get("required")), _names(update.raw.get("required"))
        for name in before:
            if name in after and name in needs and name not in needed and "default" not in after[name].raw:
                yield JsonDifference("REQUIRED_ATTRIBUTE_ADDED", ("required", name))
        for name in dict.fromkeys([*before, *after]):
            for each in self._property(original, update, name, (before.get(name), after.get(name))):
                yield each.under("properties", name)
        yield from self._dependencies(original, update)
        yield from self._rest(original, update, "additionalProperties", "ADDITIONAL_PROPERTIES")
        yield from self._unevaluated(original, update, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
        yield from _limits(original.raw, update.raw, "maxProperties", "MAX_PROPERTIES", is_upper=True)
        yield from _limits(original.raw, update.raw, "minProperties", "MIN_PROPERTIES", is_upper=False)

    def _property(self, original: Node, update: Node, name: str, pair: tuple[Node | None, Node | None]) -> Found:
        before, after = pair
        if before is not None and after is not None:
            yield from self.compare(before, after)
        elif before is not None:
            yield from self._removed(before, update, name)
        elif after is not None:
            yield from self._added(original, after, name, name in _names(update.raw.get("required")))

    def _removed(self, before: Node, update: Node, name: str) -> Found:
        if _is_open(update):
            return
        covering = _covering(update, name)
        if covering is not None:
            if found := self.compare(before, covering):
                yield from found
                yield JsonDifference("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        elif before.kind != "false":
            yield JsonDifference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")

    def _added(self, original: Node, after: Node, name: str, is_required: bool) -> Found:
        has_default = "default" in after.raw
        if _is_open(original):
            if after.kind == "true":
                return
            if not is_required:
                yield JsonDifference("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL")
            elif has_default:
                yield JsonDifference("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL")
            else:
                yield JsonDifference("REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL")
            return
        covering = _covering(original, name)
        if covering is not None and (found := self.compare(covering, after)):
            yield from found
            yield JsonDifference("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        if is_required and not has_default:
            yield JsonDifference("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL")

    def _dependencies(self, original: Node, update: Node) -> Found:
        before = _dependencies(original.raw)
        for name, needed in _dependencies(update.raw).items():
            earlier = before.get(name)
            place = "dependencies", name
            if isinstance(needed, list):
                if not isinstance(earlier, list):
                    yield JsonDifference("DEPENDENCY_ARRAY_ADDED", place)
                elif not set(needed) <= set(earlier):
                    is_more = set(needed) >= set(earlier)
                    yield JsonDifference("DEPENDENCY_ARRAY_EXTENDED" if is_more else "DEPENDENCY_ARRAY_CHANGED", place)
            elif not isinstance(earlier, dict | bool):
                yield JsonDifference("DEPENDENCY_SCHEMA_ADDED", place)
            else:
                yield from (each.under(*place) for each in self.compare(original.child(earlier), update.child(needed)))

    def _rest(self, original: Node, update: Node, keyword: str, kind: str) -> Found:
        """Compare the schemas of properties or items that are not named."""
        before, after = original.schema(keyword), update.schema(keyword)
        was_allowed, is_allowed = before is None or before.kind != "false", after is None or after.kind != "false"
        if was_allowed and not is_allowed:
            yield JsonDifference(f"{kind}_REMOVED", (keyword,))
        elif was_allowed == is_allowed and after is not None and after.kind not in ("true", "false"):
            if before is None or before.kind == "true":
                yield JsonDifference(f"{kind}_NARROWED", (keyword,))
            else:
                yield from (each.under(keyword) for each in self.compare(before, after))

    def _unevaluated(self, original: Node, update: Node, keyword: str, kind: str) -> Found:
        before, after = original.schema(keyword), update.schema(keyword)
        if after is None or after.kind == "true":
            return
        if after.kind == "false":
            if before is None or before.kind != "false":
                yield JsonDifference(f"{kind}_REMOVED", (keyword,))
        elif before is None or before.kind == "true":
            yield JsonDifference(f"{kind}_NARROWED", (keyword,))
        elif before.kind != "false":
            yield from (each.under(keyword) for each in self.compare(before, after))

    # ---- arrays

    def _arrays(self, original: Node, update: Node) -> Found:
        before, after = _all_items(original), _all_items(update)
        if before is None and after is not None:
            yield JsonDifference("SCHEMA_ADDED", ("items",))
        elif before is not None and after is not None:
            yield from (each.under("items") for each in self.compare(before, after))
        yield from self._items(original, update)
        yield from self._rest(original, update, _rest_of_items(update), "ADDITIONAL_ITEMS")
        yield from self._unevaluated(original, update, "unevaluatedItems", "UNEVALUATED_ITEMS")
        yield from _limits(original.raw, update.raw, "maxItems", "MAX_ITEMS", is_upper=True)
        yield from _limits(original.raw, update.raw, "minItems", "MIN_ITEMS", is_upper=False)
        if update.raw.get("uniqueItems") is True and original.raw.get("uniqueItems") is not True:
            yield JsonDifference("UNIQUE_ITEMS_ADDED", ("uniqueItems",))
        yield from _limits(original.raw, update.raw, "maxContains", "MAX_CONTAINS", is_upper=True)
        yield from _limits(original.raw, update.raw, "minContains", "MIN_CONTAINS", is_upper=False)

    def _items(self, original: Node, update: Node) -> Found:
        before, after = _item_list(original), _item_list(update)
        for index in range(max(len(before), len(after))):
            if index < len(before) and index < len(after):
                found = self.compare(before[index], after[index])
            elif index < len(before):
                found = list(self._item_removed(before[index], update))
            else:
                found = list(self._item_added(original, after[index]))
            yield from (each.under("items", str(index)) for each in found)

    def _item_removed(self, before: Node, update: Node) -> Found:
        rest = _rest_of(update)
        if rest is None or rest.kind == "true":
            return
        if rest.kind == "false":
            if before.kind != "false":
                yield JsonDifference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")
        elif found := self.compare(before, rest):
            yield from found
            yield JsonDifference("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")

    def _item_added(self, original: Node, after: Node) -> Found:
        rest = _rest_of(original)
        if rest is None or rest.kind == "true":
            if after.kind != "true":
                yield JsonDifference("ITEM_ADDED_TO_OPEN_CONTENT_MODEL")
        elif rest.kind != "false" and (found := self.compare(rest, after)):
            yield from found
            yield JsonDifference("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")


# ---- single keywords


def _strings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Found:
    yield from _limits(before, after, "maxLength", "MAX_LENGTH", is_upper=True)
    yield from _limits(before, after, "minLength", "MIN_LENGTH", is_upper=False)
    if "pattern" in after and after["pattern"] != before.get("pattern"):
        yield JsonDifference("PATTERN_CHANGED" if "pattern" in before else "PATTERN_ADDED", ("pattern",))


def _numbers(before: Mapping[str, Any], after: Mapping[str, Any]) -> Found:
    yield from _limits(before, after, "maximum", "MAXIMUM", is_upper=True)
    yield from _limits(before, after, "minimum", "MINIMUM", is_upper=False)
    yield from _limits(before, after, "exclusiveMaximum", "EXCLUSIVE_MAXIMUM", is_upper=True)
    yield from _limits(before, after, "exclusiveMinimum", "EXCLUSIVE_MINIMUM", is_upper=False)
    old, new = _number(before.get("multipleOf")), _number(after.get("multipleOf"))
    if new is not None and new != old:
        if old is None:
            yield JsonDifference("MULTIPLE_OF_ADDED", ("multipleOf",))
        elif old and new % old == 0:
            yield JsonDifference("MULTIPLE_OF_EXPANDED", ("multipleOf",))
        elif not new or old % new != 0:
            yield JsonDifference("MULTIPLE_OF_CHANGED", ("multipleOf",))
    if after.get("type") == "integer" and before.get("type") != "integer":
        yield JsonDifference("TYPE_NARROWED")


def _limits(before: Mapping[str, Any], after: Mapping[str, Any], keyword: str, kind: str, *, is_upper: bool) -> Found:
    """A limit that came, or became narrower."""
    old, new = _number(before.get(keyword)), _number(after.get(keyword))
    if new is None or new == old:
        return
    if old is None:
        yield JsonDifference(f"{kind}_ADDED", (keyword,))
    elif is_upper and new < old:
        yield JsonDifference(f"{kind}_DECREASED", (keyword,))
    elif not is_upper and new > old:
        yield JsonDifference(f"{kind}_INCREASED", (keyword,))


def _enums(before: list[Any], after: list[Any]) -> Found:
    old, new = {_frozen(each) for each in before}, {_frozen(each) for each in after}
    if not old <= new:
        yield JsonDifference("ENUM_ARRAY_NARROWED" if new <= old else "ENUM_ARRAY_CHANGED", ("enum",))


# ---- what is open


def _is_open(node: Node) -> bool:
    """True if it accepts properties of any name and kind beyond those that it names."""
    rest, unevaluated = node.schema("additionalProperties"), node.schema("unevaluatedProperties")
    if node.raw.get("patternProperties") or (rest is not None and rest.kind != "true"):
        return False
    return rest is not None or unevaluated is None or unevaluated.kind == "true"


def _covering(node: Node, name: str) -> Node | None:
    """The schema for properties of this name, which it does not name itself; None if there is none."""
    for pattern, schema in node.schemas("patternProperties").items():
        if _finds(pattern, name):
            return schema
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        found = node.schema(keyword)
        if found is not None:
            return found if found.kind not in ("true", "false") else None
    return None


def _finds(pattern: str, name: str) -> bool:
    """By RE2, whose time is bounded; a pattern that it does not know matches nothing."""
    try:
        return re2.search(pattern, name) is not None
    except re2.error:
        return False


def _all_items(node: Node) -> Node | None:
    """The schema of all items, if there is no list of them."""
    return None if "prefixItems" in node.raw else node.schema("items")


def _item_list(node: Node) -> list[Node]:
    """Schemas of the first items."""
    found = node.raw.get("prefixItems", node.raw.get("items"))
    return [node.child(each) for each in found] if isinstance(found, list) else []


def _rest_of(node: Node) -> Node | None:
    """The schema of items behind the first ones."""
    rest = node.schema(_rest_of_items(node))
    return node.schema("unevaluatedItems") if rest is None else rest


def _rest_of_items(node: Node) -> str:
    """The keyword for items behind the first ones: drafts from 2020-12 on have another one."""
    return "items" if "prefixItems" in node.raw else "additionalItems"


# ---- combinations


def _criterion_fits(original: Node, update: Node) -> bool:
    before, after = original.criterion, update.criterion
    one_before, one_after = len(original.parts) == 1, len(update.parts) == 1
    return (
        after in (before, "anyOf")
        or (one_before and (one_after or after == "oneOf"))
        or (one_after and before == "allOf")
    )


def _distinct(parts: list[Node]) -> list[Node]:
    found: dict[str, Node] = {}
    for each in parts:
        found.setdefault(f"{each.kind} {each.criterion} {_frozen(each.raw)}", each)
    return list(found.values())


def _largest_matching(edges: list[list[int]]) -> int:
    """The size of the largest set of pairs in which nothing occurs twice."""
    taken: dict[int, int] = {}

    def place(one: int, seen: set[int]) -> bool:
        for other in edges[one]:
            if other not in seen:
                seen.add(other)
                if other not in taken or place(taken[other], seen):
                    taken[other] = one
                    return True
        return False

    return sum(place(one, set()) for one in range(len(edges)))


# ---- values


def _dependencies(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Names that need others, by a list of names or a schema; drafts from 2019-09 on have a keyword for each."""
    found: dict[str, Any] = {}
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        if isinstance(raw.get(keyword), dict):
            found |= raw[keyword]
    return found


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(value: object) -> set[str]:
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()


def _same(one: object, other: object) -> bool:
    return _frozen(one) == _frozen(other)


def _frozen(value: object) -> str:
    """A text that is the same for equal JSON values: 1 and 1.0 are equal, 1 and true are not."""
    match value:
        case bool() | None:
            return str(value)
        case int() | float():
            return repr(float(value)) if abs(value) < 2**53 else repr(value)
        case str():
            return repr(value)
        case list():
            return f"[{','.join(map(_frozen, value))}]"
        case dict():
            return f"{{{','.join(f'{name!r}:{_frozen(each)}' for name, each in sorted(value.items()))}}}"
        case _:
            return repr(value)
