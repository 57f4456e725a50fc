"""A job in rounds is killed before and after every file operation; in the end each file exists once and is complete."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.files import LocalFiles
from barnabas.pipeline.jobs.plan import Claim, Plan, Range, Round, cut
from barnabas.pipeline.jobs.rounds import Rounds, Written, claimed

CLAIM = Claim(job="export", cluster_id="c", topic="t", topic_id="i", other="lake", query_id="q")
RANGES = [Range(0, 0, 15), Range(1, 5, 10)]


class Killed(BaseException):
    pass


class DyingFiles(LocalFiles):
    """Simulates a kill before or after the operation with this number."""

    def __init__(self, touches: int, after: bool) -> None:
        self.left = touches
        self.after = after

    def _die(self, after: bool) -> None:
        if self.after is after:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def write(self, path: str, text: str) -> None:
        self._die(False)
        super().write(path, text)
        self._die(True)

    def move(self, source: str, target: str) -> None:
        self._die(False)
        super().move(source, target)
        self._die(True)

    def remove(self, path: str) -> None:
        self._die(False)
        super().remove(path)
        self._die(True)


def attempt(files: LocalFiles, folder: Path) -> Plan:
    """Run the job from its start: rounds of two pieces with two files each."""
    rounds = Rounds(files, f"{folder}/_barnabas", str(folder))
    plan = rounds.open(CLAIM)
    if not plan.rounds:
        plan = plan.with_more(cut(RANGES, 10, 2), {0: 15, 1: 10})
        rounds.save(plan)

    def work(number: int, pieces: Round) -> Written:
        moves = []
        for piece in pieces:
            for half in ("a", "b"):
                # The temporary name differs each time, as Spark's do.
                name = f"part-{os.urandom(4).hex()}"
                target = Path(rounds.aside, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                files._die(False) if isinstance(files, DyingFiles) else None
                target.write_text(f"{number} {piece} {half}")
                moves.append((name, f"p={piece.partition}/{piece.start}-{piece.end}-{half}"))
        return Written(records=sum(piece.end - piece.start for piece in pieces), moves=moves)

    return [plan, *rounds.run(plan, work)][-1]


def seen(folder: Path) -> dict[str, str]:
    """The files that readers of the lake see."""
    found = {}
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(("_", ".")) for part in inside.parts):
            found[str(inside)] = path.read_text()
    return found


@pytest.mark.feature("PL-02", "PL-06")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_job_killed_at_any_file_operation_completes(tmp_path: Path, after: bool) -> None:
    whole = tmp_path / "whole"
    plan = attempt(LocalFiles(), whole)
    assert (plan.done, plan.records, plan.files) == (len(plan.rounds), 20, 6)
    expected = seen(whole)

    touches = 0
    while True:
        folder = tmp_path / f"killed-{touches}"
        try:
            attempt(DyingFiles(touches, after), folder)
        except Killed:
            assert seen(folder).items() <= expected.items()
            again = attempt(LocalFiles(), folder)
            assert seen(folder) == expected
            assert (again.done, again.records, again.files) == (plan.done, 20, 6)
            touches += 1
        else:
            break
    assert touches > 15


def test_a_job_killed_again_and_again_completes(tmp_path: Path) -> None:
    lives = 0
    while True:
        try:
            attempt(DyingFiles(6, after=True), tmp_path)
            break
        except Killed:
            lives += 1
    assert lives == 2
    assert len(seen(tmp_path)) == 6
    assert not (tmp_path / "_barnabas" / "moves.json").exists()


def test_a_checkpoint_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with (
        claimed(LocalFiles(), str(tmp_path / "c"), CLAIM) as first,
        pytest.raises(PipelineError, match="is in use by another job"),
        claimed(LocalFiles(), str(tmp_path / "c"), CLAIM),
    ):
        raise AssertionError(f"{first} was had twice")
    with claimed(LocalFiles(), str(tmp_path / "c"), CLAIM.model_copy(update={"query_id": "new"})) as again:
        assert again.query_id == "q"


def test_the_checkpoint_of_another_program_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with (
        pytest.raises(PipelineError, match="the checkpoint of another program; give another --checkpoint"),
        claimed(LocalFiles(), str(tmp_path), CLAIM),
    ):
        raise AssertionError("it was taken")


def test_a_file_removed_during_the_moves_is_an_error(tmp_path: Path) -> None:
    rounds = Rounds(LocalFiles(), str(tmp_path / "s"), str(tmp_path))
    plan = Plan(claim=CLAIM).with_more([[Range(0, 0, 5)]], {})
    rounds.save(plan)
    (tmp_path / "s" / "moves.json").write_text('{"round": 0, "moves": [["a", "b"]], "records": 5}')
    with pytest.raises(PipelineError, match=r"neither .*/b nor its temporary file exists"):
        rounds.open(CLAIM)
