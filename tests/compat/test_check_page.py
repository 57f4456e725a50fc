"""The tutorial of docs/check.md, command by command, and the programs and tables of the page."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from barnabas.check.promises import Kind
from barnabas.check.schedule import Fault
from barnabas.check.sinks import Arrived, sink_of
from barnabas.cli.main import run
from tests.compat.check_runs import EXAMPLES, check
from tests.compat.test_check import CORRECT, WRONG

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text("utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```([^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TUTORIAL = PAGE[PAGE.index("## From zero") : PAGE.index("## In pytest")]
STEPS: list[tuple[str, str]] = re.findall(r"^```([^\n]*)\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


@pytest.mark.compat
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.client("confluent-kafka")
def test_every_command_of_the_tutorial_gives_its_verdict(tmp_path: Path) -> None:
    """The kinds of findings are those of the page; their numbers differ from run to run."""
    printed, commands = "", 0
    for kind, text in STEPS:
        if kind.startswith("python "):
            (tmp_path / kind.split()[1]).write_text(text)
        elif kind == "sh" and text.startswith("barnabas check"):
            words = shlex.split(text)[2:]
            place = words.index("--")
            assert words[place + 1] == "python"
            done = check(tmp_path, [sys.executable, *words[place + 2 :]], *words[:place], cwd=tmp_path)
            printed, commands = done.printed, commands + 1
            assert done.code == (0 if " holds " in printed else 1), done.complaints
        elif kind == "text":
            assert shape(printed.splitlines()[0]) == shape(text.splitlines()[0]), printed
    assert commands == 4


def shape(verdict: str) -> tuple[str, ...]:
    """The promise, whether it holds, and the kinds of findings."""
    return tuple(re.sub(r"\d+", "", verdict).partition(" (")[0].split())


def test_the_programs_of_the_page_are_python() -> None:
    for kind, text in BLOCKS:
        if kind.startswith("python"):
            compile(text, "check.md", "exec")


def test_the_sink_of_the_page_reads_rows(tmp_path: Path) -> None:
    import sqlite3

    [text] = [text for _kind, text in BLOCKS if "class Orders" in text]
    (tmp_path / "orders.py").write_text(text)
    sink = sink_of(f"{tmp_path}/orders.py:Orders")
    assert sink is not None
    environment = sink.open(tmp_path)
    for values in ([b'{"id": 1}', b'{"id": 2}'], [b'{"id": 3}']):
        with sqlite3.connect(environment["DATABASE"]) as database:
            database.executemany("INSERT INTO orders (value) VALUES (?)", [(value,) for value in values])
        assert list(sink.read()) == [Arrived("orders", value) for value in values]
    sink.close()


def test_the_page_names_every_option_fault_and_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--help"]) == 0
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help", "--client-config"}
    assert known <= set(re.findall(r"--[a-z][a-z-]+", PAGE))
    for word in (*Fault, *Kind):
        assert f"`{word}`" in PAGE, word


def test_every_example_has_a_row_and_a_test() -> None:
    rows = set(re.findall(r"^\| \[(\w+)\.(?:py|java)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    tested = {name for name, *_ in (*CORRECT, *WRONG)}
    assert rows == tested == {path.stem for kind in ("py", "java") for path in EXAMPLES.glob(f"*.{kind}")}
