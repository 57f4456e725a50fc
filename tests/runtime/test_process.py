"""The process around a node."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.runtime.process import ArgumentError, Arguments

ROOT = Path(__file__).parents[2]
PROGRAM = """
import logging, sys, trio
from barnabas.runtime import process

def load(text, name, overrides):
    mood = overrides.get("mood", "well")
    async def run(stop, *, task_status):
        if mood == "refused":
            raise OSError(98, "Address already in use")
        if mood == "broken":
            raise ZeroDivisionError("our own mistake")
        if mood == "waiting":
            print("waiting for others", file=sys.stderr, flush=True)
            await trio.sleep_forever()
        task_status.started()
        print("to standard output", flush=True)
        await (stop.wait() if mood == "well" else trio.sleep_forever())
    return process.Program("node-7", run, ["mind the gap"])

sys.exit(process.run_process("node", sys.argv[1:], load))
"""


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    config = tmp_path / "node.properties"
    config.write_text("a=1\n")
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(config), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    while text not in (line := process.stderr.readline()):
        assert line, f"the process ended before it printed {text!r}"


def test_a_node_runs_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        wait_for(process, "mind the gap")
        wait_for(process, "node-7 is up after")
        process.send_signal(signal.SIGTERM)
        wait_for(process, "SIGTERM: stopping")
        wait_for(process, "node-7 stopped")
        assert process.wait(20) == 0


def test_the_second_signal_ends_a_node_that_ignores_the_first(tmp_path: Path) -> None:
    with start(tmp_path, "--set", "mood=deaf") as process:
        wait_for(process, "is up")
        process.send_signal(signal.SIGINT)
        wait_for(process, "SIGINT: stopping")
        process.send_signal(signal.SIGINT)
        wait_for(process, "stopping at once")
        assert process.wait(20) == 0


def test_a_node_that_waits_for_others_ends_at_the_first_signal(tmp_path: Path) -> None:
    with start(tmp_path, "--set", "mood=waiting") as process:
        wait_for(process, "waiting for others")
        process.send_signal(signal.SIGTERM)
        wait_for(process, "SIGTERM before serving")
        assert process.wait(20) == 0


def test_refusals_of_the_machine_need_no_traceback(tmp_path: Path) -> None:
    with start(tmp_path, "--set", "mood=refused") as process:
        _out, err = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "Address already in use" in err and "Traceback" not in err


def test_our_own_mistake_comes_with_one(tmp_path: Path) -> None:
    with start(tmp_path, "--set=mood=broken") as process:
        _out, err = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "ZeroDivisionError: our own mistake" in err and "Traceback" in err


def test_a_log_file_gets_all_output(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    with start(tmp_path, "--log-file", str(log)) as process:
        while not log.exists() or "to standard output" not in log.read_text():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
        assert (out, err, process.returncode) == ("", "", 0)
    assert "node-7 stopped" in log.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "usage: python -m barnabas.broker CONFIG"),
        (["a", "b"], "unknown argument b"),
        (["a", "--sett", "b=c"], "unknown argument --sett"),
        (["a", "--set"], "--set needs a value"),
        (["a", "--set", "b"], "--set must be KEY=VALUE, for example num.partitions=3; got 'b'"),
    ],
)
def test_wrong_arguments(words: list[str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Arguments.parse("broker", words)


def test_arguments_that_do() -> None:
    words = ["node.properties", "--set", "a=b=c", "--set=d = e ", "--log-file=x.log"]
    arguments = Arguments.parse("broker", words)
    assert arguments == Arguments("node.properties", {"a": "b=c", "d": "e"}, "x.log")


def test_a_missing_file_is_an_error_of_one_line() -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, "/nowhere/at.all"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (2, "/nowhere/at.all: No such file or directory\n")
