"""`barnabas why` with nodes that answer, that do not, and that answer nonsense."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from barnabas.cli.main import run
from barnabas.cluster.ports import free_base_port
from barnabas.runtime.decisions import DecisionKind, Decisions

pytestmark = pytest.mark.feature("OB-07")


@contextmanager
def node(decisions: Decisions | bytes, *partitions: dict[str, object]) -> Iterator[str]:
    """Serves a node's pages and yields its address; if `decisions` is bytes, they answer every request. `partitions`
    are those of its page `/state`, whatever the topic."""

    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(asked.query).items()}
            if isinstance(decisions, bytes):
                body = decisions
            elif asked.path == "/subjects":
                body = json.dumps({"subjects": decisions.subjects()}).encode()
            elif asked.path == "/state":
                body = json.dumps({"partitions": partitions}).encode()
            else:
                found = decisions.since(int(query["after"]) + 1, query["subject"])
                body = json.dumps({"decisions": [it.as_json() for it in found]}).encode()
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


def ring(name: str) -> Decisions:
    decisions = Decisions(name, lambda: 1_763_750_000_000)
    decisions.note(DecisionKind.ELECTION, "flights-3", "leader moved", cause="broker 2 was killed", leader_epoch=12)
    return decisions


def test_silent_nodes_are_named_and_the_others_give_the_story(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nobody = f"127.0.0.1:{free_base_port()}"
    with node(ring("controller-101")) as good, node(b"nonsense") as bad:
        assert run(["why", "flights-3", "--http", f"{good},{bad},{nobody}"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "2025-11-21",
        "  18:33:20.000Z  leader moved  (controller-101)",
        "      because broker 2 was killed",
        "      leader epoch 12",
    ]
    silent = captured.err.splitlines()
    assert len(silent) == 2 and all(" does not answer: " in line for line in silent)


def seen(index: int, leader_epoch: int, leader: int, states: list[str]) -> dict[str, object]:
    replicas = {"replicas": [1, 2, 3, 4], "isr": [1], "replica_states": states}
    return {"index": index, "leader": leader, "leader_epoch": leader_epoch, **replicas}


@pytest.mark.feature("MB-11")
def test_the_replicas_of_a_partition_are_new_online_or_offline_as_the_latest_epoch_has_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = seen(3, 11, 2, ["online"] * 4)
    new = seen(3, 12, 1, ["online", "offline", "new", "online"])
    with node(ring("broker-1"), seen(0, 99, 4, ["offline"] * 4), new) as one, node(ring("broker-2"), old) as two:
        assert run(["why", "flights-3", "--http", f"{one},{two}"]) == 0
    assert capsys.readouterr().out.splitlines()[-6:] == [
        "now",
        "  broker 1 leads flights-3 in epoch 12",
        "  the replica on broker 1 is online: it is in sync",
        "  the replica on broker 2 is offline: its broker is fenced or not registered, or its log directory is gone",
        "  the replica on broker 3 is new: a reassignment adds it, and it was not in sync yet",
        "  the replica on broker 4 is online: it is catching up",
    ]


@pytest.mark.parametrize("partition", [{}, {"index": 3}, {"index": 3, "leader": "x"}, {"index": 3, "replicas": 7}])
def test_states_of_a_foreign_server_do_no_harm(
    partition: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    with node(ring("broker-1"), partition) as address:
        assert run(["why", "flights-3", "--http", address]) == 0
    assert "now" not in capsys.readouterr().out


def test_json_output(capsys: pytest.CaptureFixture[str]) -> None:
    with node(ring("controller-101")) as address:
        assert run(["why", "flights-3", "--http", address, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["subject"], found["subjects"], found["silent"]) == ("flights-3", ["flights-3"], {})
    assert found["decisions"][0]["cause"] == "broker 2 was killed" and found["decisions"][0]["seen_by"] == []


def test_an_unknown_subject_is_answered_with_similar_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with node(ring("controller-101")) as address:
        assert run(["why", "fligths-3", "--http", address]) == 1
        assert run(["why", "zzz", "--http", address]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "no node has decisions about fligths-3; did you mean flights-3?",
        "no node has decisions about zzz; 1 other subjects are known",
    ]


def test_no_node_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["why", "quorum", "--http", f"127.0.0.1:{free_base_port()}"]) == 3
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("no node answers HTTP (127.0.0.1:")


@pytest.mark.parametrize("text", ["x", ":1", "h:", "h:0", "h:99999", "h:x", "h:1,", ""])
def test_malformed_addresses_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "quorum", "--http", text]) == 2
    assert "must be HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["why"], ["why", " "]])
def test_a_missing_subject_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("answer", [b"[]", b"{}", b'{"subjects": 5}', b'{"subjects": ["quorum"], "decisions": 7}'])
def test_answers_of_a_foreign_server_do_no_harm(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with node(answer) as address:
        assert run(["why", "quorum", "--http", address]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err
