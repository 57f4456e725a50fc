"""`barnabas why` as it is typed: nodes that answer, that do not, that answer nonsense."""

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
from runtime.decisions import DecisionKind, Decisions

pytestmark = pytest.mark.feature("OB-07")


@contextmanager
def node(decisions: Decisions | bytes) -> Iterator[str]:
    """A node's pages at the address that it gives; bytes are answered to whatever is asked."""

    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(asked.query).items()}
            if isinstance(decisions, bytes):
                body = decisions
            elif asked.path == "/subjects":
                body = json.dumps({"subjects": decisions.subjects()}).encode()
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


def test_one_story_of_those_who_answer_and_one_line_for_those_who_do_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nobody = f"127.0.0.1:{free_base_port()}"
    with node(ring("controller-101")) as good, node(b"nonsense") as bad:
        assert run(["why", "flights-3", "--http", f"{good},{bad},{nobody}"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "2025-11-21",
        "  18:33:20.000Z  leader moved  (controller-101)",
        "      because broker 2 was killed",
        "      leader epoch 12",
    ]
    silent = told.err.splitlines()
    assert len(silent) == 2 and all(" does not answer: " in line for line in silent)


def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with node(ring("controller-101")) as address:
        assert run(["why", "flights-3", "--http", address, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["subject"], found["subjects"], found["silent"]) == ("flights-3", ["flights-3"], {})
    assert found["decisions"][0]["cause"] == "broker 2 was killed" and found["decisions"][0]["seen_by"] == []


def test_an_unknown_subject_names_those_that_are_near(capsys: pytest.CaptureFixture[str]) -> None:
    with node(ring("controller-101")) as address:
        assert run(["why", "fligths-3", "--http", address]) == 1
        assert run(["why", "zzz", "--http", address]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "no node knows anything of fligths-3; did you mean flights-3?",
        "no node knows anything of zzz; 1 other subjects are known",
    ]


def test_nobody_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["why", "quorum", "--http", f"127.0.0.1:{free_base_port()}"]) == 3
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("no node tells of itself (127.0.0.1:")


@pytest.mark.parametrize("text", ["x", ":1", "h:", "h:0", "h:99999", "h:x", "h:1,", ""])
def test_what_is_no_address(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "quorum", "--http", text]) == 2
    assert "not HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["why"], ["why", " "]])
def test_of_what(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("answer", [b"[]", b"{}", b'{"subjects": 5}', b'{"subjects": ["quorum"], "decisions": 7}'])
def test_a_node_of_another_kind_is_heard_without_harm(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with node(answer) as address:
        assert run(["why", "quorum", "--http", address]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err
