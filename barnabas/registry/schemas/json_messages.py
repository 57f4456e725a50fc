"""Core: Confluent's sentences about differences of JSON Schemas. `%s` stands for the name of either schema."""

from __future__ import annotations

_CHANGED = ("PATTERN_CHANGED", "MULTIPLE_OF_CHANGED", "DEPENDENCY_ARRAY_CHANGED")
_TYPE = (
    "TYPE_CHANGED",
    "TYPE_NARROWED",
    "COMBINED_TYPE_CHANGED",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    "ENUM_ARRAY_CHANGED",
)
_REMOVED = (
    "ADDITIONAL_ITEMS_REMOVED",
    "ADDITIONAL_PROPERTIES_REMOVED",
    "UNEVALUATED_PROPERTIES_REMOVED",
    "UNEVALUATED_ITEMS_REMOVED",
)


def text_of(kind: str, place: str) -> str:  # one sentence for each kind of difference
    if kind in _CHANGED:
        return f"The value at path '{place}' is different between the %s and %s schema"
    if kind in _TYPE:
        return f"A type at path '{place}' is different between the %s schema and the %s schema"
    if "CONTENT_MODEL" in kind:
        return _of_content_model(kind, place)
    if (kind.endswith("_ADDED") and kind != "SCHEMA_ADDED") or kind in _REMOVED:
        return f"The keyword at path '{place}' in the %s schema is not present in the %s schema"
    if kind.endswith("_INCREASED") or kind == "MULTIPLE_OF_EXPANDED":
        return f"The value at path '{place}' in the %s schema is more than its value in the %s schema"
    if kind.endswith("_DECREASED"):
        return f"The value at path '{place}' in the %s schema is less than its value in the %s schema"
    if kind.endswith("_NARROWED"):
        return f"An array or combined type at path '{place}' has fewer elements in the %s schema than the %s schema"
    if kind.endswith("_EXTENDED"):
        return f"An array or combined type at path '{place}' has more elements in the %s schema than the %s schema"
    return ""


def _of_content_model(kind: str, place: str) -> str:
    if kind.endswith("_ADDED_TO_OPEN_CONTENT_MODEL"):
        return (
            f"The %s schema has an open content model and has a property or item at path '{place}' "
            "which is missing in the %s schema"
        )
    if kind == "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL":
        return (
            f"The %s schema has an unopen content model and has a required property at path '{place}' "
            "which is missing in the %s schema"
        )
    if kind.endswith("_REMOVED_FROM_CLOSED_CONTENT_MODEL"):
        return (
            f"The %s has a closed content model and is missing a property or item present at path '{place}' "
            "in the %s schema"
        )
    if "_REMOVED_NOT_COVERED_" in kind:
        return (
            f"A property or item is missing in the %s schema but present at path '{place}' in the %s schema "
            "and is not covered by its partially open content model"
        )
    return (
        f"The %s schema has a property or item at path '{place}' which is missing in the %s schema "
        "and is not covered by its partially open content model"
    )
