"""A command that is interrupted first ends its runs, and they keep their recordings.

`suite`, `shrink` and `plants` do their runs as processes. SIGTERM ended the suite alone, and its runs went on with six
nodes each. Ctrl-C killed the run of `plants`: its directory was deleted while the search for its nodes still read it,
so some nodes stayed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from running.children import Children, Interrupted
from running.jobs import Job, Tally
from running.processes import ANOMALY, COULD_NOT_RUN, VALID, Done
from tests.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
sys.path[:0] = ["jepsen-style", "."]
from pathlib import Path
from running.children import CHILDREN
from running.jobs import Job, carry_out
words = "run set --cluster sim --time 3600 --rate 20 --concurrency 2 --seed 1".split()
jobs = [Job("first", tuple(words)), Job("second", tuple(words))]
with CHILDREN.ended_by_signals():
    tally = carry_out(jobs, Path(sys.argv[1]), 1, print, lambda: True)
print(tally.done, len(tally.cut_short), tally.exit_code)
"""
STUBBORN = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", file=open({ready!r}, "w"), flush=True)
for _ in range({patience}):
    signal.sigwait([signal.SIGTERM])
print("kept")
"""
PATIENCE_SECONDS = 60.0


@pytest.mark.feature("FI-12")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_suite_ends_its_run_which_is_judged(number: signal.Signals, tmp_path: Path) -> None:
    program = [sys.executable, "-c", SUITE, str(tmp_path)]
    suite = subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    histories = "*/*/history.jsonl"
    eventually(lambda: any(path.stat().st_size > 5_000 for path in tmp_path.glob(histories)), PATIENCE_SECONDS)
    suite.send_signal(number)
    stdout, stderr = suite.communicate(timeout=PATIENCE_SECONDS)

    assert suite.returncode == 0, stderr
    assert stdout.splitlines()[-1] == f"1 1 {COULD_NOT_RUN}", "the second never began"
    assert stdout.startswith("cut short")
    assert "again ends it at once" in stderr
    [directory] = tmp_path.glob("*/*")
    assert (directory / "verdict.json").stat().st_size and (directory / "report.html").stat().st_size


def test_all_children_are_interrupted_and_none_starts_afterwards(tmp_path: Path) -> None:
    children = Children()
    programs = [
        [sys.executable, "-c", STUBBORN.format(ready=str(tmp_path / str(patience)), patience=patience)]
        for patience in (1, 2)
    ]
    with ThreadPoolExecutor(2) as pool:
        quick, slow = [pool.submit(children.run, program, PATIENCE_SECONDS) for program in programs]
        eventually(lambda: all((tmp_path / name).exists() for name in ("1", "2")), PATIENCE_SECONDS)
        children.interrupt()
        assert quick.result().stdout == "kept\n"
        assert not slow.done(), "it ignores the first signal"
        children.interrupt()
        assert slow.result().stdout == "kept\n"
    with pytest.raises(Interrupted):
        children.run(programs[0], PATIENCE_SECONDS)


def test_a_child_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    program = [sys.executable, "-c", STUBBORN.format(ready=str(tmp_path / "ready"), patience=1)]
    with pytest.raises(subprocess.TimeoutExpired):
        Children().run(program, 0.5)


def test_the_previous_signal_handler_is_restored() -> None:
    children = Children()
    before = signal.getsignal(signal.SIGTERM)
    with children.ended_by_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert children.interrupted
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.feature("FI-12")
def test_a_run_that_was_cut_short_has_found_nothing_unless_it_says_so() -> None:
    tally, job = Tally(interrupted=True), Job("a", ("run", "a"))
    unknown = "UNKNOWN: loss: the run ended before everything was read to its end | store/a"
    assert tally.add(job, Done((), ANOMALY, (unknown,), 1.0)) == "cut short"
    assert tally.exit_code == COULD_NOT_RUN
    assert tally.add(job, Done((), VALID, ("VALID | store/a",), 1.0)) == "ok"
    assert tally.add(job, Done((), ANOMALY, ("INVALID: lost-write | store/a",), 1.0)) == "FAILED"
    assert tally.exit_code == ANOMALY and len(tally.cut_short) == len(tally.failed) == 1


def test_an_interrupted_command_exits_with_could_not_run(tmp_path: Path) -> None:
    """A scenario is judged only at its end; the exit codes are 0, 1 and 2, and there is a last line."""
    program = [sys.executable, "jepsen-style", "scenario", "crash-at-every-write"]
    with (tmp_path / "said").open("w") as said:
        scenario = subprocess.Popen(program, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
    eventually(lambda: "seed 1: ended well" in (tmp_path / "said").read_text(), PATIENCE_SECONDS)
    scenario.send_signal(signal.SIGTERM)
    assert scenario.wait(PATIENCE_SECONDS) == COULD_NOT_RUN
    assert (tmp_path / "said").read_text().splitlines()[-1] == "interrupted"


def test_a_signal_that_met_the_scheduler_is_one_all_the_same() -> None:
    """trio takes it for an internal error of its own, and raises that from it."""
    program = """
import importlib.util
spec = importlib.util.spec_from_file_location("jepsen_main", "jepsen-style/__main__.py")
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)

def command():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as signal:
        raise RuntimeError("internal error in Trio") from signal

main._with_its_exit_code('scenario', command)()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (COULD_NOT_RUN, "interrupted\n")


def test_the_last_line_is_the_last_wherever_the_signal_struck() -> None:
    """Between a coroutine's creation and its first step: Python complained of it behind `interrupted`, at the very
    end."""
    program = """
import importlib.util
spec = importlib.util.spec_from_file_location("jepsen_main", "jepsen-style/__main__.py")
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
async def step(): pass
def command():
    begun = step()
    raise KeyboardInterrupt
main._with_its_exit_code('scenario', command)()
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (COULD_NOT_RUN, "interrupted\n")


def test_a_signal_while_modules_are_loaded_is_an_exit_code_too(tmp_path: Path) -> None:
    """Caught or not, a signal in code that is made of text, as dataclasses make theirs, ended Python by SIGINT."""
    (tmp_path / "typer.py").write_text('exec("raise KeyboardInterrupt")\n')
    command = [sys.executable, "jepsen-style", "run", "queue"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (COULD_NOT_RUN, "interrupted\n")


def test_a_python_that_has_nothing_says_what_to_install() -> None:
    """The documents say `python jepsen-style`, and the machine's own Python ended with a traceback: no typer."""
    done = subprocess.run(
        [sys.executable, "-S", "jepsen-style", "run", "queue"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == COULD_NOT_RUN
    [line] = done.stderr.splitlines()
    assert "missing modules: trio, typer" in line and "pip install -e '.[faults]'" in line
