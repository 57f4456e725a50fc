"""The programs, tests and options of docs/development.md."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from barnabas.cli.main import run
from tests.barnabas.testing.test_plugin import run_pytest

PAGE = (Path(__file__).parents[3] / "docs" / "development.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.feature("OP-10")
def test_the_program_prints_what_the_page_shows() -> None:
    (_, program), (_, expected), *_ = BLOCKS
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(program, {"__name__": "__main__"})
    assert printed.getvalue() == expected


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for number, (_, tests) in enumerate(BLOCKS[2:]):
        (tmp_path / f"test_page_{number}.py").write_text(tests)
    result = run_pytest(tmp_path)
    assert "5 passed" in result.stdout, result.stdout + result.stderr


def test_the_page_names_the_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dev", "--help"]) == 0
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    table = PAGE[PAGE.index("| option") : PAGE.index("## In your process")]
    assert set(re.findall(r"--[a-z][a-z-]+", table)) == known
