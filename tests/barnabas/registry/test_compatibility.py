"""Whether a schema can read what another wrote: examples with their messages, and laws for all schemas."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from barnabas.registry.compatibility import DIFFERENT_TYPE, LEVELS, Earlier, compare
from barnabas.registry.protoc import compile_files
from barnabas.registry.schemas.avro import AvroSchema
from barnabas.registry.schemas.json_schema import JsonSchema
from barnabas.registry.schemas.parsed import ParsedSchema, SchemaError, Source
from barnabas.registry.schemas.protobuf import ProtobufSchema


def avro(schema: Any) -> AvroSchema:
    return AvroSchema(Source("AVRO", schema if isinstance(schema, str) else json.dumps(schema)))


def json_schema(schema: Any) -> JsonSchema:
    return JsonSchema(Source("JSON", json.dumps(schema)))


def protobuf(text: str) -> ProtobufSchema:
    return ProtobufSchema(Source("PROTOBUF", text), compile_files)


def kinds(messages: list[str]) -> list[str]:
    """Types of the incompatibilities in messages."""
    return [each.split(",")[0].removeprefix("{errorType:").strip("'\"") for each in messages]


def record_of(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


AB = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
A_ONLY = {"type": "enum", "name": "E", "symbols": ["A"]}
AVRO_CASES: list[tuple[Any, Any, list[str]]] = [
    ("int", "int", []),
    ("long", "int", []),
    ("int", "long", ["TYPE_MISMATCH"]),
    ("double", "float", []),
    ("bytes", "string", []),
    ("string", "bytes", []),
    (["null", "string"], "string", []),
    ("string", ["null", "string"], ["TYPE_MISMATCH"]),
    (["int", "string"], ["string", "int"], []),
    (["int"], ["int", "string"], ["MISSING_UNION_BRANCH"]),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, []),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, ["TYPE_MISMATCH"]),
    (AB, A_ONLY, []),
    (A_ONLY, AB, ["MISSING_ENUM_SYMBOLS"]),
    ({**A_ONLY, "default": "A"}, AB, []),
    ({**AB, "name": "F"}, AB, ["NAME_MISMATCH"]),
    ({**AB, "name": "F", "aliases": ["E"]}, AB, []),
    ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, ["FIXED_SIZE_MISMATCH"]),
    (record_of({"name": "a", "type": "int"}), record_of(), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
    (record_of({"name": "a", "type": "int", "default": 1}), record_of(), []),
    (record_of(), record_of({"name": "a", "type": "int"}), []),
    (record_of({"name": "b", "type": "int", "aliases": ["a"]}), record_of({"name": "a", "type": "int"}), []),
    (record_of(namespace="x"), record_of(namespace="y"), []),
    (
        record_of({"name": "next", "type": ["null", "R"]}, {"name": "a", "type": "int"}),
        record_of({"name": "next", "type": ["null", "R"]}),
        ["READER_FIELD_MISSING_DEFAULT_VALUE"],
    ),
]


@pytest.mark.parametrize(("reader", "writer", "expected"), AVRO_CASES)
def test_avro_reads_by_its_resolution_rules(reader: Any, writer: Any, expected: list[str]) -> None:
    messages = avro(reader).differences(avro(writer))
    # The branch that a recursive record cannot read is reported once more for the union.
    assert [each for each in kinds(messages) if each != "MISSING_UNION_BRANCH" or expected == [each]] == expected


def test_a_message_of_avro_has_the_place_in_the_schema() -> None:
    writer = record_of({"name": "f", "type": {"type": "array", "items": record_of(name="I")}})
    inner = record_of({"name": "x/y~z", "type": "int"}, name="I")
    reader = record_of({"name": "f", "type": {"type": "array", "items": inner}})
    assert avro(reader).differences(avro(writer)) == [
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'x/y~z' at path "
        "'/fields/0/type/items/fields/0' in the %s schema has no default value and is missing in the %s schema', "
        "additionalInfo:'x/y~z'}"
    ]


OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = {**OPEN, "additionalProperties": False}
WITH_B = {"a": {"type": "string"}, "b": {"type": "integer"}}
JSON_CASES: list[tuple[Any, Any, list[str]]] = [
    (OPEN, OPEN, []),
    (OPEN, {**OPEN, "title": "x", "description": "y"}, []),
    ({"type": "integer"}, {"type": "number"}, []),
    ({"type": "number"}, {"type": "integer"}, ["TYPE_NARROWED"]),
    ({"type": "string"}, {"type": ["string", "null"]}, []),
    ({"type": ["string", "null"]}, {"type": "string"}, ["TYPE_CHANGED"]),
    ({"type": "string"}, {"type": "string", "maxLength": 3}, ["MAX_LENGTH_ADDED"]),
    ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 2}, ["MAX_LENGTH_DECREASED"]),
    ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}, []),
    ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, ["PATTERN_CHANGED"]),
    ({"type": "number", "minimum": 1}, {"type": "number", "minimum": 2}, ["MINIMUM_INCREASED"]),
    ({"type": "number", "multipleOf": 4}, {"type": "number", "multipleOf": 2}, []),
    ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 3}, ["MULTIPLE_OF_CHANGED"]),
    ({"enum": [1, 2]}, {"enum": [1, 2, 3]}, []),
    ({"enum": [1, 2]}, {"enum": [1]}, ["ENUM_ARRAY_NARROWED"]),
    ({"enum": [1]}, {"enum": [True]}, ["ENUM_ARRAY_CHANGED"]),
    (OPEN, {**OPEN, "properties": WITH_B}, ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (CLOSED, {**CLOSED, "properties": WITH_B}, []),
    (
        CLOSED,
        {**CLOSED, "properties": WITH_B, "required": ["b"]},
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"],
    ),
    ({**CLOSED, "properties": WITH_B}, CLOSED, ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
    ({**OPEN, "properties": WITH_B}, OPEN, []),
    (OPEN, {**OPEN, "required": ["a"]}, ["REQUIRED_ATTRIBUTE_ADDED"]),
    (OPEN, CLOSED, ["ADDITIONAL_PROPERTIES_REMOVED"]),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED"]),
    (
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "number"}},
        ["TYPE_CHANGED"],
    ),
    ({"oneOf": [{"type": "string"}]}, {"oneOf": [{"type": "string"}, {"type": "null"}]}, []),
    ({"allOf": [{"type": "string"}, {"minLength": 1}]}, {"allOf": [{"type": "string"}]}, []),
    ({"not": {"type": "string"}}, {"not": {"type": ["string", "null"]}}, ["NOT_TYPE_EXTENDED"]),
    (True, {"type": "string"}, ["TYPE_CHANGED"]),
    ({"type": "string"}, True, []),
]


@pytest.mark.parametrize(("original", "update", "expected"), JSON_CASES)
def test_json_schema_reads_by_confluents_rules(original: Any, update: Any, expected: list[str]) -> None:
    assert kinds(json_schema(update).differences(json_schema(original))) == expected


def test_a_recursive_json_schema_is_compared_once() -> None:
    tree = {"$defs": {"t": {"type": "object", "properties": {"left": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"}
    assert json_schema(tree).differences(json_schema(tree)) == []


def test_a_comparison_of_json_schemas_ends() -> None:
    """Each level of choices doubles the pairs to compare."""
    schema: Any = {"type": "string"}
    for level in range(12):
        schema = {"oneOf": [{"type": "object", "properties": {f"{level}{side}": schema}} for side in "lr"]}
    one, other = json_schema(schema), json_schema({"oneOf": [schema["oneOf"][1], schema["oneOf"][0]]})
    assert one.differences(other) == []


KIND_CHANGED = "FIELD_SCALAR_KIND_CHANGED"
HEAD = 'syntax = "proto3"; package p; '
PROTOBUF_CASES: list[tuple[str, str, list[str]]] = [
    ("message M { int32 a = 1; }", "message M { int64 b = 1; string c = 2; }", []),
    ("message M { int32 a = 1; }", "message M { string a = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
    ("message M { int32 a = 1; }", "message M { }", []),
    ("message M { int32 a = 1; }", "message M { repeated int32 a = 1; }", ["FIELD_NUMERIC_LABEL_CHANGED"]),
    ("message M { string a = 1; }", "message M { repeated bytes a = 1; }", []),
    ("message M { } message N { }", "message M { }", ["MESSAGE_REMOVED"]),
    ("message M { message N { } }", "message M { }", ["MESSAGE_REMOVED"]),
    ("message M { E e = 1; } enum E { Z = 0; }", "message M { int32 e = 1; }", []),
    ("message M { map<string, bool> m = 1; }", "message M { map<string, string> m = 1; }", [KIND_CHANGED]),
    ("message M { int32 m = 1; }", "message M { map<string, string> m = 1; }", ["FIELD_KIND_CHANGED"]),
    (
        "message M { A a = 1; } message A { } message B { }",
        "message M { B a = 1; } message A { } message B { }",
        ["FIELD_NAMED_TYPE_CHANGED"],
    ),
    (
        "message M { oneof c { int32 a = 1; int32 b = 2; } }",
        "message M { oneof c { int32 a = 1; } }",
        ["ONEOF_FIELD_REMOVED"],
    ),
    ("message M { oneof c { int32 a = 1; int32 b = 2; } }", "message M { }", []),
    ("message M { int32 a = 1; }", "message M { oneof c { int32 a = 1; int32 b = 2; } }", []),
    (
        "message M { int32 a = 1; int32 b = 2; }",
        "message M { oneof c { int32 a = 1; int32 b = 2; } }",
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
    (
        "message M { int32 a = 1; oneof c { int32 b = 2; } }",
        "message M { oneof c { int32 a = 1; int32 b = 2; } }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
]


@pytest.mark.parametrize(("original", "update", "expected"), PROTOBUF_CASES)
def test_protobuf_reads_by_confluents_rules(original: str, update: str, expected: list[str]) -> None:
    assert kinds(protobuf(HEAD + update).differences(protobuf(HEAD + original))) == expected


def test_required_fields_of_proto2_neither_come_nor_go() -> None:
    without, with_one = "message M { }", "message M { required int32 a = 1; }"
    head = 'syntax = "proto2"; '
    assert kinds(protobuf(head + with_one).differences(protobuf(head + without))) == ["REQUIRED_FIELD_ADDED"]
    assert kinds(protobuf(head + without).differences(protobuf(head + with_one))) == ["REQUIRED_FIELD_REMOVED"]


FULL_PROTOBUF = """
syntax = "proto2";
package p.q;
import public "google/protobuf/timestamp.proto";
option java_package = "a.b";  // gone
message M {
  reserved 50, 60 to max; reserved "old";
  required int32 a = 1 [deprecated = true];
  optional string s = 2 [default = "x\\"y"];
  optional bytes b = 3 [default = "\\001q"];
  optional group G = 4 { optional M m = 1; }
  map<string, M> entries = 5;
  oneof c { E e = 6; .google.protobuf.Timestamp t = 7; }
  repeated sint64 packed_ones = 8 [packed = true, json_name = "p"];
  extensions 20 to 30;
  enum E { option allow_alias = true; A = 0; B = 1; C = 1; }
}
extend M { optional float x = 20 [default = inf]; }
service S { rpc Do (M) returns (stream M) { option idempotency_level = IDEMPOTENT; } rpc No (stream M) returns (M); }
"""


def test_protobuf_is_kept_as_text_that_stands_for_the_same_file() -> None:
    schema = protobuf(FULL_PROTOBUF)
    assert "gone" not in schema.canonical
    again = protobuf(schema.canonical)
    assert (again.canonical, again.serialized()) == (schema.canonical, schema.serialized())
    assert protobuf(schema.serialized()).canonical == schema.canonical, "a descriptor is the same schema"


def test_options_that_other_files_define_are_kept() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/descriptor.proto"; '
        "extend google.protobuf.FieldOptions { string tag = 50000; } "
        'message M { int32 a = 1 [(tag) = "x"]; }'
    )
    assert protobuf(text).canonical == text


BROKEN: list[tuple[Callable[[Any], ParsedSchema], Any, str]] = [
    (avro, "{", "not JSON"),
    (avro, {"type": "record", "name": "R"}, "a type or field has no 'fields'"),
    (avro, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "Nope"}]}, "Undefined schema: Nope"),
    (avro, record_of({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "Duplicate in record R: a"),
    (avro, ["int", "int"], "Duplicate in union: int"),
    (avro, ["int", ["null"]], "Nested union"),
    (avro, {"type": "fixed", "name": "F", "size": "x"}, "the size of fixed F must be a whole number"),
    (avro, "[" * 5_000 + "]" * 5_000, "nested deeper than 200 levels"),
    (json_schema, {"type": "nope"}, "#/type: "),
    (json_schema, {"$ref": "other.json"}, "unresolved $ref other.json"),
    (json_schema, {"$ref": "#"}, "it leads to itself"),
    (json_schema, {"allOf": [{"$ref": "#"}]}, "a combination is a part of itself"),
    (json_schema, [], "a JSON Schema must be an object, true or false"),
    (protobuf, "message", "default.proto:1:8: Expected message name."),
    (protobuf, 'syntax = "proto3"; import "other.proto";', "other.proto: File not found."),
    (protobuf, 'syntax = "proto3"; ' + "message M {" * 300 + "}" * 300, "maximum recursion limit"),
    (protobuf, "CgdhLnByb3Rv", "the descriptor has no message, enum or service"),
]


@pytest.mark.parametrize(("parse", "schema", "reason"), BROKEN)
def test_a_broken_schema_is_refused_in_one_line(parse: Callable[[Any], ParsedSchema], schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse(schema)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- laws

names = some.sampled_from(["a", "b", "c", "d"])
primitives = some.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
types = some.recursive(
    primitives,
    lambda inner: some.one_of(
        some.builds(lambda items: {"type": "array", "items": items}, inner),
        some.builds(lambda values: {"type": "map", "values": values}, inner),
    ),
    max_leaves=3,
)
fields = some.lists(some.tuples(names, types), unique_by=lambda each: each[0], max_size=4)
records = fields.map(lambda given: record_of(*({"name": name, "type": kind} for name, kind in given)))


@given(records)
def test_every_schema_reads_its_own_data(schema: dict[str, Any]) -> None:
    assert avro(schema).differences(avro(schema)) == []


@given(records)
def test_a_field_with_a_default_may_always_come(schema: dict[str, Any]) -> None:
    grown = {**schema, "fields": [*schema["fields"], {"name": "z", "type": "int", "default": 0}]}
    assert avro(grown).differences(avro(schema)) == []


@given(records, some.integers(0, 3))
def test_a_field_may_always_go(schema: dict[str, Any], index: int) -> None:
    left = {**schema, "fields": schema["fields"][:index] + schema["fields"][index + 1 :]}
    assert avro(left).differences(avro(schema)) == []


@given(records)
def test_the_canonical_form_is_a_fixed_point(schema: dict[str, Any]) -> None:
    once = avro(schema)
    assert avro(once.canonical).canonical == once.canonical
    assert avro(once.normalized()).normalized() == once.normalized()


def earlier_of(schemas: list[dict[str, Any]]) -> list[Earlier]:
    return [Earlier(version, lambda each=each: avro(each)) for version, each in enumerate(schemas, 1)]  # type: ignore[misc]


def messages_of(level: str, new: ParsedSchema, earlier: list[Earlier]) -> list[str]:
    steps = compare(level, new, earlier)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: list[str] = end.value
        return found


@settings(max_examples=60)
@given(records, some.lists(records, min_size=1, max_size=4), some.sampled_from(["BACKWARD", "FORWARD", "FULL"]))
def test_transitive_means_with_each(new: dict[str, Any], old: list[dict[str, Any]], level: str) -> None:
    with_each = all(not messages_of(level, avro(new), earlier_of([each])) for each in old)
    assert (messages_of(f"{level}_TRANSITIVE", avro(new), earlier_of(old)) == []) is with_each


@settings(max_examples=60)
@given(records, records)
def test_full_means_both_ways(new: dict[str, Any], old: dict[str, Any]) -> None:
    backward, forward, full = (
        messages_of(level, avro(new), earlier_of([old])) == [] for level in ("BACKWARD", "FORWARD", "FULL")
    )
    assert full is (backward and forward)
    assert messages_of("NONE", avro(new), earlier_of([old])) == []


@pytest.mark.parametrize("level", LEVELS[1:])
def test_another_type_of_schema_is_never_compatible(level: str) -> None:
    old = [Earlier(1, lambda: json_schema(True))]
    assert messages_of(level, avro("int"), old)[0] == DIFFERENT_TYPE
