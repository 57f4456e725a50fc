"""Runs the programs of docs/client.md, in order, and compares what they print with the text below them."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from barnabas.pytest_plugin import BarnabasCluster
from tests.barnabas.testing.test_plugin import run_pytest

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "client.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """(language, text) of all blocks of code."""
    return _BLOCK.findall(TUTORIAL.read_text())


def is_test(program: str) -> bool:
    return "def test_" in program


def programs() -> Iterator[tuple[str, str]]:
    """Each program and what it prints."""
    all_blocks = [*blocks(), ("", "")]
    for (language, text), (after, expected) in itertools.pairwise(all_blocks):
        if language == "python" and not is_test(text):
            yield text, expected if after == "text" else ""


@pytest.mark.feature("CL-02", "CL-03", "CL-04", "CL-05", "OP-10")
def test_every_program_of_the_tutorial_prints_what_it_says(barnabas_cluster: BarnabasCluster) -> None:
    found = list(programs())
    assert len(found) >= 10
    for program, expected in found:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(program.replace("127.0.0.1:9092", barnabas_cluster.bootstrap_servers), {"__name__": "__main__"})
        assert printed.getvalue() == expected, program


def test_every_test_of_the_tutorial_passes(tmp_path: Path) -> None:
    tests = [text for language, text in blocks() if language == "python" and is_test(text)]
    assert len(tests) == 3
    for number, text in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(text)
    result = run_pytest(tmp_path)
    assert "3 passed" in result.stdout, result.stdout + result.stderr
