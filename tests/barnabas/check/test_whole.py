"""Whole runs against a broker in this process: verdicts, exit codes, and applications that misbehave."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import count
from pathlib import Path

import pytest

from barnabas import sync
from barnabas.cli.main import run
from barnabas.cluster.processes import ProcessId

EXAMPLE = Path(__file__).parents[3] / "examples" / "check" / "barnabas_exactly_once.py"
COPY = """
import os, time
from barnabas.sync import Consumer, Producer
servers = os.environ["BOOTSTRAP_SERVERS"]
with Producer(bootstrap_servers=servers) as producer, Consumer(
    os.environ["INPUT_TOPIC"], bootstrap_servers=servers, group_id=os.environ["GROUP_ID"],
    auto_offset_reset="earliest", enable_auto_commit=False,
) as consumer:
    while True:
        records = consumer.poll(timeout_ms=100)
        for record in records:
            HERE
        if records:
            consumer.commit()
"""
"""An application that does something with each record, then commits."""
TO_FILE = COPY.replace(
    "HERE", "print(record.value.decode(), file=open(os.environ['OUTPUT_FILE'] + os.environ['INSTANCE'], 'a'))"
)
_numbers = count(1)


class Checked:
    """Runs checks and keeps what they print."""

    def __init__(self, servers: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.servers = servers
        self.out = directory / "out"
        self._capsys = capsys
        self.printed = self.complaints = ""

    def __call__(self, command: list[str], *options: str) -> int:
        """The exit code. Topics and group are new."""
        number = next(_numbers)
        names = ["--input", f"in-{number}", "--output", f"out-{number}", "--group", f"app-{number}"]
        short = ["--minutes", "0.05", "--instances", "1", "--seed", "1", "--faults", "none", "--stuck", "4"]
        words = ["check", "-b", self.servers, "--out", str(self.out), *names, *short, *options, "--", *command]
        code = run(words)
        self.printed, self.complaints = self._capsys.readouterr()
        for path in self.out.rglob("*.pid"):
            process = ProcessId.read(path)
            assert process is None or not process.alive, f"{path} runs still"
        return code


@pytest.fixture
def checked(servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    return Checked(servers, tmp_path, capsys)


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_correct_application_keeps_its_promise_under_faults(checked: Checked) -> None:
    options = (
        "--promise",
        "exactly-once,ordered",
        "--minutes",
        "0.2",
        "--instances",
        "2",
        "--faults",
        "kill,expire,cut",
    )
    code = checked([sys.executable, str(EXAMPLE)], *options)
    assert code == 0, checked.printed + checked.complaints
    assert checked.printed.startswith("exactly-once, ordered holds (")
    found = json.loads((checked.out / "check.json").read_text())
    assert found["holds"] and found["figures"]["faults"] >= 1 and found["figures"]["inputs"] > 100
    with sync.Admin(bootstrap_servers=checked.servers) as admin:
        assert not [name for name in admin.list_topics() if name.startswith(("in-", "out-"))], "they are deleted"


def test_records_that_are_left_out_are_lost(checked: Checked) -> None:
    wrong = TO_FILE.replace("print(", "record.offset % 10 == 3 or print(")
    code = checked(program(wrong), "--sink", "file")
    assert code == 1, checked.printed + checked.complaints
    assert json.loads((checked.out / "check.json").read_text())["counts"].keys() == {"lost"}
    assert "produced to partition" in checked.printed
    assert (checked.out / "report.html").stat().st_size > 1000


def test_files_are_a_sink(checked: Checked) -> None:
    code = checked(program(TO_FILE), "--sink", "file", "--promise", "ordered", "--instances", "2")
    assert code == 0, checked.printed + checked.complaints


def test_no_output_at_all_is_said(checked: Checked) -> None:
    code = checked(program(COPY.replace("HERE", "pass")))
    assert code == 1
    assert "note: there is no output at all in topic out-" in checked.printed
    assert "that where the application writes?" in checked.printed


def test_an_application_that_stands_still_is_stuck(checked: Checked) -> None:
    still = TO_FILE.replace(
        "if records:", "if records and record.offset > 5:\n            time.sleep(600)\n        elif records:"
    )
    code = checked(program(still), "--sink", "file", "--partitions", "1")
    assert code == 1, checked.printed + checked.complaints
    assert json.loads((checked.out / "check.json").read_text())["counts"].keys() == {"stuck"}


def test_an_application_that_writes_to_its_input_is_one_line(checked: Checked) -> None:
    wrong = COPY.replace("HERE", "producer.send(os.environ['INPUT_TOPIC'], b'mine')")
    assert checked(program(wrong)) == 2
    last = checked.complaints.splitlines()[-1]
    assert "is no record of the check: does the application write to its input?" in last


def test_an_application_that_never_consumes_is_one_line(checked: Checked) -> None:
    wrong = "import sys, time; print('waiting for Godot', file=sys.stderr, flush=True); time.sleep(600)"
    code = checked(program(wrong), "--start-timeout", "2", "--grace", "1")
    assert code == 2
    assert checked.complaints.splitlines()[-1].startswith("cannot run: the application never began to consume: ")
    assert "it wrote: waiting for Godot" in checked.complaints
    assert checked.printed == ""


def test_an_application_that_dies_at_once_shows_its_last_lines(checked: Checked) -> None:
    code = checked(program("raise RuntimeError('no configuration')"))
    assert code == 2
    assert "cannot run: instance-0 ended before it consumed anything, with exit code 1: " in checked.complaints
    assert "RuntimeError: no configuration" in checked.complaints


def test_an_application_that_ignores_sigterm_is_killed_and_noted(checked: Checked) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + TO_FILE
    code = checked(program(deaf), "--sink", "file", "--grace", "0.5")
    assert code == 0, checked.printed + checked.complaints
    assert "note: instance-0 ignored SIGTERM for 0 s and was killed, 1 times" in checked.printed


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--promise", "twice"], "a promise is at-least-once, exactly-once or ordered; got 'twice'"),
        (["--faults", "kill,earthquake"], "--faults must be all, none, or some of kill, "),
        (["--sink", "kitchen"], "--sink must be topic, file, http or FILE.py:CLASS; got 'kitchen'"),
        (["--map", "/nowhere.py"], "/nowhere.py is not a Python file"),
    ],
)
def test_a_wrong_option_is_one_line(checked: Checked, options: list[str], complaint: str) -> None:
    assert checked(["true"], *options) == 2
    assert checked.complaints.splitlines()[-1].startswith(f"cannot run: {complaint}")


def test_a_program_that_is_not_there_is_one_line(checked: Checked) -> None:
    assert checked(["/nowhere/app"]) == 2
    assert (
        checked.complaints.splitlines()[-1] == "cannot run: /nowhere/app cannot be started: No such file or directory"
    )


def test_a_directory_of_others_is_left_alone(checked: Checked) -> None:
    checked.out.mkdir()
    (checked.out / "thesis.txt").write_text("years of work")
    assert checked(["true"]) == 2
    assert "is not empty and not of an earlier check" in checked.complaints
    assert (checked.out / "thesis.txt").read_text() == "years of work"
    shutil.rmtree(checked.out)


def test_a_topic_with_records_is_refused(checked: Checked) -> None:
    with sync.Producer(bootstrap_servers=checked.servers) as producer:
        producer.send("full", b"a record of somebody")
    assert checked(["true"], "--input", "full") == 2
    assert "topic full has records; the check needs new topics" in checked.complaints


def test_a_cluster_that_is_away_is_one_line(checked: Checked) -> None:
    checked.servers = "127.0.0.1:1"
    assert checked(["true"]) == 2
    assert checked.complaints.splitlines()[-1].startswith("cannot run: ")
