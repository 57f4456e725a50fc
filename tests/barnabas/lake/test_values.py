"""Values and columns: what fits, what becomes a dead letter, and how columns grow."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from barnabas.lake.avro_values import AvroReader, OneSchema
from barnabas.lake.column_types import TypesDiffer, fields_of, merged, type_of
from barnabas.lake.json_values import Misfit, reader_of
from barnabas.lake.typed import JsonDecoder, TypedRows
from barnabas.pipeline.columns import Columns

SPECS = {
    "number": "long",
    "small": "int",
    "share": "double",
    "price": "decimal(10,2)",
    "name": "string",
    "is_new": "boolean",
    "day": "date",
    "sold_at": "timestamptz",
    "local": "timestamp",
    "tags": ["string"],
    "place": {"lat": "double", "names": ["string"]},
}


def read(**value: Any) -> dict[str, Any]:
    return reader_of(fields_of(SPECS, "columns"))(json.dumps(value).encode())


def test_values_of_all_types_fit() -> None:
    found = read(
        number=2**62,
        small=-7,
        share=3,
        price=9.9,
        name="Ada",
        is_new=True,
        day="2026-08-01",
        sold_at="2026-08-01T12:00:00+02:00",
        local=1000,
        tags=["a", None],
        place={"lat": 1.5, "more": "left out"},
        unknown=1,
    )
    assert found["price"] == Decimal("9.90") and found["share"] == 3.0 and found["day"] == date(2026, 8, 1)
    assert found["sold_at"] == datetime(2026, 8, 1, 10, tzinfo=UTC) and found["local"] == datetime(1970, 1, 1, 0, 0, 1)
    assert found["place"] == {"lat": 1.5, "names": None} and "unknown" not in found
    array = pa.array([found, read()], pa.struct(fields_of(SPECS, "columns")))
    assert array[0].as_py()["tags"] == ["a", None]
    assert set(array[1].as_py().values()) == {None}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"number": "1"}, "number: expected a whole number of 64 bits; got '1'"),
        ({"number": 1.5}, "number: expected a whole number of 64 bits; got '1.5'"),
        ({"number": True}, "number: expected a whole number of 64 bits; got True"),
        ({"small": 2**31}, "small: expected a whole number of 32 bits; got 2147483648"),
        ({"price": 1.234}, "price: expected a decimal(10,2); got '1.234'"),
        ({"price": 10**8}, "price: expected a decimal(10,2); got 100000000"),
        ({"name": 5}, "name: expected a string; got 5"),
        ({"name": "\ud800"}, "name: expected a string of whole characters; got '\\ud800'"),
        ({"is_new": 1}, "is_new: expected true or false; got 1"),
        ({"day": "1.8.2026"}, "day: expected a date such as \"2026-08-01\"; got '1.8.2026'"),
        ({"tags": ["a", 1]}, "tags[1]: expected a string; got 1"),
        ({"place": {"names": [3]}}, "place.names[0]: expected a string; got 3"),
        ({"place": []}, "place: expected an object; got []"),
    ],
)
def test_a_misfit_names_the_place_and_the_value(value: dict[str, Any], message: str) -> None:
    with pytest.raises(Misfit) as caught:
        read(**value)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", ["2026-08-01T12:00:00", 10**30, True, "soon"])
def test_a_time_with_a_zone_needs_one(value: Any) -> None:
    with pytest.raises(Misfit, match="sold_at: expected a time with a zone"):
        read(sold_at=value)


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b"[1]", b"null", b'{"number": NaN}', b"[" * 100_000])
def test_bytes_that_are_no_object_do_not_fit(data: bytes) -> None:
    with pytest.raises(Misfit):
        reader_of(fields_of(SPECS, "columns"))(data)


@pytest.mark.parametrize("spec", ["text", "decimal(39,2)", "decimal(2,3)", [], ["int", "int"], {}, 5])
def test_a_wrong_type_is_refused_with_those_that_exist(spec: Any) -> None:
    with pytest.raises(ValueError, match=r"columns\.price"):
        type_of(spec, "columns.price")


def test_columns_grow_and_widen() -> None:
    before = fields_of({"a": "int", "b": {"c": "float"}, "d": "decimal(5,2)", "e": ["int"]}, "")
    after = fields_of(
        {"b": {"c": "double", "x": "string"}, "a": "long", "d": "decimal(9,2)", "e": ["long"], "f": "date"}, ""
    )
    wanted = {"a": "long", "b": {"c": "double", "x": "string"}, "d": "decimal(9,2)", "e": ["long"], "f": "date"}
    assert merged(before, after) == fields_of(wanted, "")
    assert merged(merged(before, after), before) == fields_of(wanted, "")


@pytest.mark.parametrize("other", [{"a": "string"}, {"a": ["int"]}, {"A": "int"}, {"a": "double"}])
def test_columns_of_other_types_are_refused(other: dict[str, Any]) -> None:
    with pytest.raises(TypesDiffer, match="a"):
        merged(fields_of({"a": "int"}, ""), fields_of(other, ""))


def columns(*values: bytes | None) -> Columns:
    count = len(values)
    return Columns(
        np.arange(100, 100 + count, dtype=np.int64),
        np.full(count, 1_750_000_000_000, dtype=np.int64),
        np.zeros(count, dtype=np.int32),
        pa.array([b"key"] * count, pa.binary()),
        pa.array(values, pa.binary()),
        None,
    )


def test_records_that_do_not_fit_become_dead_letters_with_their_offset() -> None:
    rows, dead = TypedRows("sales", [], JsonDecoder(fields_of({"number": "long"}, "")))(
        2, columns(b'{"number": 1}', b'{"number": "x"}', None, b"no JSON")
    )
    assert rows["number"].to_pylist() == [1, None]
    assert [(each["partition"], each["offset"], each["key"]) for each in rows["metadata"].to_pylist()] == [
        (2, 100, b"key"),
        (2, 102, b"key"),
    ]
    assert dead["offset"].to_pylist() == [101, 103]
    assert dead["value"].to_pylist() == [b'{"number": "x"}', b"no JSON"]
    assert dead["reason"].to_pylist()[0] == "number: expected a whole number of 64 bits; got 'x'"


def test_only_dead_letters_make_no_rows() -> None:
    rows, dead = TypedRows("sales", [], JsonDecoder(fields_of({"number": "long"}, "")))(0, columns(b"1", b"2"))
    assert rows is None and len(dead) == 2


UUID = {"name": "id", "type": {"type": "string", "logicalType": "uuid"}}
SCHEMA = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "customer", "type": ["null", {"type": "record", "name": "Customer", "fields": [UUID]}]},
        {"name": "again", "type": ["null", "Customer"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "sold_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
    ],
}  # fmt: skip


def test_avro_values_become_rows() -> None:
    from io import BytesIO

    buffer = BytesIO()
    value = {
        "number": 7,
        "customer": {"id": "12345678-1234-5678-1234-567812345678"},
        "again": None,
        "price": Decimal("9.90"),
        "sold_at": datetime(2026, 8, 1, tzinfo=UTC),
        "kind": "NEW",
        "counts": {"a": 1},
        "tags": ["x"],
        "digest": b"1234",
    }
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(SCHEMA), value)
    data = buffer.getvalue()
    rows, dead = TypedRows("sales", [], OneSchema(json.dumps(SCHEMA)))(0, columns(data, data + b"rest", data[:5]))
    [row] = rows.to_pylist()
    assert row.pop("metadata")["offset"] == 100
    assert row.pop("counts") == [("a", 1)]
    assert row == {**{name: each for name, each in value.items() if name != "counts"}}
    assert dead["offset"].to_pylist() == [101, 102]


@pytest.mark.parametrize(
    "schema",
    [
        "no JSON",
        '"string"',
        '{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["int", "string"]}]}',
        '{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "A"]}]}',
        '{"type": "record", "name": "A", "fields": [{"name": "x", "type": "null"}]}',
    ],
)
def test_schemas_that_no_columns_can_have_are_refused(schema: str) -> None:
    with pytest.raises(TypesDiffer):
        AvroReader(schema)
