"""Sinks for files, HTTP, and those of users."""

from __future__ import annotations

import urllib.request
from http.client import HTTPConnection
from pathlib import Path

import pytest

from barnabas.check.errors import CannotRun
from barnabas.check.reading import transformation_of
from barnabas.check.records import NotReadable, id_in_json
from barnabas.check.sinks import Arrived, FileSink, HttpSink, sink_of


def test_a_line_counts_when_it_has_its_end(tmp_path: Path) -> None:
    sink = FileSink()
    file = Path(sink.open(tmp_path)["OUTPUT_FILE"])
    file.write_bytes(b'{"id": 1}\n\n{"id"')
    assert list(sink.read()) == [Arrived("output.jsonl", b'{"id": 1}')]
    with file.open("ab") as more:
        more.write(b': 2}\n{"id": 3}\n')
    assert [it.value for it in sink.read()] == [b'{"id": 2}', b'{"id": 3}']
    assert list(sink.read()) == []


def test_each_file_of_the_directory_is_a_place(tmp_path: Path) -> None:
    sink = FileSink()
    directory = Path(sink.open(tmp_path)["OUTPUT_DIR"])
    (directory / "sub").mkdir()
    for name in ("b.jsonl", "sub/a.jsonl"):
        (directory / name).write_text("{}\n")
    assert [it.place for it in sink.read()] == ["b.jsonl", "sub/a.jsonl"]


def test_the_endpoint_takes_bodies(tmp_path: Path) -> None:
    sink = HttpSink()
    url = sink.open(tmp_path)["OUTPUT_URL"]
    try:
        for method, body in (("POST", b'{"id": 1}'), ("PUT", b'{"id": 2}')):
            request = urllib.request.Request(url, body, method=method)
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.status == 204
        assert list(sink.read()) == [Arrived("/output", b'{"id": 1}'), Arrived("/output", b'{"id": 2}')]
        for length, status in ((str(2 << 20), 413), ("many", 411)):
            connection = HTTPConnection(url.removeprefix("http://").partition("/")[0], timeout=10)
            connection.putrequest("POST", "/output")
            connection.putheader("Content-Length", length)
            connection.endheaders()
            assert connection.getresponse().status == status
            connection.close()
        assert list(sink.read()) == []
    finally:
        sink.close()


def test_a_class_in_a_file_is_a_sink(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "class Mine:\n"
        "    def open(self, directory): return {}\n"
        "    def read(self): return []\n"
        "    def close(self): pass\n"
        "class Half:\n"
        "    def open(self, directory): return {}\n"
    )
    sink = sink_of(f"{path}:Mine")
    assert sink is not None and list(sink.read()) == []
    assert sink_of("topic") is None
    for wrong, part in (
        ("kitchen", "--sink must be topic, file, http or FILE.py:CLASS"),
        (f"{path}:Half", "has no method read"),
        (f"{path}:None_", "does not define None_"),
        (f"{tmp_path}/no.py:Mine", "is not a Python file"),
    ):
        with pytest.raises(CannotRun, match=part):
            sink_of(wrong)


def test_a_map_defines_what_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "pairs.py"
    path.write_text("def outputs(record): return [f\"{record['id']}a\"] if record['id'] % 2 else []\n")
    found = transformation_of(path)
    assert found.outputs_of({"id": 3}) == ("3a",)
    assert found.outputs_of({"id": 4}) == ()
    assert found.identify(None, b'{"id": "3a"}') == "3a"
    path.write_text("x = 1\n")
    with pytest.raises(CannotRun, match="neither"):
        transformation_of(path)
    path.write_text("syntax error\n")
    with pytest.raises(CannotRun, match="SyntaxError"):
        transformation_of(path)


@pytest.mark.parametrize("value", [b"", b"7", b"{}", b"[]", b"\xff", b"[" * 100_000])
def test_an_output_without_an_id_is_not_readable(value: bytes) -> None:
    with pytest.raises(NotReadable):
        id_in_json(None, value)
