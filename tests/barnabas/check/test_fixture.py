"""The fixture `barnabas_check` in a project of others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from barnabas.check.fixtures import CannotCheck, Checker, PromiseBroken, command_of
from tests.barnabas.testing.test_plugin import run_pytest, write

MINE = """
import os

from barnabas.sync import Consumer


def leave_out(every):
    with Consumer(
        os.environ["INPUT_TOPIC"], bootstrap_servers=os.environ["BOOTSTRAP_SERVERS"],
        group_id=os.environ["GROUP_ID"], auto_offset_reset="earliest", enable_auto_commit=False,
    ) as consumer, open(os.environ["OUTPUT_FILE"], "a") as file:
        while True:
            for record in consumer.poll(timeout_ms=100):
                if not every or record.offset % every:
                    print(record.value.decode(), file=file, flush=True)
            consumer.commit()
"""
TEST = """
from mine import leave_out  # a module beside the test


def app():
    leave_out(0)


def test_a_function(barnabas_check):
    checked = barnabas_check(app, minutes=0.05, options=OPTIONS)
    assert checked.line.startswith("at-least-once holds")
    assert (checked.directory / "report.html").exists()
"""


def options(servers: str, number: int) -> list[str]:
    short = ["-b", str(servers), "--instances", "1", "--faults", "none", "--stuck", "8", "--sink", "file"]
    return [*short, "--input", f"in-f{number}", "--group", f"app-f{number}"]


def test_the_fixture_checks_a_function(servers: str, tmp_path: Path) -> None:
    write(tmp_path, {"test_mine.py": f"OPTIONS = {options(servers, 1)!r}\n{TEST}", "mine.py": MINE})
    result = run_pytest(tmp_path)
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_a_broken_promise_fails_the_test(servers: str, tmp_path: Path) -> None:
    write(tmp_path, {"mine.py": f"{MINE}\nleave_out(7)\n"})
    check = Checker(lambda: tmp_path / "run")
    with pytest.raises(PromiseBroken, match=r"at-least-once is broken: [0-9]+ lost"):
        check([sys.executable, str(tmp_path / "mine.py")], minutes=0.05, options=options(servers, 2))


def test_no_verdict_is_another_error(servers: str, tmp_path: Path) -> None:
    check = Checker(lambda: tmp_path / "run")
    with pytest.raises(CannotCheck, match="cannot run: instance-0 ended before it consumed anything"):
        check(["false"], options=options(servers, 3))


def test_a_function_that_no_other_process_finds_is_refused() -> None:
    def inner() -> None: ...

    for app in (inner, lambda: None, print):
        with pytest.raises(CannotCheck, match="a function at the top level of a module"):
            command_of(app)
