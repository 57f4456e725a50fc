"""Sentences about share groups from answers of `/shares`, and `barnabas why --group` with nodes that answer them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from barnabas.cli.main import run
from barnabas.why.share_delivery import why_group, why_partition, why_record
from barnabas.why.shares_view import read_shares

pytestmark = pytest.mark.feature("OB-07", "CG-18")

AT_MS = 1_763_750_000_000
MEMBER = {
    "member_id": "m-1",
    "client_id": "slow",
    "host": "/10.0.0.7",
    "topics": ["flights"],
    "assignment": {"flights": [3]},
}
COORDINATOR = {
    "state": "Stable",
    "epoch": 5,
    "assignment_epoch": 5,
    "members": [MEMBER],
    "members_left_out": 0,
    "initialized": {"flights": [3]},
}


def partition(**changes: Any) -> dict[str, Any]:
    spans = [
        {
            "first_offset": 10, "last_offset": 11, "state": "acquired", "delivery_count": 2, "member_id": "m-1",
            "since_ms": AT_MS, "lock_ends_ms": AT_MS + 30_000, "becomes": "acknowledged",
        },
        {"first_offset": 12, "last_offset": 12, "state": "available", "delivery_count": 0},
        {"first_offset": 13, "last_offset": 13, "state": "archived", "delivery_count": 5},
        {"first_offset": 14, "last_offset": 14, "state": "waiting", "delivery_count": 1, "lock_ends_ms": AT_MS + 5},
        {"first_offset": 15, "last_offset": 15, "state": "archiving", "delivery_count": 5},
    ]  # fmt: skip
    return {
        "topic": "flights",
        "partition": 3,
        "leader_epoch": 7,
        "log_start_offset": 2,
        "high_watermark": 40,
        "last_stable_offset": 35,
        "error": "",
        "error_at_ms": None,
        "is_loaded": True,
        "max_record_locks": 100,
        "delivery_count_limit": 5,
        "start_offset": 10,
        "end_offset": 16,
        "delivery_complete": 1,
        "can_acquire": True,
        "counts": {"acquired": 2, "available": 1, "archived": 1, "waiting": 1, "archiving": 1},
        "spans": spans,
        "spans_left_out": 0,
        **changes,
    }


def answer(*partitions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "node": "broker-1",
        "group": "workers",
        "read_committed": True,
        "coordinator": COORDINATOR,
        "partitions": list(partitions),
        "not_loaded": [],
        "sessions": [],
        **changes,
    }


def time(at_ms: int) -> str:
    return f"T{at_ms - AT_MS}"


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (1, "removed from the log, which begins at 2"),
        (9, "done: accepted, rejected or given up; the start offset is 10"),
        (
            11,
            "acquired by m-1 (client slow at 10.0.0.7) since T0; delivered 2 times of 5; its lock ends at T30000; "
            "it becomes acknowledged when that is stored",
        ),
        (12, "available, and not delivered yet"),
        (13, "given up: delivered 5 times, as share.delivery.count.limit allows, or rejected"),
        (14, "delivered once of 5, and available again from T5 on"),
        (15, "rejected or given up after it was delivered 5 times; the dead-letter topic gets its copy"),
        (20, "never acquired; 4 records are before it from offset 16 on"),
        (36, "held back by an open transaction, from offset 35 on"),
        (40, "not committed: the high watermark is 40"),
    ],
)
def test_a_record_is_explained(offset: int, expected: str) -> None:
    view = read_shares("workers", [answer(partition())])
    assert why_record(view, "flights", 3, offset, time)[0] == f"offset {offset}: {expected}"


def test_a_reason_to_hold_a_partition_back_is_named() -> None:
    held = partition(can_acquire=False, error="COORDINATOR_NOT_AVAILABLE", error_at_ms=AT_MS)
    lines = why_partition(read_shares("workers", [answer(held)]), "flights", 3, time)
    assert "flights-3 is assigned to m-1 (client slow at 10.0.0.7)" in lines
    assert (
        "flights-3: the last acknowledgements could not be stored by the share coordinator: "
        "COORDINATOR_NOT_AVAILABLE at T0" in lines
    )
    assert (
        "flights-3: nothing more is delivered until records are acknowledged: "
        "share.partition.max.record.locks allows 100 in flight" in lines
    )
    assert any(line.startswith("flights-3: an open transaction holds back records from offset 35") for line in lines)


def test_a_partition_that_nobody_has_or_that_cannot_be_read_is_named() -> None:
    failed = {"topic": "flights", "partition": 3, "error": "COORDINATOR_LOAD_IN_PROGRESS", "at_ms": AT_MS}
    view = read_shares("workers", [answer(not_loaded=[failed])])
    why = "its state could not be read from the share coordinator: COORDINATOR_LOAD_IN_PROGRESS at T0"
    assert why_partition(view, "flights", 3, time)[-1] == f"flights-3: {why}"
    assert why_group(view, time)[-1] == f"flights-3: {why}"
    fresh = {**COORDINATOR, "initialized": {}, "members": [{**MEMBER, "assignment": {}}]}
    lines = why_partition(read_shares("workers", [answer(coordinator=fresh)]), "flights", 3, time)
    assert lines[0] == (
        "flights-3 is assigned to nobody: the share coordinator has not initialized its state yet"
    )
    nobody = read_shares("workers", [answer(coordinator=None)])
    assert why_partition(nobody, "flights", 3, time)[0] == "no broker that answers coordinates share group workers"


def test_the_newest_leader_counts() -> None:
    old = answer(partition(leader_epoch=6, high_watermark=1), node="broker-2", coordinator=None)
    view = read_shares("workers", [answer(partition()), old])
    assert view.partitions["flights", 3].node == "broker-1"


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        [],
        {"group": "workers", "partitions": "x", "coordinator": 7, "sessions": [1], "not_loaded": {}},
        answer({"topic": 1, "partition": "x", "spans": [None, {"state": 3}], "counts": [], "is_loaded": True}),
        answer(coordinator={"epoch": 9, "members": [{"assignment": [], "topics": 4}], "initialized": {"t": "x"}}),
    ],
)
def test_malformed_answers_count_as_missing(hostile: object) -> None:
    view = read_shares("workers", [hostile])
    assert why_record(view, "flights", 3, 1, time)
    assert why_partition(view, "flights", 3, time)
    assert why_group(view, time)


@contextmanager
def node(shares: dict[str, Any]) -> Iterator[str]:
    """Serves the pages of a node without decisions."""

    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = shares if self.path.startswith("/shares?") else {"subjects": [], "decisions": []}
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_command_prints_the_state_of_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    with node(answer(partition())) as address:
        question = ["why", "flights-3", "--group", "workers", "--offset", "12", "--http", address]
        assert run(question) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:2] == ["now", "  offset 12: available, and not delivered yet"]
        assert run([*question, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["now"][0] == "offset 12: available, and not delivered yet"


def test_wrong_questions_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with node(answer()) as address:
        for words, expected in (
            (("flights", "--group", "workers"), "--group needs a partition such as flights-3; got flights"),
            (("flights-3", "--offset", "1"), "--offset needs --group GROUP"),
            (("flights-3", "--group", "nobody"), "no node has decisions about share group nobody"),
        ):
            assert run(["why", *words, "--http", address]) != 0
            assert expected in capsys.readouterr().err
