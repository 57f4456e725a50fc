"""Vectors of the protocol, and random messages made from the fields of the classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from barnabas.protocol.schema import FieldSpec, Message, Struct, WireType, parse_versions

DATA = Path(__file__).parent / "data"

INTEGERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
}
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    **INTEGERS,
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "string": st.one_of(st.text(max_size=12), st.text("x", min_size=120, max_size=140)),
    "uuid": st.binary(min_size=16, max_size=16),
    "bytes": st.one_of(st.binary(max_size=12), st.binary(min_size=126, max_size=129)),
    "records": st.one_of(st.binary(max_size=12), st.binary(min_size=126, max_size=129)),
}
UNKNOWN_TAGS = st.dictionaries(st.integers(100, 2**31), st.binary(max_size=8), min_size=1, max_size=3)


def values_of(wire_type: WireType[Any], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if wire_type.element is not None:
        return st.lists(values_of(wire_type.element, version, flexible), max_size=3)
    if wire_type.struct is not None:
        return structs_of(wire_type.struct, version, flexible)
    return PRIMITIVES[wire_type.name]


def field_values(spec: FieldSpec, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    values = values_of(spec.type, version, flexible)
    return st.none() | values if version in parse_versions(spec.nullable) else values


def structs_of(kind: type[Struct], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    fields = {
        spec.name: field_values(spec, version, flexible)
        for spec in kind.FIELDS
        if version in parse_versions(spec.versions)
    }

    def build(values: dict[str, Any], unknown: dict[int, bytes] | None) -> Struct:
        made = kind(**values)
        made.unknown_tagged_fields = unknown
        return made

    unknown: st.SearchStrategy[Any] = st.none() | UNKNOWN_TAGS if flexible else st.none()
    return st.builds(build, st.fixed_dictionaries(fields), unknown)


@pytest.fixture(scope="session")
def messages_of() -> Callable[[type[Message], int], st.SearchStrategy[Any]]:
    """Random messages of one class that one version can carry."""

    def strategy(kind: type[Message], version: int) -> st.SearchStrategy[Any]:
        return structs_of(kind, version, kind.FLEXIBLE_FROM is not None and version >= kind.FLEXIBLE_FROM)

    return strategy


@pytest.fixture(scope="session")
def batch_vectors() -> str:
    """Path of golden record batches."""
    return str(DATA / "record-batches.jsonl.gz")
