"""Records of `_schemas`, byte for byte as Confluent's registry writes them, and what is done with others."""

from __future__ import annotations

import json

import pytest

from barnabas.registry.records import (
    NOOP_CHANGE,
    Change,
    Key,
    Reference,
    SchemaValue,
    WrongRecord,
    clear_subject,
    config_change,
    decode,
    delete_subject,
    mode_change,
)
from barnabas.registry.state import RegistryState
from tests.barnabas.registry.rig import record


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        (NOOP_CHANGE, b'{"keytype":"NOOP","magic":0}', None),
        (
            config_change("s", {"compatibilityLevel": "FULL"}),
            b'{"keytype":"CONFIG","subject":"s","magic":0}',
            b'{"subject":"s","compatibilityLevel":"FULL"}',
        ),
        (
            config_change(None, {"compatibilityLevel": "NONE"}),
            b'{"keytype":"CONFIG","magic":0}',
            b'{"compatibilityLevel":"NONE"}',
        ),
        (
            mode_change("s", "IMPORT"),
            b'{"keytype":"MODE","subject":"s","magic":0}',
            b'{"subject":"s","mode":"IMPORT"}',
        ),
        (
            delete_subject("s", 3),
            b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
            b'{"subject":"s","version":3}',
        ),
        (clear_subject("s"), b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}', b'{"subject":"s"}'),
        (Change(Key("SCHEMA", "s", 2)), b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}', None),
    ],
)
def test_a_record_has_the_form_of_confluents(change: Change, key: bytes, value: bytes | None) -> None:
    assert change.encode() == (key, value)
    assert decode(key, value) == change


def test_a_version_has_the_form_of_confluents() -> None:
    value = SchemaValue("s", 2, 7, '"R"', references=(Reference("R", "r", 1),), deleted=True)
    change = Change(value.key, value)
    key, data = change.encode()
    assert key == b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}'
    assert data is not None
    names = "subject version id md5 schemaType references schema deleted"
    assert list(json.loads(data)) == names.split()
    assert decode(key, data) == change


def test_a_version_of_an_old_registry_is_read() -> None:
    """Without md5, type and references, with the magic byte of its time."""
    found = decode(
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":0}',
        b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
    )
    assert found.value == SchemaValue("s", 1, 1, '"int"')


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff", b"{}"),
        (b"[]", b"{}"),
        (b"[" * 100_000, b"{}"),
        (b"{}", b"{}"),
        (b'{"keytype":"SCHEMA","magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":9}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"schema":1,"id":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":"1","magic":1}', b"{}"),
    ],
)
def test_other_records_are_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(WrongRecord):
        decode(key, value)


def put(state: RegistryState, *values: SchemaValue) -> list[str]:
    return [state.apply(Change(each.key, each)) for each in values]


def test_an_id_never_stands_for_two_schemas() -> None:
    """Two leaders at once may give the same id: what was written later is ignored by all that read it."""
    state = RegistryState()
    assert put(state, SchemaValue("s", 1, 1, record("a:int"))) == [""]
    reason = "id 1 is the id of another schema, that of s version 1"
    assert put(state, SchemaValue("t", 1, 1, record("b:int"))) == [reason]
    assert state.subjects() == ["s"]


def test_records_of_unknown_kinds_are_ignored() -> None:
    state = RegistryState()
    assert state.apply(Change(Key("ASSOC"), {})) == "records of type ASSOC are not known here"
    assert state.apply(Change(Key("CONTEXT"), {})) == ""


def test_references_are_found_before_those_that_need_them() -> None:
    state = RegistryState()
    inner, middle = Reference("I", "inner", 1), Reference("M", "middle", 1)
    put(state, SchemaValue("inner", 1, 1, "i"), SchemaValue("middle", 1, 2, "m", references=(inner,)))
    assert [each.schema for _, each in state.resolve([middle, inner], 10)] == ["i", "m"]
    with pytest.raises(OverflowError):
        state.resolve([middle, inner], 1)


def test_references_in_a_circle_end() -> None:
    state = RegistryState()
    one, other = Reference("A", "a", 1), Reference("B", "b", 1)
    put(state, SchemaValue("a", 1, 1, "a", references=(other,)), SchemaValue("b", 1, 2, "b", references=(one,)))
    assert {each.schema for _, each in state.resolve([one], 10)} == {"a", "b"}
