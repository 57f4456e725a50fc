"""Records in JSON, and queries for them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.consumer.record import ConsumerRecord, TimestampType
from barnabas.client.producer.record_metadata import RecordMetadata
from barnabas.rest.errors import RestError
from barnabas.rest.reading import event_id, positions_in, wanted_of
from barnabas.rest.records import MOST_RECORDS, record_json, records_in, written_json
from barnabas.times import moment_ms

texts = st.text(st.characters(exclude_categories=["Cs"]))
headers = st.lists(st.tuples(texts, st.none() | st.binary()), max_size=3)


def one(record: dict[str, Any]) -> Any:
    return next(records_in(json.dumps(record).encode()))


def refusal_of(body: bytes) -> str:
    with pytest.raises(RestError) as caught:
        list(records_in(body))
    assert caught.value.status == 400
    return str(caught.value)


@given(st.none() | st.binary(), st.none() | st.binary(), headers, st.integers(0, 2**40))
def test_a_record_that_was_read_can_be_written(
    key: bytes | None, value: bytes | None, given_headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    record = ConsumerRecord(
        topic="t",
        partition=3,
        offset=7,
        timestamp_ms=timestamp_ms,
        timestamp_type=TimestampType.CREATE_TIME,
        key=key,
        value=value,
        headers=tuple(given_headers),
        leader_epoch=0,
    )
    for formats in (("binary", "binary"), ("string", "string")):
        shown = record_json(record, formats)
        again = one({name: shown[name] for name in ("partition_id", "headers", "key", "value", "timestamp")})
        assert (again.key, again.value, again.headers) == (key, value, tuple(given_headers))
        assert (again.partition, again.timestamp_ms) == (3, timestamp_ms)


def test_a_body_has_many_records_with_or_without_white_space() -> None:
    body = b'{"value":{"type":"STRING","data":"a"}}{"value":{"type":"JSON","data":{"b":[1]}}}\r\n {"key":null}  '
    assert [each.value for each in records_in(body)] == [b"a", b'{"b":[1]}', None]


def test_the_records_before_a_wrong_one_come_first() -> None:
    found = records_in(b'{"value":{"data":"YQ=="}} {"value":7}')
    assert next(found).value == b"a"
    with pytest.raises(RestError, match="record 2: value must be"):
        next(found)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body has no record"),
        (b"\xff", "the body must be JSON in UTF-8"),
        (b"[]", "record 1 must be a JSON object; got []"),
        (b"{", "record 1 is not JSON: Expecting property name enclosed in double quotes"),
        (b'{"a":' * 100_000, "record 1 is not JSON: it is nested too deeply"),
        (b'{"topic":"t"}', "record 1 has topic; allowed are headers, key, original_size, partition_id, timestamp,"),
        (b'{"partition_id":true}', "record 1: partition_id must be a number from 0; got True"),
        (b'{"value":{"type":"AVRO","data":1}}', "record 1: value: type must be BINARY, STRING or JSON; got 'AVRO'"),
        (b'{"value":{"data":"***"}}', "record 1: value: data of type BINARY must be base64; got '***'"),
        (b'{"key":{"type":"STRING","data":"\\ud800"}}', "record 1: key has characters that UTF-8 cannot express"),
        (b'{"headers":[{"name":1}]}', "record 1: a header must be"),
        (b'{"timestamp":"yesterday"}', "record 1: timestamp must be like 2026-01-31T12:00:00Z; got 'yesterday'"),
        (b"{}" * (MOST_RECORDS + 1), f"a body may have at most {MOST_RECORDS} records"),
    ],
)
def test_a_refusal_names_what_is_wrong_and_what_is_allowed(body: bytes, message: str) -> None:
    assert message in refusal_of(body)


@given(st.binary(max_size=200))
def test_no_body_does_more_than_being_refused(body: bytes) -> None:
    try:
        list(records_in(body))
    except RestError as error:
        assert "\n" not in str(error)


def test_an_answer_repeats_the_types() -> None:
    given_record = one({"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": 1}})
    answer = written_json(given_record, RecordMetadata("t", 1, 5, 0, 1, 1), "c")
    assert answer == {
        "error_code": 200,
        "cluster_id": "c",
        "topic_name": "t",
        "partition_id": 1,
        "offset": 5,
        "timestamp": "1970-01-01T00:00:00.000Z",
        "key": {"type": "STRING", "size": 1},
        "value": {"type": "JSON", "size": 1},
    }


def test_bytes_that_are_not_of_the_format_come_as_base64() -> None:
    data = b"\xff\xfe"
    shown = record_json(
        ConsumerRecord("t", 0, 0, -1, TimestampType.NO_TIMESTAMP_TYPE, data, b"{", (), None), ("string", "json")
    )
    assert shown["key"] == {"type": "BINARY", "data": base64.b64encode(data).decode()}
    assert (shown["value"]["type"], shown["timestamp"]) == ("BINARY", None)


@given(st.dictionaries(st.integers(0, 9999), st.integers(0, 2**50), max_size=5))
def test_positions_survive_an_event_id(positions: dict[int, int]) -> None:
    assert positions_in(event_id(positions)) == positions


def test_queries() -> None:
    assert wanted_of({}).start == "latest"
    assert wanted_of({"from": "17", "partition": "2"}).start_offset == 17
    assert wanted_of({"from": "2026-01-31T12:00:00Z"}).start_ms == moment_ms("2026-01-31T12:00:00+00:00")
    assert wanted_of({}, "0:4,1:9").positions == {0: 4, 1: 9}
    assert wanted_of({"group": "g"}, "0:4").positions == {}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"form": "1"}, "there is no parameter form; allowed are"),
        ({"from": "soon"}, "from must be earliest, latest, an offset or a time"),
        ({"from": "9" * 30}, "from must be"),
        ({"partition": "-1"}, "partition must be a number from 0"),
        ({"max": "0"}, "max must be a number from 1 to 1000; got '0'"),
        ({"value": "avro"}, "value must be string, json, binary or schema; got 'avro'"),
        ({"group": "g", "partition": "1"}, "a group reads all partitions"),
        ({"group": "g", "from": "17"}, "from may be earliest or latest"),
    ],
)
def test_a_wrong_query_is_refused(query: dict[str, str], message: str) -> None:
    with pytest.raises(RestError) as caught:
        wanted_of(query)
    assert message in str(caught.value)
