"""The file with the ends of all logs of a broker: what is written is read, and anything else is refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.primitives import uuid_to_string
from barnabas.storage.log_ends import BrokerLogEnds, LogEnd, MalformedLogEnds, format_log_ends, parse_log_ends

pytestmark = pytest.mark.feature("OP-07")

NUMBER = st.integers(0, 1 << 40)
UUID = st.binary(min_size=16, max_size=16)
TEXT = st.text(min_size=1, max_size=5)
LOG = st.builds(LogEnd, TEXT, NUMBER, st.none() | UUID, UUID, st.integers(-1, 9), NUMBER, st.booleans())
ENDS = st.builds(BrokerLogEnds, TEXT, NUMBER, NUMBER, st.lists(LOG, max_size=3).map(tuple))


@given(ENDS)
def test_a_file_is_read_as_it_was_written(ends: BrokerLogEnds) -> None:
    assert parse_log_ends(format_log_ends(ends), "ends.json") == ends


@given(ENDS)
def test_a_file_of_a_time_without_tiered_logs_has_none(ends: BrokerLogEnds) -> None:
    content = json.loads(format_log_ends(ends))
    for log in content["logs"]:
        del log["is_tiered"]
    plain = tuple(replace(log, is_tiered=False) for log in ends.logs)
    assert parse_log_ends(json.dumps(content), "ends.json") == replace(ends, logs=plain)


def is_whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and value >= least


def is_uuid(value: Any) -> bool:
    return value == uuid_to_string(b"i" * 16)


ALLOWED: dict[str, Any] = {
    "version": lambda value: value == 1,
    "cluster_id": lambda value: isinstance(value, str) and value != "",
    "broker_id": is_whole,
    "broker_epoch": is_whole,
    "topic": lambda value: isinstance(value, str) and value != "",
    "partition": is_whole,
    "topic_id": lambda value: value is None or is_uuid(value),
    "directory_id": is_uuid,
    "leader_epoch": lambda value: is_whole(value, -1),
    "end_offset": is_whole,
}


@pytest.mark.parametrize("name", ALLOWED)
def test_every_field_is_checked(name: str) -> None:
    log = LogEnd("orders", 3, None, b"d" * 16, 7, 42)
    for value in (None, True, False, -2, -1, 0, 1, 2, 1.5, "", "x", uuid_to_string(b"i" * 16), [], {}):
        content = json.loads(format_log_ends(BrokerLogEnds("cluster", 1, 5, (log,))))
        place = content if name in content else content["logs"][0]
        assert name in place
        place[name] = value
        # True is 1 in Python, and a version is compared only.
        if ALLOWED[name](value):
            parse_log_ends(json.dumps(content), "ends.json")
            continue
        with pytest.raises(MalformedLogEnds, match=r"\Aends\.json: .+\Z"):
            parse_log_ends(json.dumps(content), "ends.json")
        del place[name]
        with pytest.raises(MalformedLogEnds, match="version" if name == "version" else f"{name} is missing"):
            parse_log_ends(json.dumps(content), "ends.json")


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"version": 1}', '{"version": 1, "logs": 5}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(MalformedLogEnds, match=r"\Aends\.json: .+\Z"):
        parse_log_ends(text, "ends.json")


@given(st.lists(LOG, min_size=1))
def test_the_log_with_every_committed_record_has_the_latest_epoch_and_is_the_longest_of_those(
    logs: list[LogEnd],
) -> None:
    best = max(logs, key=lambda log: log.rank)
    latest = [log for log in logs if log.leader_epoch == max(each.leader_epoch for each in logs)]
    assert best in latest and best.end_offset == max(log.end_offset for log in latest)
