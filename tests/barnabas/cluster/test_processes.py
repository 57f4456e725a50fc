"""Pid files name a process beyond doubt."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cluster.processes import ProcessId, State, state_of


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_process_is_what_its_pid_file_says(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    pid_file = tmp_path / "run" / "node.pid"
    process = ProcessId.of(sleeper.pid)
    assert process is not None
    process.write(pid_file)
    assert ProcessId.read(pid_file) == process
    assert state_of(pid_file) is State.RUNNING
    assert process.send(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    assert state_of(pid_file) is State.PAUSED
    assert process.send(signal.SIGKILL)
    assert process.wait_gone(10)
    assert state_of(pid_file) is State.DEAD
    assert not process.send(signal.SIGKILL)


def test_a_foreign_process_with_the_same_number_is_left_alone(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    ours = ProcessId.of(sleeper.pid)
    assert ours is not None
    before = ProcessId(ours.pid, ours.start_ticks - 1)
    before.write(tmp_path / "node.pid")
    assert not before.send(signal.SIGKILL)
    assert before.wait_gone(0)
    assert state_of(tmp_path / "node.pid") is State.DEAD
    assert sleeper.poll() is None


def test_waiting_ends_with_the_time(sleeper: subprocess.Popen[bytes]) -> None:
    process = ProcessId.of(sleeper.pid)
    assert process is not None
    assert not process.wait_gone(0.01)


@pytest.mark.parametrize("text", ["", "12", "a b", "1 2 3"])
def test_a_cut_pid_file_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.pid").write_text(text)
    assert ProcessId.read(tmp_path / "node.pid") is None
    assert state_of(tmp_path / "node.pid") is State.STOPPED
    assert state_of(tmp_path / "nobody.pid") is State.STOPPED


def test_a_process_is_gone_when_its_last_thread_is_gone(tmp_path: Path) -> None:
    """The first thread of a killed process may end before the others, which still hold its listening port."""
    code = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        process = ProcessId.of(child.pid)
        assert process is not None
        process.write(tmp_path / "node.pid")
        while "Z" not in Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2]:
            os.sched_yield()
        assert process.alive
        assert state_of(tmp_path / "node.pid") is State.RUNNING
        assert not process.wait_gone(0.01)
        child.kill()
        assert process.wait_gone(10)
        assert state_of(tmp_path / "node.pid") is State.DEAD
