"""`python -m tests.protocol.vectors`: what it accepts, what it refuses, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.vectors import main

HEARTBEAT = {
    "group": "rpc",
    "message": "HeartbeatRequest",
    "version": 0,
    "json": {"groupId": "g", "generationId": 7, "memberId": "m"},
    "hex": "0001670000000700016d",
}
QUOTA = {
    "message": "ClientQuotaRecord",
    "version": 0,
    "json": {"entity": [], "key": "k", "value": 0.5, "remove": False},
    "hex": "01026b3fe00000000000000000",
}
TELEMETRY = {
    "message": "GetTelemetrySubscriptionsRequest",
    "version": 0,
    "json": {"clientInstanceId": "AAAAAAAAAAAAAAAAAAAAAQ"},
    "hex": "0000000000000000000000000000000100",
}


def run(path: Path, *vectors: dict[str, Any]) -> int:
    path.write_text("".join(json.dumps(vector) + "\n" for vector in vectors), encoding="utf-8")
    return main([str(path)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors.jsonl"


@pytest.mark.feature("PF-03")
def test_all_is_well(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(path, HEARTBEAT, QUOTA, TELEMETRY) == 0
    assert capsys.readouterr().out == "3 passed, 0 failed\n"


@pytest.mark.feature("PF-03")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"json": {"groupId": "h", "generationId": 7, "memberId": "m"}}, "group_id is 'g', not 'h'"),
        ({"json": {"groupId": "g", "generationId": True, "memberId": "m"}}, "no int32"),
        ({"json": {"groupId": "g", "generationId": 2**31, "memberId": "m"}}, "no int32"),
        ({"json": {"groupId": None, "generationId": 7, "memberId": "m"}}, "may not be null"),
        ({"json": {"groupId": "g", "generationId": 7}}, "lacks memberId"),
        ({"json": {**HEARTBEAT["json"], "groupInstanceId": None}}, "no groupInstanceId in version 0"),  # type: ignore[dict-item]
        ({"json": 5}, "no object"),
        ({"hex": "00016700000007"}, "ends too early"),
        ({"hex": "0001670000000700016d00"}, "left over"),
        ({"hex": "xy"}, "hex is wrong"),
        ({"version": 99}, "not 99"),
        ({"message": "NoSuchRequest"}, "no message has this name"),
    ],
)
def test_a_failure_names_line_and_reason(
    path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], reason: str
) -> None:
    assert run(path, HEARTBEAT, {**HEARTBEAT, **changes}) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}:2: ")
    assert reason in first
    assert last == "1 passed, 1 failed"


@pytest.mark.feature("PF-03")
@pytest.mark.parametrize(
    ("value", "double"),
    [
        ("NaN", "7ff8000000000000"),
        (float("nan"), "7ff8000000000001"),
        ("Infinity", "7ff0000000000000"),
        (float("-inf"), "fff0000000000000"),
        (-0.0, "8000000000000000"),
        (3, "4008000000000000"),
        (5e-324, "0000000000000001"),
    ],
    ids=str,
)
def test_floats_of_every_kind(path: Path, value: object, double: str) -> None:
    vector = {**QUOTA, "json": {**QUOTA["json"], "value": value}, "hex": f"01026b{double}0000"}  # type: ignore[dict-item]
    assert run(path, vector) == (0 if double != "7ff8000000000001" else 1)
    other = {**vector, "hex": "01026b3ff00000000000000000"}
    assert run(path, other) == 1


@pytest.mark.feature("PF-03")
def test_values_that_the_json_form_cannot_express_are_taken_from_the_bytes(path: Path) -> None:
    unknown_tag = {**TELEMETRY, "hex": "00000000000000000000000000000001016403616263"}
    records = {
        "message": "ProduceRequest",
        "version": 3,
        "json": {
            "transactionalId": None,
            "acks": 1,
            "timeoutMs": 0,
            "topicData": [{"name": "t", "partitionData": [{"index": 0, "records": ""}]}],
        },
        "hex": "ffff00010000000000000001000174000000010000000000000003616263",
    }
    assert run(path, unknown_tag, records) == 0
    null = json.loads(json.dumps(records).replace('"records": ""', '"records": null'))
    assert run(path, null) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"no json\n",
        b"[]\n",
        b'{"hex": "00"}\n',
        b"\xff\xfe\n",
        b'{"message": "X", "version": "1", "json": {}, "hex": ""}\n',
    ],
    ids=["no json", "no object", "neither form", "no text", "version as text"],
)
def test_a_file_without_vectors_is_an_error_of_one_line(
    path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    path.write_bytes(content)
    assert main([str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert str(path) in captured.err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.jsonl")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert main([]) == 2


@pytest.mark.feature("PF-07", "PF-10")
def test_batches_with_other_values_fail(
    path: Path, capsys: pytest.CaptureFixture[str], batch_vectors: str
) -> None:
    from tests.protocol.vectors import read_vectors

    vectors = {vector["case"]: vector for _, vector in read_vectors(batch_vectors)}
    good = vectors["magic2-none-2"]
    wrong = json.loads(json.dumps(good))
    wrong["batches"][0]["records"][1]["offset"] += 1
    damaged = {**good, "hex": good["hex"][:-2] + ("00" if good["hex"][-2:] != "00" else "01")}
    cut = {**good, "hex": good["hex"][:-2]}
    fewer = {**good, "batches": []}
    assert run(path, good, wrong, damaged, cut, fewer) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("magic2-none-2: ")[2][:12] for line in lines[:-1]] == [
        "batch 0: rec",
        "the CRC does",
        "the batches ",
        "found 1 batc",
    ]
    assert lines[-1] == "1 passed, 4 failed"
