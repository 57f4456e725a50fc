"""The fixture `barnabas_check` in a project of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.check.fixtures import CannotCheck, command_of
from tests.barnabas.testing.test_plugin import run_pytest, write

TESTS = """
import os

import pytest

from barnabas.check.fixtures import CannotCheck, PromiseBroken
from mine import work  # a module beside the test

OPTIONS = ["-b", SERVERS, "--instances", "1", "--faults", "none", "--stuck", "8", "--sink", "file"]


def app():
    work(1)


def leaves_out():
    work(7)


def names(number):
    return [*OPTIONS, "--input", f"in-f{number}", "--group", f"app-f{number}"]


def test_a_function(barnabas_check):
    checked = barnabas_check(app, minutes=0.05, options=names(1))
    assert checked.line.startswith("at-least-once holds")
    assert (checked.directory / "report.html").exists()


def test_a_broken_promise(barnabas_check):
    with pytest.raises(PromiseBroken, match="at-least-once is broken: [0-9]+ lost"):
        barnabas_check(leaves_out, minutes=0.05, options=names(2))


def test_no_verdict(barnabas_check):
    with pytest.raises(CannotCheck, match="cannot run: instance-0 ended before it consumed anything"):
        barnabas_check(["false"], options=names(3))
"""
MINE = """
import os

from barnabas.sync import Consumer


def work(take):
    with Consumer(
        os.environ["INPUT_TOPIC"], bootstrap_servers=os.environ["BOOTSTRAP_SERVERS"],
        group_id=os.environ["GROUP_ID"], auto_offset_reset="earliest", enable_auto_commit=False,
    ) as consumer, open(os.environ["OUTPUT_FILE"], "a") as file:
        while True:
            for record in consumer.poll(timeout_ms=100):
                if take == 1 or record.offset % take:
                    print(record.value.decode(), file=file, flush=True)
            consumer.commit()
"""


def test_the_fixture_checks_functions_and_commands(servers: str, tmp_path: Path) -> None:
    write(tmp_path, {"test_mine.py": f"SERVERS = {str(servers)!r}\n{TESTS}", "mine.py": MINE})
    result = run_pytest(tmp_path)
    assert "3 passed" in result.stdout, result.stdout + result.stderr


def test_a_function_that_no_other_process_finds_is_refused() -> None:
    def inner() -> None: ...

    for app in (inner, lambda: None, print):
        with pytest.raises(CannotCheck, match="a function at the top level of a module"):
            command_of(app)
