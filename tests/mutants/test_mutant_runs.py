"""A room of one file and a few tests, mutated: what is noticed, what is not, and what a run says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.equivalent import JUDGED, Equivalents
from tests.mutants.mutations import Mutation, mutations_of
from tests.mutants.passing import Passing
from tests.mutants.remembered import Remembered
from tests.mutants.rooms import ROOMS, ROOT, Room
from tests.mutants.scores import BEGIN, END, Score, survivors, table, write
from tests.mutants.trying import EQUIVALENT, KILLED, SEED, SURVIVED, UNSEEN, Trial

CODE = """\
from contextlib import contextmanager


def larger(a, b):
    if a > b:
        return a
    return b


def count_down(n):
    while n > 0:
        n -= 1
    return n


def unused(a):
    return a + 1
"""
TESTS = """\
from weights import count_down, larger


def test_larger():
    assert larger(2, 1) == 2
    assert larger(1, 2) == 2


def test_count_down():
    assert count_down(3) == 0
"""
SEEDS = """\
import pytest
from weights import larger, unused


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_promise_is_kept(seed):
    assert larger(1, seed) == seed
    assert seed == 1 or unused(seed) == seed + 1
"""
RUN = """
import json, sys, time
from dataclasses import asdict
from pathlib import Path
from tests.mutants import passing, trying
from tests.mutants.rooms import Room

trying.PATIENCE_SECONDS, trying.ATTEMPTS = 1.0, 30
root = Path(sys.argv[1])
sys.path.insert(0, str(root))
trying.SEED_TESTS = passing.SEED_TESTS = "seeds.py"
room = Room("weights", (".",), ("test_weights.py",), root)
run = trying.Trying(room, 1, 100, time.monotonic() + 600, seeds=int(sys.argv[2]))
trying.try_room(run)
print("RESULT", json.dumps([asdict(trial) for trial in run.trials]))
"""


def run_in(root: Path, tests: str, seeds: int = 0) -> subprocess.CompletedProcess[str]:
    (root / "weights.py").write_text(CODE)
    (root / "test_weights.py").write_text(tests)
    command = [sys.executable, "-c", RUN, str(root), str(seeds)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def outcomes_of(ended: subprocess.CompletedProcess[str]) -> dict[tuple[int, str], tuple[str, str]]:
    """Outcome and test that noticed, by line and change."""
    assert ended.returncode == 0, ended.stderr
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("RESULT")]
    return {
        (trial["line"], trial["change"]): (trial["outcome"], trial["by"])
        for trial in json.loads(line[len("RESULT ") :])
    }


def test_mutants_are_killed_or_survive(tmp_path: Path) -> None:
    outcomes = outcomes_of(run_in(tmp_path, TESTS))
    assert outcomes[5, "the condition is negated"] == (KILLED, "test_weights.py::test_larger")
    assert outcomes[5, "> becomes >="] == (SURVIVED, ""), "they are equivalent"
    assert outcomes[12, "the statement is dropped"] == (KILLED, "it takes too long")
    assert outcomes[12, "- becomes +"] == (KILLED, "it takes too long")
    assert outcomes[17, "+ becomes -"] == (UNSEEN, "")
    assert (tmp_path / "weights.py").read_text() == CODE, "the file stays as it is"
    assert outcomes_of(run_in(tmp_path, TESTS)) == outcomes, "with what was remembered"


def test_seeds_are_tried_after_the_tests(tmp_path: Path) -> None:
    (tmp_path / "seeds.py").write_text(SEEDS)
    outcomes = outcomes_of(run_in(tmp_path, TESTS, seeds=2))
    assert outcomes[5, "the condition is negated"] == (KILLED, "test_weights.py::test_larger")
    assert outcomes[5, "> becomes >="] == (SURVIVED, "")
    assert outcomes[17, "+ becomes -"] == (SEED, "seeds.py::test_every_promise_is_kept[2]"), "no test runs the line"


def test_tests_that_fail_by_themselves_end_the_run(tmp_path: Path) -> None:
    ended = run_in(tmp_path, TESTS + "\n\ndef test_wrong():\n    assert larger(1, 1) == 2\n")
    assert ended.returncode != 0
    assert "tests fail without any mutation: test_weights.py::test_wrong" in ended.stderr


def test_a_test_is_measured_again_when_one_of_its_files_changes(tmp_path: Path) -> None:
    room = Room("kraft/weights", ("src",), ("test_a.py", "test_b.py"), tmp_path)
    one, two, rig = tmp_path / "src" / "one.py", tmp_path / "src" / "two.py", tmp_path / "tests" / "rig.py"
    test_a, test_b = tmp_path / "test_a.py", tmp_path / "test_b.py"
    for path in (one, two, rig, test_a, test_b):
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    seconds = {"test_a.py::x": 1.0, "test_b.py::y": 2.0, "test_b.py::z": 3.0}
    lines = {str(one): {1: ["test_a.py::x"], 2: ["test_a.py::x", "test_b.py::y"]}, str(two): {5: ["test_b.py::z"]}}
    passing = Passing(seconds, lines)

    def known(*tests: str) -> list[str]:
        return sorted(Remembered(room).known(tests or seconds).seconds)

    assert known() == []
    for changed, rest in (
        (test_a, ["test_b.py::y", "test_b.py::z"]),
        (test_b, ["test_a.py::x"]),
        (one, ["test_b.py::z"]),
        (two, ["test_a.py::x", "test_b.py::y"]),
        (rig, []),
    ):
        Remembered(room).keep(passing)
        assert Remembered(room).known(seconds) == passing
        assert known("test_b.py::y", "test_b.py::new") == ["test_b.py::y"]
        changed.write_text("changed")
        assert known() == rest
        found = Remembered(room).known(seconds)
        assert found.joined(passing.only({*seconds} - {*rest})) == passing
        changed.write_text("")
    (tmp_path / ".cache" / "mutants" / "kraft-weights.json").write_text("{")
    assert known() == []


def trial(line: int, outcome: str) -> Trial:
    return Trial("room/file.py", line, f"text {line}", "< becomes <=", outcome)


def test_a_score_leaves_out_what_nobody_can_notice() -> None:
    outcomes = [KILLED, KILLED, KILLED, SURVIVED, EQUIVALENT, SEED]
    trials = [trial(line, outcome) for line, outcome in enumerate(outcomes, start=1)]
    score = Score("room", 90, trials)
    assert score.percent == 80.0
    assert list(table([score]))[-2:] == [
        "| room | 90 | 6 | 1 | 3 | 1 | 1 | 0 | 80.0 % |",
        "| all | 90 | 6 | 1 | 3 | 1 | 1 | 0 | 80.0 % |",
    ]
    assert list(survivors([Score("room", 2, [trial(9, UNSEEN), trial(4, SURVIVED)])])) == [
        "- `room/file.py:4` < becomes <=: `text 4`",
        "- `room/file.py:9` < becomes <= (no test runs the line): `text 9`",
    ]
    assert Score("room", 0, []).percent is None


def test_the_page_keeps_what_stands_around_the_last_run(tmp_path: Path) -> None:
    page = tmp_path / "mutants.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(page, [Score("room", 1, [trial(1, KILLED)])], "make mutants")
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text and "100.0 %" in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no"):
        write(page, [], "make mutants")


def test_every_judgement_is_about_a_change_that_exists() -> None:
    """One whose line was edited is to be judged again."""
    root = next(iter(ROOMS.values())).root
    known: dict[str, list[Mutation]] = {}
    for file, source, change in Equivalents.read(JUDGED).judged():
        found = known.setdefault(file, mutations_of(root / file))
        here = [each for each in found if each.source == source]
        assert here, f"{file} has no line {source!r}"
        assert change == "*" or change in {each.change for each in here}, f"{file}: {source!r} has no change {change!r}"


def test_a_judgement_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.tsv"
    path.write_text("storage/log.py\tif a < b:\t< becomes <=\n")
    with pytest.raises(ValueError, match="has 3 cells"):
        Equivalents.read(path)


def test_an_unknown_room_is_refused() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--rooms", "cellar"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2 and "cellar: no such room; there are storage, kraft/raft" in ended.stderr
